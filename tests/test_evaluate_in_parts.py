"""`evaluate` in parts of bounded memory: the metrics of all rows at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart import metrics, predictive
from headstart.distributed.sharding import FullShard, ShardedBatch, join_batches

ROWS, SAMPLES = 50, 8


class _Pixels(nn.Module):
    """Three outputs at each of four positions."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).unflatten(1, (3, 2, 2))


class _Heads(nn.Module):
    """A class and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        f = self.body(x)
        return {"kind": f[:, :3], "size": f[:, 3:]}


def cases() -> Iterator[Any]:
    """Nets, likelihoods and labels."""
    generator = torch.Generator().manual_seed(0)
    kinds = torch.randint(3, (ROWS,), generator=generator)
    pixels = torch.randint(3, (ROWS, 2, 2), generator=generator)
    numbers, counts = torch.randn(ROWS, generator=generator), torch.arange(ROWS) % 5
    weights = (torch.arange(ROWS) % 3).float()
    some = torch.where(torch.arange(ROWS) < 20, -100, kinds)
    soft = torch.rand(ROWS, 3, generator=generator).softmax(1)
    yield pytest.param(nn.Linear(4, 1), hs.Gaussian(), numbers, id="gaussian")
    yield pytest.param(nn.Linear(4, 1), hs.Poisson(), counts, id="poisson")
    yield pytest.param(nn.Linear(4, 3), hs.Categorical(3), kinds, id="categorical")
    yield pytest.param(nn.Linear(4, 3), hs.Categorical(3), soft, id="soft labels")
    ignoring = hs.Categorical(3, ignore_index=-100)
    yield pytest.param(nn.Linear(4, 3), ignoring, some, id="parts without a label")
    yield pytest.param(nn.Linear(4, 3), hs.MultiLabel(), soft.round(), id="multi-label")
    counted = {"labels": numbers, "sample_weight": weights}
    yield pytest.param(nn.Linear(4, 1), hs.Weighted(hs.Gaussian()), counted, id="weighted")
    yield pytest.param(_Pixels(), hs.PerPosition(hs.Categorical(3), axis=1), pixels, id="pixels")
    joint = hs.Joint({"kind": hs.Categorical(3), "size": hs.Gaussian()})
    yield pytest.param(_Heads(), joint, {"kind": kinds, "size": numbers}, id="joint")


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers that each part has drawn."""
    seen: list[int] = []
    plain = predictive._predict

    def spy(*args: Any) -> hs.Predictive:
        found = plain(*args)
        parts = [found.draws] if isinstance(found.draws, Tensor) else found.draws.tensors
        seen.append(sum(part.numel() for part in parts))
        return found

    monkeypatch.setattr(predictive, "_predict", spy)
    return seen


@pytest.mark.parametrize(("net", "likelihood", "y"), list(cases()))
def test_parts_have_the_metrics_of_all_rows_in_bounded_memory(
    net: nn.Module,
    likelihood: hs.Likelihood,
    y: Any,
    draws: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, x = hs.bayesianize(net), torch.randn(ROWS, 4)
    options: dict[str, Any] = {"samples": SAMPLES, "seed": 0, "sampler": "weights"}
    whole = hs.evaluate(model, likelihood, (x, y), **options)
    assert len(draws) == 1
    limit = draws[0] // 7
    monkeypatch.setattr(predictive, "MAX_NUMBERS", limit)
    parts = hs.evaluate(model, likelihood, (x, y), **options)
    assert len(draws) > 7
    assert max(draws[1:]) <= limit
    assert list(parts) == list(whole)
    assert parts == pytest.approx(whole, rel=1e-5, abs=1e-6)


def test_batches_of_a_loader_are_read_as_they_are_needed(
    draws: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictive, "MAX_NUMBERS", 20 * SAMPLES)
    read: list[int] = []

    class Loader:
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            for number in range(9):
                # At most two more parts have been read than predicted.
                read.append(len(draws))
                yield torch.full((10, 4), float(number)), torch.zeros(10)

    model = hs.bayesianize(nn.Linear(4, 1))
    hs.evaluate(model, hs.Gaussian(), Loader(), SAMPLES, seed=0)
    assert draws == [20 * SAMPLES] * 4 + [10 * SAMPLES]
    assert read == [0, 0, 0, 0, 0, 0, 2, 2, 3]


def test_metrics_of_ones_own_see_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictive, "MAX_NUMBERS", 20)
    monkeypatch.setattr(metrics, "METRICS", dict(metrics.METRICS))
    monkeypatch.setattr(metrics, "OWN_METRICS", {})
    hs.register_metric("rows", better=0)(lambda pred, y: float(len(y)))
    x = torch.randn(ROWS, 4)
    scores = hs.evaluate(hs.bayesianize(nn.Linear(4, 1)), hs.Gaussian(), (x, x.sum(1)), SAMPLES)
    assert scores["rows"] == ROWS


def test_nothing_to_score_is_said_after_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictive, "MAX_NUMBERS", 20 * 3 * SAMPLES)
    x, y = torch.randn(ROWS, 4), torch.full((ROWS,), -100)
    model = hs.bayesianize(nn.Linear(4, 3))
    with pytest.raises(hs.HeadstartError, match="Every label is ignore_index"):
        hs.evaluate(model, hs.Categorical(3, ignore_index=-100), (x, y), SAMPLES)


def test_small_batches_are_joined_and_large_ones_split() -> None:
    batches = [
        ShardedBatch(torch.ones(n, 1), torch.zeros(n), FullShard(n)) for n in (2, 2, 7, 1, 1)
    ]
    assert [len(part.x) for part in join_batches(batches, 4)] == [4, 4, 4, 1]
    assert [len(part.x) for part in join_batches(batches, 4, fewest=2)] == [4, 4, 5]
    assert [len(part.x) for part in join_batches(batches, 100)] == [13]


class _WithBias(hs.Gaussian):
    """A likelihood whose `evaluate` says more."""

    def evaluate(self, f: Tensor, y: Tensor) -> dict[str, float]:
        return {**super().evaluate(f, y), "bias": float((self.mean(f).mean(0) - y).mean())}


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_evaluate_of_ones_own_sees_all_rows(
    wrapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(ROWS, 4)
    lik: hs.Likelihood = _WithBias()
    y: Any = x.sum(1)
    if wrapped:
        lik, y = hs.Weighted(lik), {"labels": y, "sample_weight": torch.ones(ROWS)}
    model = hs.bayesianize(nn.Linear(4, 1))
    whole = hs.evaluate(model, lik, (x, y), SAMPLES, seed=0)
    monkeypatch.setattr(predictive, "MAX_NUMBERS", 10 * SAMPLES)
    assert hs.evaluate(model, lik, (x, y), SAMPLES, seed=0).keys() == whole.keys()
    assert "bias" in whole


class _InBits(hs.Gaussian):
    """Log scores in bits, beside the metrics that are there."""

    def log_scores(self, f: Tensor, y: Tensor) -> dict[str, float]:
        scores = super().log_scores(f, y)
        return {name: value / math.log(2) for name, value in scores.items()} | {"rows": len(y)}


@pytest.mark.parametrize("within", [False, True])
def test_log_scores_of_ones_own_are_asked(within: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x, y = hs.bayesianize(nn.Linear(4, 1)), torch.randn(ROWS, 4), torch.randn(ROWS)
    mine, usual = (hs.Weighted(each) if within else each for each in (_InBits(), hs.Gaussian()))
    draws, labels = hs.draw(model, x, SAMPLES), y.unsqueeze(1)
    found, expected = mine.evaluate(draws, labels), usual.evaluate(draws, labels)
    assert found["rows"] == ROWS
    assert found["mnll"] == pytest.approx(expected["mnll"] / math.log(2))
    assert found["rmse"] == expected["rmse"]
    whole = hs.evaluate(model, mine, (x, y), SAMPLES, seed=0)
    monkeypatch.setattr(predictive, "MAX_NUMBERS", 10 * SAMPLES)
    assert hs.evaluate(model, mine, (x, y), SAMPLES, seed=0).keys() == whole.keys()
    assert whole["rows"] == ROWS


class _Counting(hs.Categorical):
    """The usual log scores, and how many rows they are of."""

    def log_scores(self, f: Tensor, y: Tensor) -> dict[str, float]:
        return super().log_scores(f, y) | {"rows": len(y)}


@pytest.mark.parametrize(
    "options",
    [{"ignore_index": -1}, {"class_weight": [1.0, 5.0, 9.0]}, {"label_smoothing": 0.3}],
    ids=lambda each: next(iter(each)),
)
def test_log_scores_of_ones_own_are_of_predictions_of_rows_with_a_label(options: Any) -> None:
    torch.manual_seed(0)
    draws, y = torch.randn(SAMPLES, ROWS, 3), torch.randint(3, (ROWS,))
    if "ignore_index" in options:
        y[::2] = -1
    found = _Counting(3, **options).evaluate(draws, y)
    assert found.pop("rows") == int((y >= 0).sum())
    assert found == pytest.approx(hs.Categorical(3, **options).evaluate(draws, y))
