"""The fused inner loops equal the plain expressions, in value and in gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from headstart.kernels import private as torch_private
from headstart.kernels.fused import dense, dense_by_weights, isotropic_kl, perturb
from headstart.kernels.plain import (
    IsotropicKL,
    plain_dense,
    plain_dense_by_weights,
    plain_isotropic_kl,
    plain_perturb,
)

pytestmark = pytest.mark.usefixtures("float64", "torch_names")


def parameter(*shape: int) -> Tensor:
    return torch.randn(shape).requires_grad_()


def variance(*shape: int) -> Tensor:
    return (0.1 + torch.rand(shape)).requires_grad_()


def assert_same(found: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(found)
    for mine, theirs in zip(
        torch.autograd.grad(found, inputs, weight),
        torch.autograd.grad(expected, inputs, weight),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


def noise_for(samples: int, *shape: int, half: bool) -> Tensor:
    """For all samples, folded together; or on axes of their own, half minus the others."""
    if not half:
        return torch.randn(samples * shape[0], *shape[1:])
    size = math.prod(shape)
    numbers = torch.randn(1, size + samples)
    return (
        torch.cat([numbers, -numbers])
        .unfold(1, size, 1)[:, : samples // 2]
        .view(2, samples // 2, *shape)
    )


@pytest.mark.parametrize(("samples", "half"), [(1, False), (5, False), (6, True)])
@pytest.mark.parametrize("shape", [(7, 3), (2, 3, 4, 5)])
def test_perturb(samples: int, half: bool, shape: tuple[int, ...]) -> None:
    mean, var = parameter(*shape), torch.rand(shape).requires_grad_()
    noise = noise_for(samples, *shape, half=half)
    before = noise.clone()
    assert_same(
        perturb(mean, var, noise, samples), plain_perturb(mean, var, noise, samples), [mean, var]
    )
    first = noise[0, 0] if half else noise[: shape[0]]
    torch.testing.assert_close(
        plain_perturb(mean, var, noise, samples)[: shape[0]], mean + var.sqrt() * first
    )
    assert torch.equal(noise, before)


@pytest.mark.parametrize(("received", "drawn"), [(4, 2), (2, 4), (6, 2)])
@pytest.mark.parametrize("kind", ["perturb", "dense"])
def test_samples_that_come_in_are_drawn_from_again(received: int, drawn: int, kind: str) -> None:
    """The rows of some samples come in, several of each go out: all, then all with other noise."""
    rows, units, samples = 5, 3, received * drawn
    noise = noise_for(samples, rows, units, half=True)
    if kind == "perturb":
        mean, var = parameter(received * rows, units), variance(received * rows, units)
        out, inputs = perturb(mean, var, noise, drawn), [mean, var]
        assert_same(out, plain_perturb(mean, var, noise, drawn), inputs)
    else:
        x, weight, spread = parameter(received * rows, 4), parameter(units, 5), variance(units, 5)
        out, inputs = dense(x, weight, spread, noise, drawn), [x, weight, spread]
        assert_same(out, plain_dense(x, weight, spread, noise, drawn), inputs)
        mean, var = x @ weight[:, :4].T + weight[:, 4], x.square() @ spread[:, :4].T + spread[:, 4]
    # The last sample that came in, drawn from for the last time.
    last = mean[-rows:] + var[-rows:].sqrt() * noise[1, -1]
    torch.testing.assert_close(out[-rows:], last)


def test_perturb_of_samples_that_are_folded_already() -> None:
    """The rows of four samples come in; the noise of the last two is minus that of the first."""
    mean, var, noise = (
        parameter(12, 2),
        torch.rand(12, 2).requires_grad_(),
        noise_for(4, 3, 2, half=True),
    )
    assert_same(perturb(mean, var, noise), plain_perturb(mean, var, noise, 1), [mean, var])
    spread = ((perturb(mean, var, noise) - mean) / var.sqrt()).detach()
    torch.testing.assert_close(spread, noise.flatten(0, 2))


def test_noise_that_depends_on_parameters_gets_its_gradient() -> None:
    mean, var, noise = parameter(4, 3), torch.rand(4, 3).requires_grad_(), parameter(8, 3)
    assert_same(
        perturb(mean, var, noise, 2), plain_perturb(mean, var, noise, 2), [mean, var, noise]
    )


@pytest.mark.parametrize(("samples", "half"), [(1, False), (5, False), (6, True)])
@pytest.mark.parametrize("bias", [True, False])
def test_dense(samples: int, half: bool, bias: bool) -> None:
    x, mean, var = parameter(7, 4), parameter(3, 4 + bias), variance(3, 4 + bias)
    noise = noise_for(samples, 7, 3, half=half)
    assert_same(
        dense(x, mean, var, noise, samples),
        plain_dense(x, mean, var, noise, samples),
        [x, mean, var],
    )
    first = noise[0, 0] if half else noise[:7]
    by_hand = (
        x @ mean[:, :4].T + (x.square() @ var[:, :4].T + (var[:, 4] if bias else 0)).sqrt() * first
    )
    torch.testing.assert_close(
        dense(x, mean, var, noise, samples)[:7], by_hand + (mean[:, 4] if bias else 0)
    )


@pytest.mark.parametrize("bias", [True, False])
def test_dense_of_samples_that_are_folded_already(bias: bool) -> None:
    x, mean, var = parameter(12, 4), parameter(3, 4 + bias), variance(3, 4 + bias)
    noise = noise_for(4, 3, 3, half=True)
    assert_same(dense(x, mean, var, noise), plain_dense(x, mean, var, noise, 1), [x, mean, var])


@pytest.mark.parametrize(("samples", "half"), [(1, False), (5, False), (6, True)])
@pytest.mark.parametrize("bias", [True, False])
def test_draws_without_gradients_are_the_same_to_the_bit(
    samples: int, half: bool, bias: bool
) -> None:
    x, mean, var = parameter(7, 4), parameter(3, 4 + bias), variance(3, 4 + bias)
    wide, narrow = (noise_for(samples, rows, 3, half=half) for rows in (7, 4 + bias))
    before = wide.clone(), narrow.clone()

    def found(own: bool = False) -> list[Tensor]:
        each = narrow.clone() if own else narrow
        by_weights = perturb(mean.T, var.T, each, samples, own)
        return [dense(x, mean, var, wide, samples), by_weights]

    with torch.no_grad():
        without, own = found(), found(own=not half)
    for mine, other, expected in zip(without, own, found(), strict=True):
        assert torch.equal(mine, expected)
        assert torch.equal(other, expected)
    assert torch.equal(wide, before[0])
    assert torch.equal(narrow, before[1])


@pytest.mark.parametrize(("samples", "half"), [(2, True), (5, False), (6, True)])
@pytest.mark.parametrize("bias", [True, False])
def test_dense_by_weights(samples: int, half: bool, bias: bool) -> None:
    x, mean, var = parameter(samples * 7, 4), parameter(3, 4 + bias), variance(3, 4 + bias)
    noise = noise_for(samples, 1, 3, 4 + bias, half=half)
    assert_same(
        dense_by_weights(x, mean, var, noise, samples),
        plain_dense_by_weights(x, mean, var, noise, samples),
        [x, mean, var],
    )
    weights = mean + var.sqrt() * (noise[0, -1] if half else noise[-1])
    sample = samples // 2 - 1 if half else samples - 1
    rows = x[7 * sample : 7 * sample + 7]
    by_hand = rows @ weights.view(3, -1)[:, :4].T + (weights.view(3, -1)[:, 4] if bias else 0)
    torch.testing.assert_close(
        dense_by_weights(x, mean, var, noise, samples)[7 * sample : 7 * sample + 7], by_hand
    )


def test_gradients_can_be_taken_twice_over_but_not_of_gradients() -> None:
    x, mean, var, noise = parameter(6, 4), parameter(3, 5), variance(3, 5), torch.randn(6, 3)
    for out in (
        dense(x, mean, var, noise),
        dense_by_weights(x, mean, var, torch.randn(2, 3, 5), 2),
    ):
        first, second = (
            torch.autograd.grad(out.sum(), [mean, var], retain_graph=True) for _ in range(2)
        )
        torch.testing.assert_close(first, second, rtol=0, atol=0)
        (by_mean,) = torch.autograd.grad(out.square().sum(), mean, create_graph=True)
        if torch_private.transforming():
            by_mean.sum().backward()
            continue
        with pytest.raises(RuntimeError, match="once_differentiable"):
            by_mean.sum().backward()


@pytest.mark.parametrize("bias", [True, False])
def test_a_row_of_zeros_has_a_finite_gradient(bias: bool) -> None:
    x, mean = torch.zeros(2, 4).requires_grad_(), parameter(3, 4 + bias)
    var = torch.full((3, 4 + bias), torch.finfo(torch.get_default_dtype()).tiny).requires_grad_()
    dense(x, mean, var, torch.randn(2, 3)).sum().backward()
    for tensor in (x, mean, var):
        assert tensor.grad is not None
        assert bool(tensor.grad.isfinite().all())


def layers_of_an_isotropic_prior() -> tuple[list[Tensor], list[Tensor]]:
    return [parameter(3, 4), parameter(2, 5)], [parameter(3, 4), parameter(2, 5)]


def test_isotropic_kl() -> None:
    means, logvars = layers_of_an_isotropic_prior()
    found, expected = (
        isotropic_kl(means, logvars, 0.3).kl,
        plain_isotropic_kl(means, logvars, 0.3).kl,
    )
    assert_same(found, expected, [*means, *logvars])
    law = [
        torch.distributions.Normal(m.flatten(), (0.5 * v).exp().flatten())
        for m, v in zip(means, logvars, strict=True)
    ]
    prior = torch.distributions.Normal(0.0, 0.3**0.5)
    by_torch = torch.stack([torch.distributions.kl_divergence(q, prior).sum() for q in law]).sum()
    torch.testing.assert_close(found, by_torch)


@pytest.mark.parametrize("width", [784, 1500])
def test_the_kl_of_a_wide_layer_keeps_its_digits(width: int) -> None:
    """In float32, of a posterior that is its prior, where sums of a million numbers cancel."""
    mean = torch.zeros(width, width, dtype=torch.float32)
    logvar = torch.full_like(mean, -math.log(width))
    assert abs(float(isotropic_kl([mean], [logvar], 1 / width).kl)) < 1e-5 * mean.numel()
    mean.normal_()
    found, exact = (
        isotropic_kl([m], [v], 0.3).kl
        for m, v in ((mean, logvar), (mean.double(), logvar.double()))
    )
    assert float(found) == pytest.approx(float(exact), rel=1e-6)


def test_many_gradients_at_once() -> None:
    means, logvars = layers_of_an_isotropic_prior()
    found = isotropic_kl(means, logvars, 0.3)
    loss, weights = found.kl + found.variances[0].sin().sum(), torch.tensor([1.0, 2.0, -1.0])
    batched = torch.autograd.grad(loss, logvars, weights, is_grads_batched=True, retain_graph=True)
    for k, weight in enumerate(weights):
        single = torch.autograd.grad(loss, logvars, weight, retain_graph=True)
        torch.testing.assert_close([each[k] for each in batched], list(single))


def test_nothing_goes_back_through_what_is_frozen() -> None:
    means, logvars = layers_of_an_isotropic_prior()
    means[0].requires_grad_(False)
    logvars[0].requires_grad_(False)
    found = isotropic_kl(means, logvars, 0.3)
    assert [each.requires_grad for each in (*found.means, *found.variances)] == [
        False,
        True,
        False,
        True,
    ]
    (found.kl + found.means[1].sum()).backward()
    torch.testing.assert_close(means[1].grad, means[1].detach() / 0.3 + 1)


USES = {
    "the KL and all moments": (True, (0, 1), (0, 1)),
    "a layer that is not called": (True, (1,), (1,)),
    "means alone": (True, (0, 1), ()),
    "draws alone": (False, (0, 1), (0, 1)),
    "one layer's draws alone": (False, (1,), (0,)),
}


@pytest.mark.parametrize("use", USES)
def test_moments_that_share_their_gradient_with_the_kl(use: str) -> None:
    with_kl, which_means, which_variances = USES[use]
    means, logvars = layers_of_an_isotropic_prior()

    def loss(found: IsotropicKL) -> Tensor:
        drawn = [found.means[k].sin().sum() for k in which_means] + [
            found.variances[k].cos().sum() for k in which_variances
        ]
        return torch.stack(drawn).sum() + (0.7 * found.kl if with_kl else 0)

    every = [*means, *logvars]
    found, expected = (
        torch.autograd.grad(
            loss(kind(means, logvars, 0.3)), every, allow_unused=True, materialize_grads=True
        )
        for kind in (isotropic_kl, plain_isotropic_kl)
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_the_parts_of_a_shared_loss_have_their_own_gradients() -> None:
    means, logvars = layers_of_an_isotropic_prior()
    found, every = isotropic_kl(means, logvars, 0.3), [*means, *logvars]
    drawn = found.means[0].sin().sum() + found.variances[1].cos().sum()
    parts = [
        torch.autograd.grad(part, every, retain_graph=True, materialize_grads=True)
        for part in (drawn, found.kl)
    ]
    together = torch.autograd.grad(drawn + found.kl, every)
    torch.testing.assert_close([a + b for a, b in zip(*parts, strict=True)], list(together))


def test_per_example_gradients() -> None:
    """`torch.func`'s vmap of grad goes the plain way."""
    x, mean, var = torch.randn(6, 4), torch.randn(3, 5), torch.rand(3, 5)
    noise = torch.randn(6, 1, 3)

    def loss(mean: Tensor, x: Tensor, noise: Tensor) -> Tensor:
        return dense(x.unsqueeze(0), mean, var, noise).square().sum()

    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(mean, x, noise)
    expected = torch.stack(
        [torch.func.grad(loss)(mean, a, n) for a, n in zip(x, noise, strict=True)]
    )
    torch.testing.assert_close(found, expected)
