"""The Bayesian linear model against independent oracles, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import DotProduct
from sklearn.linear_model import BayesianRidge
from torch import Tensor
from torch.distributions import MultivariateNormal

from headstart.linalg import blm
from headstart.linalg.blm import Statistics, log_evidence, solve_blm, weighted_gram

pytestmark = pytest.mark.usefixtures("float64")
PRIOR_VAR = 0.6
SHAPES = {"primal": (20, 4), "dual": (5, 12)}


def problem(rows: int, size: int, units: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, targets, and a noise that differs by row and by unit."""
    return torch.randn(rows, size), torch.randn(rows, units), 0.2 + torch.rand(rows, units)


def gp(x: Tensor, t: Tensor, v: Tensor) -> GaussianProcessRegressor:
    """The same model by another road: a Gaussian process with a linear kernel and per-row noise."""
    kernel = PRIOR_VAR * DotProduct(sigma_0=0.0, sigma_0_bounds="fixed")
    kernel.k1.constant_value_bounds = "fixed"
    return GaussianProcessRegressor(kernel, alpha=v.numpy(), optimizer=None).fit(
        x.numpy(), t.numpy()
    )


@pytest.mark.parametrize("side", SHAPES)
def test_blm_predictive_and_evidence_equal_a_gp(side: str) -> None:
    x, t, v = problem(*SHAPES[side])
    new = torch.randn(7, x.shape[1])
    posterior = solve_blm(x, t, v, PRIOR_VAR)
    evidence = log_evidence(x, t, v, PRIOR_VAR)
    for unit in range(t.shape[1]):
        oracle = gp(x, t[:, unit], v[:, unit])
        mean, cov = oracle.predict(new.numpy(), return_cov=True)
        np.testing.assert_allclose(new @ posterior.mean[unit], mean, atol=1e-8)
        np.testing.assert_allclose(new @ posterior.covariance()[unit] @ new.T, cov, atol=1e-8)
        assert float(evidence[unit]) == pytest.approx(
            oracle.log_marginal_likelihood_value_, abs=1e-8
        )


@pytest.mark.parametrize("side", SHAPES)
def test_blm_equals_bayesian_ridge_with_pinned_hyperpriors(side: str) -> None:
    x, t, _ = problem(*SHAPES[side], units=1)
    noise = 0.3
    # Gamma hyperpriors so sharp that they leave no freedom.
    pin = 1e13
    ridge = BayesianRidge(
        fit_intercept=False,
        alpha_1=pin,
        alpha_2=pin * noise,
        lambda_1=pin,
        lambda_2=pin * PRIOR_VAR,
        alpha_init=1 / noise,
        lambda_init=1 / PRIOR_VAR,
    ).fit(x.numpy(), t[:, 0].numpy())
    posterior = solve_blm(x, t, torch.full_like(t, noise), PRIOR_VAR)
    np.testing.assert_allclose(posterior.mean[0], ridge.coef_, atol=1e-8)
    np.testing.assert_allclose(posterior.covariance()[0], ridge.sigma_, atol=1e-8)


def test_primal_and_dual_are_one_posterior() -> None:
    x, t, v = problem(5, 12)
    prior_mean = torch.randn(12)
    dual = solve_blm(x, t, v, PRIOR_VAR, prior_mean)
    # Rows without information, to get past N >= D.
    padding = 10.0**12 * torch.ones(10, t.shape[1])
    primal = solve_blm(
        torch.cat([x, torch.randn(10, 12)]),
        torch.cat([t, torch.zeros_like(padding)]),
        torch.cat([v, padding]),
        PRIOR_VAR,
        prior_mean,
    )
    for name in (
        "precision_diagonal",
        "covariance_diagonal",
        "precision",
        "covariance",
        "scale_tril",
    ):
        torch.testing.assert_close(
            getattr(dual, name)(), getattr(primal, name)(), atol=1e-8, rtol=1e-8
        )
    torch.testing.assert_close(dual.mean, primal.mean, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("side", SHAPES)
def test_shared_noise_is_solved_once_and_equals_each_unit_alone(side: str) -> None:
    x, t, v = problem(*SHAPES[side])
    shared = solve_blm(x, t, v[:, :1], PRIOR_VAR)
    alone = solve_blm(x, t, v[:, :1].expand_as(t).contiguous(), PRIOR_VAR)
    assert shared.precision().shape[0] == 1
    torch.testing.assert_close(shared.mean, alone.mean)
    torch.testing.assert_close(shared.covariance_diagonal(), alone.covariance_diagonal())


def test_class_noise_needs_one_gram_per_class() -> None:
    x = torch.randn(50, 4)
    per_class = torch.rand(3, 6) + 0.1
    noise = per_class[torch.randint(3, (50,))]
    torch.testing.assert_close(
        weighted_gram(x, noise), torch.einsum("nd,nu,ne->ude", x, 1 / noise, x)
    )


def test_evidence_is_the_density_of_the_targets() -> None:
    for rows, size in SHAPES.values():
        x, t, v = problem(rows, size)
        for unit in range(t.shape[1]):
            cov = torch.diag(v[:, unit]) + PRIOR_VAR * x @ x.T
            direct = MultivariateNormal(torch.zeros(rows), cov).log_prob(t[:, unit])
            torch.testing.assert_close(
                log_evidence(x, t, v, PRIOR_VAR)[unit], direct, atol=1e-9, rtol=0
            )


def test_large_grams_are_summed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both triangles, over batches of any size, with noise that units share or not."""
    monkeypatch.setattr(blm, "GRAM_BLOCK", 4)
    monkeypatch.setattr(blm, "WEIGHTED_BUDGET", 100)
    x, t, varied = problem(60, 11, units=5)
    by_class = torch.tensor([[0.5], [2.0]])[torch.arange(60) % 2]
    for noise in (varied, by_class, torch.full((60, 1), 0.3)):
        statistics = Statistics()
        for part in torch.arange(60).split(23):
            statistics.add(x[part], t[part], noise[part])
        expected = torch.stack([x.T @ torch.diag(1 / v) @ x for v in noise.T])
        torch.testing.assert_close(statistics.gram(), expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(statistics.moment(), (t / noise).T @ x, rtol=1e-12, atol=1e-12)


def test_an_empty_shard_adds_nothing() -> None:
    x, t, v = (
        torch.randn(9, 2).double(),
        torch.randn(9, 3).double(),
        torch.full((9, 1), 0.5).double(),
    )
    plain, empty = Statistics(), Statistics()
    for statistics, parts in ((plain, [slice(0, 9)]), (empty, [slice(0, 0), slice(0, 9)])):
        for rows in parts:
            statistics.add(x[rows], t[rows], v[rows])
    torch.testing.assert_close(plain.solve(2.0).mean, empty.solve(2.0).mean)
