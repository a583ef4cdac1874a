"""The golden identity of `refine_`: a linear model's ELBO is its evidence at its maximum."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.cases import GAUSSIANS, scramble_
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

import headstart as hs

pytestmark = pytest.mark.usefixtures("float64")


def data(rows: int = 40) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, 5)
    return x, x @ torch.randn(5, 2) + 0.4 + 0.6 * torch.randn(rows, 2)


def log_evidence(x: Tensor, y: Tensor, log_noise: Tensor, log_prior: Tensor) -> Tensor:
    """log p(y) written out densely, a noise for each output."""
    rows = torch.cat([x, torch.ones(len(x), 1)], 1)
    cov = log_prior.exp() * rows @ rows.T
    total = torch.zeros(())
    for column, noise in zip(y.T, log_noise.expand(y.shape[1]), strict=True):
        law = MultivariateNormal(torch.zeros(len(x)), cov + noise.exp() * torch.eye(len(x)))
        total = total + law.log_prob(column)
    return total


def best_evidence(x: Tensor, y: Tensor, noises: int, prior: float | None = None) -> Tensor:
    """The largest evidence, by torch's own optimizer; noise, then prior variance."""
    at = torch.zeros(noises + 1, requires_grad=True)
    if prior is not None:
        with torch.no_grad():
            at[-1] = math.log(prior)
    optimizer = torch.optim.LBFGS(
        [at],
        max_iter=500,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = -log_evidence(x, y, at[:noises], at[noises])
        value.backward()
        if prior is not None:
            at.grad[-1] = 0
        return value

    optimizer.step(loss)
    return at.detach()


def exact_elbo(model: nn.Module, lik: hs.Gaussian, x: Tensor, y: Tensor) -> float:
    """E_q[log p(y|x, W)] − KL in closed form, from the model that `refine_` left."""
    layer = hs.bayesian_layers(model)[""]
    q = layer.posterior
    mean, var = q.mean[:, :5] @ x.T + q.mean[:, 5:], q.local_variance(layer.op, x).T
    noise = lik.noise_var.expand(2).unsqueeze(1)
    error = ((y.T - mean).square() + var) / noise + (2 * math.pi * noise).log()
    return float((-0.5 * error.sum() - layer.kl()).detach())


@pytest.mark.parametrize("family", GAUSSIANS)
@pytest.mark.parametrize("noise", [0.9, [0.9, 0.2]])
@pytest.mark.parametrize("prior", [3.0, "learned"])
def test_elbo_is_the_log_evidence_at_the_best_noise_and_prior(
    family: str, noise: Any, prior: Any
) -> None:
    x, y = data()
    model, lik = hs.bayesianize(nn.Linear(5, 2), posterior=family, prior=prior), hs.Gaussian(noise)
    scramble_(model)
    report = hs.refine_(model, lik, (x, y))
    best = best_evidence(x, y, lik.log_noise_var.numel())
    expected = float(log_evidence(x, y, best[:-1], best[-1]))
    assert exact_elbo(model, lik, x, y) == pytest.approx(expected, abs=1e-9)
    assert -report.nelbo_after == pytest.approx(expected, abs=1e-9)
    # Maxima are flat: half of the digits.
    assert torch.allclose(lik.log_noise_var.flatten(), best[:-1], atol=1e-5)
    assert report.prior_after == pytest.approx(float(best[-1].exp()), rel=1e-5)


def test_a_given_prior_and_noise_stay() -> None:
    x, y = data()
    model = hs.bayesianize(nn.Linear(5, 2), prior=0.7)
    lik = hs.Gaussian(0.3, learn_noise=False)
    hs.refine_(model, lik, (x, y), learn_prior=False)
    logs = torch.tensor([0.3]).log(), torch.tensor(0.7).log()
    assert exact_elbo(model, lik, x, y) == pytest.approx(float(log_evidence(x, y, *logs)), abs=1e-9)
    assert float(lik.noise_var) == pytest.approx(0.3, rel=1e-12)
    assert float(lik.predictive_ratio) == 1.0


def test_only_the_noise_moves_beside_a_given_prior() -> None:
    x, y = data()
    model, lik = hs.bayesianize(nn.Linear(5, 2), prior=0.7), hs.Gaussian()
    hs.refine_(model, lik, (x, y), learn_prior=False)
    best = best_evidence(x, y, 1, prior=0.7)
    expected = float(log_evidence(x, y, best[:1], torch.tensor(0.7).log()))
    assert exact_elbo(model, lik, x, y) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("family", ["mean_field", "full_covariance"])
def test_two_tables_in_a_row_are_one(family: str) -> None:
    """Inherited from the first half, refined on the second: the evidence of both together."""
    x, y = data()
    model, lik = (
        hs.bayesianize(nn.Linear(5, 2), posterior=family, prior=0.7),
        hs.Gaussian(0.3, learn_noise=False),
    )
    first = hs.refine_(model, lik, (x[:25], y[:25]), learn_prior=False)
    hs.inherit_(model)
    second = hs.refine_(model, lik, (x[25:], y[25:]))
    assert second.prior_after is None
    logs = torch.tensor([0.3]).log(), torch.tensor(0.7).log()
    expected = float(log_evidence(x, y, *logs))
    assert -first.nelbo_after - second.nelbo_after == pytest.approx(expected, abs=1e-8)


def test_labels_in_other_units_change_nothing_but_units() -> None:
    x, y = data()
    reports, models = [], []
    for loc, scale in (([0.0, 0.0], [1.0, 1.0]), ([3.0, -2.0], [10.0, 0.1])):
        model = hs.bayesianize(nn.Linear(5, 2))
        lik = hs.Gaussian([0.1, 0.1], loc=loc, scale=scale)
        labels = torch.tensor(loc) + torch.tensor(scale) * y
        reports.append(hs.refine_(model, lik, (x, labels)))
        models.append(model)
    shift = len(x) * math.log(10.0 * 0.1)
    assert reports[1].nelbo_after == pytest.approx(reports[0].nelbo_after + shift, abs=1e-7)
    assert torch.allclose(models[0].posterior.mean, models[1].posterior.mean, atol=1e-6)
    ratio = torch.tensor(reports[1].noise_predictive) / torch.tensor(reports[0].noise_predictive)
    assert torch.allclose(ratio, torch.tensor([100.0, 0.01]), rtol=1e-4)


class Pooled(nn.Module):
    """A head that is averaged over positions, plus what the net adds to it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv1d(4, 2, 1, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).mean(-1) + x[:, :2, 0]


def test_a_pooled_convolutional_head_with_groups() -> None:
    x = torch.randn(60, 4, 7)
    y = torch.stack([x[:, 0].mean(-1), 2 * x[:, 3].mean(-1)], 1) + x[:, :2, 0]
    y = y + 0.2 * torch.randn(60, 2)
    model, lik = hs.bayesianize(Pooled()), hs.Gaussian()
    report = hs.refine_(model, lik, (x, y))
    noise, prior = lik.noise_var.detach(), report.prior_after
    assert prior is not None
    expected = torch.zeros(())
    for unit in range(2):
        rows = torch.cat([x[:, 2 * unit : 2 * unit + 2].mean(-1), torch.ones(60, 1)], 1)
        law = MultivariateNormal(torch.zeros(60), noise * torch.eye(60) + prior * rows @ rows.T)
        expected = expected + law.log_prob(y[:, unit] - x[:, unit, 0])
    assert -report.nelbo_after == pytest.approx(float(expected), abs=1e-9)
