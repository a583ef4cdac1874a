"""Local reparameterization and weight sampling: the right laws, exactly and by fixed-n z-tests."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.func import jacrev

import headstart as hs
from headstart.kernels.noise import Reused
from headstart.linalg.affine import affine, split
from headstart.network.layer import Bayesian
from headstart.network.samplers import Local, Weights, local_moments, repeat_rows
from headstart.posteriors import LowRank
from tests.cases import LAYER_POSTERIOR, LAYERS, chain, layer, scramble_

pytestmark = pytest.mark.usefixtures("float64")
N = 4000


def jacobian_covariance(model: Bayesian, x: Tensor) -> Tensor:
    """Cov of the output for one input: J Cov(w) Jᵀ, since the output is linear in the weights."""
    q = model.posterior
    jacobian = (
        jacrev(lambda w: affine(model.op, x, *split(model.op, w)))(q.mean.detach())
        .flatten(-2)
        .flatten(0, -2)
    )
    if q.name == "matrix_normal":
        inputs, outputs = q.inputs.matrix(), q.outputs.matrix()
        cov = torch.kron(outputs @ outputs.T, inputs @ inputs.T)
    else:
        d, v = q.diagonal(), q.factors()
        dense = 0.0 if v is None else torch.einsum("rui,ruj->uij", v, v)
        cov = torch.block_diag(*(dense + (0.0 if d is None else torch.diag_embed(d))))
    return jacobian @ cov @ jacobian.T


@pytest.mark.parametrize(("name", "family"), LAYER_POSTERIOR)
def test_local_moments_are_the_jacobian_s(name: str, family: str) -> None:
    model, x = layer(name, family)
    mean, var = local_moments(model.op, model.posterior, x)
    with hs.drawing(model, "mean"):
        torch.testing.assert_close(mean, model(x))
    for row in range(len(x)):
        exact = jacobian_covariance(model, x[row : row + 1]).diagonal()
        torch.testing.assert_close(var[row].flatten(), exact, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(("name", "family"), LAYER_POSTERIOR)
@torch.no_grad()
def test_both_samplers_have_these_marginals(name: str, family: str) -> None:
    model, x = layer(name, family)
    mean, var = local_moments(model.op, model.posterior, x)
    for sampler in ("local", "weights"):
        draws = hs.draw(model, x, N, sampler)
        z_mean = (draws.mean(0) - mean) / (var / N).sqrt()
        z_var = ((draws - mean).square().mean(0) - var) / (var * (2 / N) ** 0.5)
        assert float(z_mean.abs().max()) < 5, sampler
        assert float(z_var.abs().max()) < 6, sampler


@pytest.mark.parametrize("family", ["mean_field", "full_covariance", "matrix_normal", "low_rank"])
@torch.no_grad()
def test_dense_layers_agree_in_the_whole_law(family: str) -> None:
    """For one row per example LRT is exact: units covary as by weights too."""
    model, x = layer("linear", family)
    exact = jacobian_covariance(model, x[:1])
    for sampler in ("local", "weights"):
        draws = hs.draw(model, x[:1], N, sampler)[:, 0]
        centered = draws - draws.mean(0)
        z = (centered.T @ centered / N - exact) / (
            (torch.outer(exact.diagonal(), exact.diagonal()) + exact.square()) / N
        ).sqrt()
        assert float(z.abs().max()) < 5, sampler


@torch.no_grad()
def test_convolutions_drop_the_covariance_between_positions() -> None:
    """Documented: weight sampling has it, LRT has the marginals only."""
    model, x = layer("conv1d")
    exact = jacobian_covariance(model, x[:1])
    correlation = exact / torch.outer(exact.diagonal(), exact.diagonal()).sqrt()
    off = ~torch.eye(len(exact), dtype=torch.bool)
    first, second = divmod(int((correlation.abs() * off).argmax()), len(exact))
    truth = float(correlation[first, second])
    assert abs(truth) > 0.3
    for sampler, expected in (("weights", truth), ("local", 0.0)):
        draws = hs.draw(model, x[:1], N, sampler)[:, 0].flatten(1)
        measured = float(torch.corrcoef(draws.T)[first, second])
        assert measured == pytest.approx(expected, abs=5 / N**0.5), sampler


@pytest.mark.parametrize("name", ["linear", "conv2d", "conv2d-groups"])
def test_branching_at_the_first_layer_equals_repeating_the_input(name: str) -> None:
    model, x = layer(name)
    torch.manual_seed(1)
    shared = Local(branches=4)(model.op, model.posterior, x)
    torch.manual_seed(1)
    repeated = Local()(model.op, model.posterior, repeat_rows(x, 4))
    torch.testing.assert_close(shared, repeated)
    draws = model.posterior.sample(4)
    torch.testing.assert_close(
        Weights(draws, enters=True)(model.op, model.posterior, x),
        Weights(draws)(model.op, model.posterior, repeat_rows(x, 4)),
    )


@pytest.mark.parametrize("sampler", ["local", "weights"])
def test_gradients_of_several_outputs_at_once(sampler: str) -> None:
    """`is_grads_batched` and `jacobian(vectorize=True)` go backward with one axis more."""
    model, x = hs.bayesianize(chain()), torch.randn(3, 4)
    f = hs.draw(model, x, 4, sampler, Reused(4, 3), averaged=True).flatten()
    parameters = list(model.parameters())
    eye = torch.eye(len(f))
    together = torch.autograd.grad(f, parameters, eye, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(f, parameters, row, retain_graph=True) for row in eye]
    for found, expected in zip(together, zip(*each, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(expected))


@torch.no_grad()
def test_diagonal_and_factors_have_noise_of_their_own_even_of_one_shape() -> None:
    model = hs.bayesianize(
        nn.Sequential(nn.Identity(), nn.Linear(3, 4, bias=True)), posterior=partial(LowRank, rank=4)
    )
    scramble_(model)
    # Both (samples, 4, 4).
    q, x = model[1].posterior, torch.randn(2, 3)
    draws = hs.draw(model, x, N, "weights", averaged=True)
    truth = (
        torch.einsum("ruf,bf->bru", q.factors(), torch.cat([x, torch.ones(2, 1)], 1))
        .square()
        .sum(1)
    )
    truth = truth + torch.cat([x.square(), torch.ones(2, 1)], 1) @ q.diagonal().T
    assert float(((draws.var(0) / truth).log() / (2 / N) ** 0.5).abs().max()) < 4.5


def test_a_row_of_zeros_without_bias_has_a_finite_gradient() -> None:
    model, _ = layer("linear-no-bias")
    hs.draw(model, torch.zeros(2, 4), 3).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_every_layer_of_the_table_is_a_case() -> None:
    assert {name for name, _ in LAYER_POSTERIOR} == set(LAYERS)


def test_local_draws_of_a_matrix_normal_have_the_gradient_of_their_law() -> None:
    """`E f_0 f_1 = V_01 · x̃ᵀUx̃` at mean zero, V_01 = l_00 l_10: by l_10 it is l_00 · x̃ᵀUx̃."""
    model, x = (
        hs.bayesianize(nn.Linear(3, 2), posterior="matrix_normal"),
        torch.tensor([[1.0, -2.0, 0.5]]),
    )
    scramble_(model)
    posterior = model.posterior
    torch.nn.init.zeros_(posterior.mean)
    n = 20_000
    torch.manual_seed(3)
    f = hs.draw(model, x, n, "local").squeeze(1)
    product = f[:, 0] * f[:, 1]
    (gradient,) = torch.autograd.grad(product.mean(), posterior.outputs.lower)
    with torch.no_grad():
        quadratic = (torch.cat([x[0], torch.ones(1)]) @ posterior.inputs.matrix()).square().sum()
        expected = posterior.outputs.matrix()[0, 0] * quadratic
        # ∂(f_0 f_1)/∂l_10 = f_0 · ε_0 √(x̃ᵀUx̃) = f_0² / l_00, with sd √2 times its mean.
        assert abs(float((gradient[1, 0] - expected) / (expected * (2 / n) ** 0.5))) < 4
