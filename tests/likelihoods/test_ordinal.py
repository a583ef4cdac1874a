"""The cumulative logit: its probabilities, cut points, quantiles and targets."""

from __future__ import annotations

import math
from typing import Any

import pytest
import scipy.integrate
import scipy.stats
import torch
from torch import nn

import headstart as hs
from headstart import metrics
from tests.likelihoods.linear import linear_truth, start_and_end

pytestmark = pytest.mark.usefixtures("float64")

CUTS = [-1.0, 0.2, 3.0]


def test_probabilities_are_differences_of_the_logistic_cdf() -> None:
    lik, f = hs.Ordinal(4, cut_points=CUTS), 3 * torch.randn(5, 6, 1)
    assert torch.allclose(lik.cut_points, torch.tensor(CUTS), atol=1e-12)
    ends = torch.tensor([-math.inf, *CUTS, math.inf])
    expected = torch.tensor(scipy.stats.logistic.cdf((ends - f).numpy())).diff()
    assert torch.allclose(lik.probs(f), expected, atol=1e-9, rtol=0)
    y = torch.randint(4, (6,))
    found = expected.gather(-1, y.expand(5, 6).unsqueeze(-1)).squeeze(-1).log()
    assert torch.allclose(lik.log_prob(f, y), found, atol=1e-9, rtol=0)


def test_far_from_its_class_the_log_probability_is_finite_with_a_slope() -> None:
    lik, f = hs.Ordinal(4, cut_points=CUTS), torch.tensor([[800.0], [-800.0]], requires_grad=True)
    for k in range(4):
        value = lik.log_prob(f, torch.tensor([k, k]))
        (slope,) = torch.autograd.grad(value.sum(), f)
        assert bool(value.isfinite().all() & slope.isfinite().all())
    # Almost all of class 0 lies at the cut point.
    assert float(lik.log_prob(f, torch.tensor([0, 0]))[0].detach()) == pytest.approx(-801)


def test_two_classes_are_a_bernoulli() -> None:
    lik, f, y = hs.Ordinal(2), torch.randn(6, 1), torch.randint(2, (6,))
    assert torch.allclose(lik.log_prob(f, y), hs.Bernoulli().log_prob(f, y), atol=1e-12)


def test_targets_are_means_of_a_logistic_variable_within_the_class() -> None:
    lik = hs.Ordinal(4, cut_points=CUTS)
    t, v = lik.regression_targets(torch.arange(4))
    ends = [-60.0, *CUTS, 60.0]
    for k, found in enumerate(t[:, 0].tolist()):
        low, high = ends[k], ends[k + 1]
        top, _ = scipy.integrate.quad(lambda z: z * scipy.stats.logistic.pdf(z), low, high)
        mass = scipy.stats.logistic.cdf(high) - scipy.stats.logistic.cdf(low)
        assert found == pytest.approx(top / mass, abs=1e-8)
    assert v.unique().tolist() == pytest.approx([math.pi**2 / 3])


def test_quantiles_are_the_lowest_class_that_reaches_the_level() -> None:
    lik, f = hs.Ordinal(4, cut_points=CUTS), 2 * torch.randn(9, 30, 1)
    reached = lik.probs(f).mean(0).cumsum(-1)
    for level in (0.025, 0.5, 0.9):
        expected = (reached >= level).long().argmax(-1)
        assert torch.equal(lik.quantile(f, level).squeeze(1), expected)


def test_the_most_likely_cut_points_are_found() -> None:
    """Without an input they are the logits of the cumulative frequencies, exactly."""
    lik, y = hs.Ordinal(4), torch.tensor([0] * 10 + [1] * 50 + [2] * 5 + [3] * 35)
    lik.fit_(torch.zeros(2, 100, 1), y)
    expected = torch.tensor([0.1, 0.6, 0.65]).logit()
    assert torch.allclose(lik.cut_points, expected, atol=1e-4)
    fixed = hs.Ordinal(4, cut_points=CUTS, learn_cut_points=False)
    fixed.fit_(torch.zeros(2, 100, 1), y)
    assert torch.allclose(fixed.cut_points, torch.tensor(CUTS), atol=1e-12)


def test_the_targets_find_a_known_predictor() -> None:
    x, truth = torch.randn(20_000, 2), torch.tensor([0.8, -0.5, 0.3])
    latent = x @ truth[:2] + truth[2] + torch.rand(20_000).logit()
    y = torch.bucketize(latent, torch.tensor(CUTS))
    found = linear_truth(hs.Ordinal(4, cut_points=CUTS), 1, x, y)[0]
    assert torch.allclose(found, truth, atol=0.08)


@pytest.mark.slow
def test_the_start_beats_the_constant_and_training_beats_the_start() -> None:
    x = torch.randn(600, 2)
    latent = 3 * x[:, 0].sin() + x[:, 1].square() + torch.rand(600).logit()
    y = torch.bucketize(latent, torch.tensor(CUTS))
    worst = float(metrics.entropy(y.bincount() / 600.0))
    net = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 1))
    lik = hs.Ordinal(4)
    start, end = start_and_end(net, lik, x, y)
    assert end < start < worst
    assert bool((lik.cut_points.diff() > 0).all())


@pytest.mark.parametrize(
    ("classes", "options", "sentence"),
    [
        (1, {}, "at least two classes"),
        (3, {"cut_points": [0.0]}, "must be 2 numbers that rise"),
        (3, {"cut_points": [1.0, 1.0]}, "must be 2 numbers that rise"),
        (3, {"cut_points": [0.0, math.inf]}, "must be 2 numbers that rise"),
    ],
)
def test_wrong_options_get_a_sentence(classes: int, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        hs.Ordinal(classes, **options)


def test_wrong_labels_get_a_sentence() -> None:
    for y, outputs, sentence in (
        (torch.tensor([0, 3]), 1, "Labels must lie in 0…2; found 0…3"),
        (torch.tensor([0.0, 1.0]), 1, "integer labels"),
        (torch.tensor([0, 1]), 3, "Ordinal reads one output"),
    ):
        with pytest.raises(hs.HeadstartError, match=sentence):
            hs.Ordinal(3).check(y, outputs)
