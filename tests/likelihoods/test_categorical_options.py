"""Class weights, smoothing, rows without a label and soft labels: the loss is torch's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headstart as hs
from headstart import metrics
from headstart.predictive import Predictive

pytestmark = pytest.mark.usefixtures("float64")

WEIGHTS = [0.5, 1.0, 3.0]
OPTIONS: dict[str, dict[str, Any]] = {
    "weights": {"class_weight": WEIGHTS},
    "smoothing": {"label_smoothing": 0.2},
    "ignored": {"ignore_index": -100},
    "ignored class": {"ignore_index": 0},
    "all": {"class_weight": WEIGHTS, "label_smoothing": 0.1, "ignore_index": -1},
}


def labels(options: dict[str, Any], rows: int = 30) -> Tensor:
    y = torch.randint(3, (rows,))
    y[::4] = options.get("ignore_index", 1)
    return y


def torch_loss(f: Tensor, y: Tensor, options: dict[str, Any]) -> Tensor:
    """What torch trains on, row by row."""
    weight = options.get("class_weight")
    return F.cross_entropy(
        f,
        y,
        weight=None if weight is None else torch.tensor(weight),
        label_smoothing=options.get("label_smoothing", 0.0),
        ignore_index=options.get("ignore_index", -100),
        reduction="none",
    )


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_log_likelihood_is_torch_s_loss(kind: str) -> None:
    options = OPTIONS[kind]
    lik, f, y = hs.Categorical(3, **options), torch.randn(30, 3), labels(options)
    y = lik.check(y, 3)
    assert torch.allclose(lik.log_prob(f, y), -torch_loss(f, y, options), atol=1e-12, rtol=0)
    soft = torch.rand(30, 3)
    soft = soft / soft.sum(1, keepdim=True)
    # Probabilities have no index to ignore.
    expected = -torch_loss(f, soft, {**options, "ignore_index": -100})
    assert torch.allclose(lik.log_prob(f, lik.check(soft, 3)), expected, atol=1e-12, rtol=0)
    for target in (y, soft):
        by_hand, by_autograd = lik.curvature(f, target), hs.Likelihood.curvature(lik, f, target)
        assert torch.allclose(by_hand[0], by_autograd[0], atol=1e-12)
        assert torch.allclose(by_hand[1], by_autograd[1], atol=1e-12)


@pytest.mark.parametrize("kind", OPTIONS)
def test_predictions_are_those_of_the_plain_likelihood(kind: str) -> None:
    """Only rows with a label count, and neither weights nor smoothing do."""
    options = OPTIONS[kind]
    lik, draws, y = hs.Categorical(3, **options), torch.randn(8, 30, 3), labels(options)
    kept = y != options.get("ignore_index", -100)
    expected = hs.Categorical(3).evaluate(draws[:, kept], y[kept])
    assert lik.evaluate(draws, y) == expected
    assert Predictive(draws, lik.for_prediction()).evaluate(y) == expected
    again = hs.Categorical(**lik.config())
    assert repr(again) == repr(lik)
    assert torch.equal(again.log_prob(draws, y), lik.log_prob(draws, y))


def test_soft_labels_are_scored_as_labels_drawn_from_them() -> None:
    lik, draws = hs.Categorical(3), torch.randn(8, 20, 3)
    soft = torch.rand(20, 3).softmax(1)
    each = [hs.Categorical(3).log_predictive(draws, torch.full((20,), k)) for k in range(3)]
    expected = -(torch.stack(each, 1) * soft).sum(1).mean()
    scores, probs = lik.evaluate(draws, soft), lik.probs(draws).mean(0)
    assert scores["mnll"] == pytest.approx(float(expected), abs=1e-12)
    assert scores["mnll"] < scores["expected_nll"]
    right = soft.gather(1, probs.argmax(1, keepdim=True)).mean()
    assert scores["error"] == pytest.approx(1 - float(right), abs=1e-12)
    squares = [(probs - F.one_hot(torch.tensor(k), 3)).square().sum(1) for k in range(3)]
    assert scores["brier"] == pytest.approx(
        float((torch.stack(squares, 1) * soft).sum(1).mean()), abs=1e-12
    )
    # One-hot probabilities are classes.
    y = torch.randint(3, (20,))
    one_hot = F.one_hot(y, 3).double()
    hard = lik.evaluate(draws, y)
    assert lik.evaluate(draws, one_hot) == pytest.approx(hard, abs=1e-12)
    assert float(metrics.ece(probs, one_hot)) == pytest.approx(hard["ece"], abs=1e-12)


def test_rows_without_a_label_do_not_move_the_start() -> None:
    """The read-out of I-BLM is that of the other rows, however many there are."""
    x = torch.randn(200, 4)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 1).long()
    x_all = torch.cat([x, 5 * torch.randn(100, 4)])
    y_all = torch.cat([y, torch.full((100,), -100)])
    means = []
    for data in ((x, y), (x_all, y_all)):
        model = hs.bayesianize(nn.Linear(4, 3))
        hs.initialize_(model, "iblm", hs.Categorical(3, ignore_index=-100), data, seed=0)
        means.append(model.posterior.mean.detach())
    assert torch.allclose(*means, atol=1e-6)


def test_a_class_that_counts_twice_is_two_rows() -> None:
    x, y = torch.randn(100, 3), torch.randint(2, (100,))
    twice = (torch.cat([x, x[y == 1]]), torch.cat([y, y[y == 1]]))
    means = []
    for lik, data in ((hs.Categorical(2, class_weight=[1, 2]), (x, y)), (hs.Categorical(2), twice)):
        model = hs.bayesianize(nn.Linear(3, 2))
        hs.initialize_(model, "iblm", lik, data, seed=0)
        means.append(model.posterior.mean.detach())
    assert torch.allclose(*means, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["soft", *OPTIONS])
def test_the_start_beats_the_constant_and_training_beats_the_start(kind: str) -> None:
    options: dict[str, Any] = OPTIONS.get(kind, {})
    x = torch.randn(1000, 4)
    signal = 3 * torch.stack([x[:, 0] * x[:, 3], x[:, 1], x[:, 2].square() - 1], 1)
    y = (signal + torch.randn(1000, 3)).argmax(1)
    target = signal.softmax(1) if kind == "soft" else y.clone()
    if "ignore_index" in options:
        target[::4] = options["ignore_index"]
    net = nn.Sequential(nn.Linear(4, 20), nn.Tanh(), nn.Linear(20, 3))
    model, lik = hs.bayesianize(net), hs.Categorical(3, **options)

    def loss() -> float:
        draws = hs.predict(model, lik, x, samples=32, seed=0).draws
        return -float(lik.log_prob(draws, lik.check(target, 3)).mean())

    hs.initialize_(model, "iblm", lik, (x, target), seed=0)
    start = loss()
    hs.fit(model, lik, (x, target), steps=150, progress=False, seed=0)
    frequency = (y.bincount(minlength=3) / len(y)).log().expand(1000, -1)
    constant = -float(lik.log_prob(frequency, lik.check(target, 3)).mean())
    assert loss() < start < constant


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"class_weight": [1.0, 2.0]}, "3 positive numbers, one per class"),
        ({"class_weight": [1.0, -2.0, 1.0]}, "3 positive numbers"),
        ({"class_weight": [1.0, math.inf, 1.0]}, "3 positive numbers"),
        ({"label_smoothing": 1.0}, "label_smoothing must be at least 0 and below 1"),
    ],
)
def test_wrong_options_get_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        hs.Categorical(3, **options)


def test_wrong_soft_labels_get_a_sentence() -> None:
    for y in (torch.ones(4, 3), torch.tensor([[1.5, -0.5, 0.0]])):
        with pytest.raises(hs.HeadstartError, match="must be probabilities"):
            hs.Categorical(3).check(y, 3)
    with pytest.raises(hs.HeadstartError, match="nothing to score"):
        hs.Categorical(3, ignore_index=9).evaluate(torch.zeros(2, 4, 3), torch.full((4,), 9))
