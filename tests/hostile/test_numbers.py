"""Bad numbers end with finite predictions or one sentence, and leave good checkpoints alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs

INITS = ["iblm", "iblm-paper", "lsuv", "orthogonal"]


def rows(count: int = 60) -> tuple[Tensor, Tensor]:
    torch.manual_seed(3)
    x = torch.randn(count, 5)
    return x, x.sum(1)


def learn(
    x: Tensor,
    y: Tensor,
    lik: hs.Likelihood,
    init: str,
    net: nn.Module | None = None,
    **options: Any,
) -> Tensor:
    """Initialise, train and predict; the predictive mean."""
    outputs = lik.num_classes if isinstance(lik, hs.Categorical) else 1
    model = hs.bayesianize(net or hs.models.create("mlp-2x10", x.shape[1], outputs))
    report = hs.initialize_(model, init, lik, (x, y), seed=0)
    assert all("Traceback" not in warning for warning in report.warnings)
    hs.fit(
        model, lik, (x, y), **{"steps": 4, "samples": 3, "progress": False, "seed": 0, **options}
    )
    return hs.predict(model, lik, x, samples=5, seed=0).mean


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize(
    "case",
    [
        "batch of one",
        "absent class",
        "one class",
        "constant target",
        "singular",
        "float16",
        "half net",
    ],
)
def test_odd_but_sound(init: str, case: str) -> None:
    """What can be learned from is learned from."""
    x, y = rows()
    lik: hs.Likelihood = hs.Gaussian()
    options: dict[str, Any] = {}
    if case == "batch of one":
        options["batch_size"] = 1
    elif case == "absent class":
        y, lik = (y > 0).long(), hs.Categorical(5)
    elif case == "one class":
        y, lik = torch.ones(len(x), dtype=torch.long), hs.Categorical(3)
    elif case == "constant target":
        y = torch.full_like(y, 2.0)
    elif case == "singular":
        x = torch.cat([x, x, torch.ones(len(x), 2), torch.zeros(len(x), 2)], 1)
    elif case == "float16":
        x, y = x.half(), y.half()
    else:
        x, y, options["net"] = x.half(), y.half(), hs.models.create("mlp-2x10", 5, 1).half()
    found = learn(x, y, lik, init, **options)
    assert torch.isfinite(found).all()
    if case == "absent class" and init == "iblm":
        assert (found[:, 2:].mean() < found[:, :2].mean()).item()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda x, y: (x.index_fill(1, torch.tensor([2]), float("nan")), y),
            r"x holds nan at index \[0, 2\]",
        ),
        (
            lambda x, y: (x, y.index_fill(0, torch.tensor([7]), float("inf"))),
            r"y holds inf at index \[7\]",
        ),
        (lambda x, y: (1e30 * x, y), "standardi[sz]e|constant"),
        (lambda x, y: (x, 1e30 * y), "standardi[sz]e"),
        (lambda x, y: (x[:0], y[:0]), "empty"),
        (lambda x, y: (x, y[:-1]), "60 rows and y has 59"),
    ],
)
@pytest.mark.parametrize("init", INITS)
def test_what_cannot_be_learned_from_gets_a_sentence(change: Any, sentence: str, init: str) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        learn(*change(*rows()), hs.Gaussian(), init)


def test_one_row_gets_a_sentence_from_whatever_measures_rows() -> None:
    x, y = rows(1)
    for init in ("iblm", "lsuv"):
        with pytest.raises(hs.HeadstartError, match="at least two"):
            learn(x, y, hs.Gaussian(), init)
    assert torch.isfinite(learn(x, y, hs.Gaussian(), "orthogonal")).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["quantity", "classes"])
def test_more_features_than_rows_by_far(kind: str) -> None:
    """Ten rows of 10⁵ features: linear models are solved among rows, in memory that is there."""
    torch.manual_seed(0)
    x = torch.randn(10, 100_000)
    lik = hs.Gaussian() if kind == "quantity" else hs.Categorical(2)
    y = x[:, 0] if kind == "quantity" else (x[:, 0] > 0).long()
    net = hs.models.create("mlp-2x3", 100_000, 1 if kind == "quantity" else 2)
    assert torch.isfinite(learn(x, y, lik, "iblm", net=net, steps=2)).all()


class Root(nn.Module):
    """x + √(0 · x): x, with a slope of 0 · ∞."""

    def forward(self, x: Tensor) -> Tensor:
        return x + (0 * x).sqrt()


class Switch(nn.Module):
    """A part of the net that turns bad after so many calls in training."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after, self.calls, self.root = after, 0, Root()

    def forward(self, x: Tensor) -> Tensor:
        # Only passes that learn count: the step sizes are measured by one that does not.
        self.calls += self.training and torch.is_grad_enabled()
        return self.root(x) if self.training and self.calls > self.after else x


@pytest.mark.parametrize("method", ["svi", "mc-dropout"])
@pytest.mark.parametrize("at", [6, 7])
def test_a_gradient_that_is_not_finite_never_reaches_a_checkpoint(
    tmp_path: Path, method: str, at: int
) -> None:
    """At step 6 a checkpoint is due; at step 7 the next loss is what tells."""

    def go(bad_after: int, resume: bool) -> tuple[nn.Module, hs.History]:
        net = nn.Sequential(nn.Linear(5, 8), Switch(bad_after), nn.Linear(8, 1))
        model = hs.inference.make_inference(method).convert(net)
        options: dict[str, Any] = {
            "steps": 20,
            "every": 3,
            "inference": method,
            "progress": False,
            "seed": 0,
        }
        return model, hs.fit(
            model, hs.Gaussian(), rows(), checkpoint=tmp_path, resume=resume, **options
        )

    with pytest.raises(
        hs.HeadstartError, match=r"is not finite after step 6|loss became nan at step 8"
    ):
        go(at - 1, resume=False)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept[-1] == ("step-000000003.safetensors" if at == 6 else "step-000000006.safetensors")
    mended, history = go(10**9, resume=True)
    assert len(history.steps) == 20
    assert all(torch.isfinite(parameter).all() for parameter in mended.parameters())


def test_exploding_noise_gets_a_sentence() -> None:
    """Rates that are far too large end in a sentence that names them; the last checkpoint stays."""
    x, y = rows()
    with pytest.raises(hs.HeadstartError, match=r"smaller lr than 1e\+06"):
        learn(x, y, hs.Gaussian(), "iblm", lr=1e6)
