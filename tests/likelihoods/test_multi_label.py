"""Several labels per row: the density and the start of independent Bernoullis."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import headstart as hs
from headstart import metrics
from headstart.predictive import Predictive
from tests.likelihoods.linear import start_and_end

pytestmark = pytest.mark.usefixtures("float64")


def test_the_density_is_that_of_independent_bernoullis() -> None:
    f, y = torch.randn(4, 6, 3), torch.randint(2, (6, 3)).double()
    lik, oracle = hs.MultiLabel(), torch.distributions.Bernoulli(logits=f)
    assert torch.allclose(lik.log_prob(f, y), oracle.log_prob(y).sum(-1), atol=1e-9, rtol=0)
    assert torch.allclose(lik.mean(f), oracle.mean, atol=1e-9)
    assert torch.allclose(lik.variance(f), oracle.variance, atol=1e-9)
    each = [hs.Bernoulli().log_prob(f[..., k : k + 1], y[:, k].long()) for k in range(3)]
    assert torch.allclose(lik.log_prob(f, y), sum(each), atol=1e-12)


def test_the_start_is_that_of_a_bernoulli_for_each_label() -> None:
    x, y = torch.randn(200, 3), torch.randint(2, (200, 2))
    both = hs.bayesianize(nn.Linear(3, 2))
    hs.initialize_(both, "iblm", hs.MultiLabel(), (x, y), seed=0)
    for k in range(2):
        one = hs.bayesianize(nn.Linear(3, 1))
        hs.initialize_(one, "iblm", hs.Bernoulli(), (x, y[:, k]), seed=0)
        assert torch.allclose(both.posterior.mean[k], one.posterior.mean[0], atol=1e-9)


def test_scores_of_single_labels_and_of_rows() -> None:
    lik, draws, y = hs.MultiLabel(), torch.randn(8, 20, 3), torch.randint(2, (20, 3))
    scores, p = lik.evaluate(draws, y), draws.sigmoid().mean(0)
    assert scores["error"] == pytest.approx(float(((p > 0.5) != y.bool()).double().mean()))
    assert scores["brier"] == pytest.approx(float(2 * (p - y).square().mean()))
    assert scores["mnll"] == pytest.approx(-float(Predictive(draws, lik).log_prob(y).mean()))
    assert set(scores) <= set(metrics.METRICS)


@pytest.mark.slow
def test_the_start_beats_the_constant_and_training_beats_the_start() -> None:
    x = torch.randn(600, 3)
    logits = 3 * torch.stack([x[:, 0] * x[:, 1], x[:, 1] + x[:, 2], x[:, 2].square() - 1], 1)
    y = torch.bernoulli(logits.sigmoid())
    worst = float(metrics.entropy(torch.stack([y.mean(0), 1 - y.mean(0)], 1)).sum())
    net = nn.Sequential(nn.Linear(3, 30), nn.Tanh(), nn.Linear(30, 3))
    start, end = start_and_end(net, hs.MultiLabel(), x, y)
    assert end < start < worst


def test_wrong_labels_get_a_sentence() -> None:
    with pytest.raises(hs.HeadstartError, match="MultiLabel wants labels 0 and 1"):
        hs.MultiLabel().check(torch.tensor([[0, 2]]), 2)
    with pytest.raises(hs.HeadstartError, match="MultiLabel wants targets of shape"):
        hs.MultiLabel().check(torch.tensor([0, 1]), 2)
    with pytest.raises(hs.HeadstartError, match="MultiLabel one for each of several labels"):
        hs.Bernoulli().check(torch.zeros(3, 2), 2)
