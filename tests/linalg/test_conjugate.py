"""Natural-gradient steps: exact for Gaussian observations, joint over units, never downhill."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from headstart.linalg.blm import solve_blm
from headstart.linalg.conjugate import Climb, Observations, WeightPrior, best_isotropic, joint_step
from headstart.linalg.gaussians import Primal
from headstart.training.natural_gradient import stratified

pytestmark = pytest.mark.usefixtures("float64")


def standard(units: int, size: int, precision: float = 1.0) -> WeightPrior:
    eye = torch.eye(size).expand(units, size, size)
    return WeightPrior(torch.zeros(units, size), precision * eye)


def gaussian_rows(x: Tensor, t: Tensor, noise: float) -> Observations:
    """Observations t ~ N(f, noise)."""
    return Observations(
        x.unsqueeze(0),
        torch.zeros_like(t),
        1.0,
        stratified(4, t),
        lambda f: -0.5 * (t - f).square().sum(-1) / noise,
        lambda f: ((t - f) / noise, torch.full_like(f, 1 / noise)),
    )


def test_one_step_solves_gaussian_observations() -> None:
    x, t = torch.randn(30, 4), torch.randn(30, 2)
    prior = standard(2, 4, 1 / 0.7)
    start = Primal(3 * torch.eye(4).repeat(2, 1, 1), torch.randn(2, 4))
    found, _, _ = Climb(gaussian_rows(x, t, 0.3), False, 1000, 1e-6, joint=True).run(start, prior)
    expected = solve_blm(x, t, torch.full((30, 1), 0.3), 0.7)
    assert torch.allclose(found.precision(), expected.precision(), atol=1e-9)
    # The mean of the noise is not exactly zero, that of its antithetic limit is.
    assert torch.allclose(found.mean, expected.mean, atol=0.05)


def test_kl_of_a_state_is_torch_s() -> None:
    rows = torch.randn(2, 9, 4)
    state = Primal(rows.mT @ rows, torch.randn(2, 4))
    prior = WeightPrior(torch.randn(2, 4), rows.mT @ rows + torch.eye(4))
    q, p = (
        MultivariateNormal(mean, precision_matrix=precision)
        for mean, precision in (
            (state.mean, state.precision()),
            (prior.mean, prior.precision),
        )
    )
    assert float(prior.kl(state)) == pytest.approx(float(kl_divergence(q, p).sum()), abs=1e-9)


def test_a_joint_step_solves_all_units_together() -> None:
    rows = torch.randn(20, 6)
    whole = rows.T @ rows + torch.eye(6)
    blocks = torch.stack([whole[:3, :3], whole[3:, 3:]])
    slope = torch.randn(2, 3)
    found = joint_step(
        slope, lambda w: (whole @ w.flatten()).unflatten(0, (2, 3)), Primal(blocks, slope)
    )
    assert torch.allclose(found.flatten(), torch.linalg.solve(whole, slope.flatten()), atol=1e-2)


def test_no_step_against_the_curvature() -> None:
    slope = torch.randn(1, 3)
    found = joint_step(slope, lambda w: -w, Primal(torch.eye(3).unsqueeze(0), slope))
    assert torch.equal(found, torch.zeros(1, 3))


def test_curvature_between_units_is_that_of_the_softmax() -> None:
    x, y = torch.randn(12, 3), torch.randint(4, (12,))
    rows = Observations(
        x.unsqueeze(0),
        torch.zeros(12, 4),
        2.0,
        torch.zeros(1, 12, 4),
        lambda f: f.log_softmax(-1).gather(-1, y.expand(f.shape[:-1]).unsqueeze(-1)).squeeze(-1),
        lambda f: (f, f),
    )
    mean, along = torch.randn(4, 3), torch.randn(4, 3)
    f = rows.outputs(mean, torch.zeros(4, 3, 3))
    assert torch.allclose(f[0], x @ mean.T)
    p = f[0].softmax(-1)
    inner = x @ along.T
    expected = 2 * (p * inner - p * (p * inner).sum(-1, keepdim=True)).T @ x
    assert torch.allclose(rows.products(f)(along), expected, atol=1e-10)


def test_the_best_variance_of_a_prior_has_no_slope() -> None:
    x = torch.randn(40, 5)
    t = x @ torch.randn(5, 2) + torch.randn(40, 2)
    gram, moment = (x.T @ x).expand(2, 5, 5), t.T @ x
    found = best_isotropic(gram, moment, standard(2, 5))
    # There the variance is the mean of E w²: the fixed point of EM.
    q = Primal(gram + found.precision, moment)
    second = q.mean.square() + torch.linalg.inv(q.precision()).diagonal(dim1=-2, dim2=-1)
    assert 1 / float(found.precision[0, 0, 0]) == pytest.approx(float(second.mean()), rel=1e-5)


def test_stratified_noise_has_a_number_in_every_part_of_the_line() -> None:
    drawn = stratified(8, torch.zeros(50, 3))
    parts = (torch.special.ndtr(drawn) * 8).floor().sort(0).values
    assert torch.equal(parts, torch.arange(8.0).reshape(8, 1, 1).expand(8, 50, 3))
    assert float(drawn.var()) == pytest.approx(1.0, abs=0.1)
