"""The golden identity: where q can hold the exact posterior, the evidence lower bound is the evidence."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

import headstart as hs

pytestmark = pytest.mark.usefixtures("float64")
NOISE, PRIOR = 0.3, 0.7


def data(rows: int = 40) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, 5)
    return x, x @ torch.randn(5, 2) + 0.4 + NOISE**0.5 * torch.randn(rows, 2)


def exact_elbo(model: nn.Module, x: Tensor, y: Tensor, noise: float) -> Tensor:
    """E_q[log p(y|x, W)] − KL in closed form: for a linear model the expectation needs only two moments."""
    layer = hs.bayesian_layers(model)[""]
    mean, var = (
        layer.posterior.mean[:, :5] @ x.T + layer.posterior.mean[:, 5:],
        layer.posterior.local_variance(layer.op, x).T,
    )
    expected = -0.5 * (((y.T - mean).square() + var) / noise + math.log(2 * math.pi * noise)).sum()
    return expected - layer.kl()


def log_evidence(x: Tensor, y: Tensor, noise: float, prior: float) -> Tensor:
    """log p(y) written out densely."""
    rows = torch.cat([x, torch.ones(len(x), 1)], 1)
    cov = noise * torch.eye(len(x)) + prior * rows @ rows.T
    return MultivariateNormal(torch.zeros(len(x)), cov).log_prob(y.T).sum()


@pytest.mark.parametrize("posterior", ["full_covariance", lambda *a, **k: hs.LowRank(*a, rank=6, **k)])
def test_elbo_after_iblm_is_the_log_evidence(posterior: object) -> None:
    x, y = data()
    model = hs.bayesianize(nn.Linear(5, 2), posterior=posterior, prior=PRIOR)
    hs.initialize_(model, "iblm", hs.Gaussian(NOISE), (x, y))
    elbo = exact_elbo(model, x, y, NOISE)
    assert float(elbo.detach()) == pytest.approx(float(log_evidence(x, y, NOISE, PRIOR)), abs=1e-9)


def test_the_library_s_own_nelbo_agrees_by_z_test() -> None:
    x, y = data()
    model = hs.bayesianize(nn.Linear(5, 2), posterior="full_covariance", prior=PRIOR)
    lik = hs.Gaussian(NOISE, learn_noise=False)
    hs.initialize_(model, "iblm", lik, (x, y))
    with torch.no_grad():
        values = torch.stack([hs.nelbo(model, lik, x, y, num_data=len(x), samples=16).value for _ in range(400)])
    z = (values.mean() + log_evidence(x, y, NOISE, PRIOR)) / (values.std() / len(values) ** 0.5)
    assert abs(float(z)) < 4


@pytest.mark.parametrize("posterior", ["mean_field", "matrix_normal", "low_rank"])
def test_a_smaller_family_stays_below_the_evidence(posterior: str) -> None:
    x, y = data()
    model = hs.bayesianize(nn.Linear(5, 2), posterior=posterior, prior=PRIOR)
    hs.initialize_(model, "iblm", hs.Gaussian([NOISE, NOISE]), (x, y))
    gap = log_evidence(x, y, NOISE, PRIOR) - exact_elbo(model, x, y, NOISE)
    # The noise is the same for both outputs, so their posteriors are one Kronecker product: the matrix normal is exact too.
    assert (
        float(gap.detach()) == pytest.approx(0.0, abs=1e-9)
        if posterior == "matrix_normal"
        else float(gap.detach()) > 1e-3
    )


def test_batches_and_target_scaling_change_nothing() -> None:
    """The read-out is summed over batches; a likelihood that scales its targets is another way to write the same model."""
    x, y = data()
    exact = log_evidence(x, (y - 1.0) / 2.0, NOISE, PRIOR) - y.numel() * math.log(2.0)
    model = hs.bayesianize(nn.Linear(5, 2), posterior="full_covariance", prior=PRIOR)
    lik = hs.Gaussian(NOISE * 4, loc=1.0, scale=2.0)
    hs.initialize_(model, "iblm", lik, [(x[:13], y[:13]), (x[13:], y[13:])])
    elbo = exact_elbo(model, x, (y - 1.0) / 2.0, NOISE) - y.numel() * math.log(2.0)
    assert float(elbo.detach()) == pytest.approx(float(exact), abs=1e-9)


def test_elbo_of_the_exact_posterior_is_stationary_in_every_parameter() -> None:
    x, y = data()
    model = hs.bayesianize(nn.Linear(5, 2), posterior="full_covariance", prior=PRIOR)
    hs.initialize_(model, "iblm", hs.Gaussian(NOISE), (x, y))
    exact_elbo(model, x, y, NOISE).backward()
    assert max(float(p.grad.abs().max()) for p in model.parameters()) < 1e-8
