"""Draws of several members at once equal the plain expressions, and those of each member alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headstart.kernels.fused import dense
from headstart.kernels.members import (
    Fold,
    dense_each,
    member_noise,
    perturb_each,
    plain_dense_each,
    plain_perturb_each,
)
from headstart.kernels.noise import Noise, Reused, fresh

pytestmark = pytest.mark.usefixtures("float64")
MEMBERS, ROWS, UNITS, INPUTS = 3, 5, 4, 6
FOLDS = {
    "entry": Fold(MEMBERS, 1, 4, shared=True),
    "entry-once": Fold(MEMBERS, 1, 1, shared=True),
    "along": Fold(MEMBERS, 4, 1, shared=False),
    "doubling": Fold(MEMBERS, 2, 2, shared=False),
    "odd": Fold(MEMBERS, 2, 3, shared=False),
    "odd-along": Fold(MEMBERS, 3, 1, shared=False),
}


def noise_of(kind: str, fold: Fold) -> Noise:
    return fresh if kind == "fresh" else Reused(fold.received * fold.branches, ROWS, MEMBERS)


def rows_of(fold: Fold) -> int:
    return ROWS if fold.shared else MEMBERS * fold.received * ROWS


def assert_same(one: Tensor, other: Tensor, inputs: list[Tensor]) -> None:
    """The same values, and the same gradients by these inputs."""
    torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)
    weights = torch.randn_like(one)
    found, expected = (torch.autograd.grad((f * weights).sum(), inputs) for f in (one, other))
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left, right, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["fresh", "antithetic"])
@pytest.mark.parametrize("name", FOLDS)
def test_dense(name: str, kind: str, bias: bool) -> None:
    fold = FOLDS[name]
    x = torch.randn(rows_of(fold), INPUTS, requires_grad=True)
    mean = torch.randn(MEMBERS * UNITS, INPUTS + bias, requires_grad=True)
    var = (torch.rand_like(mean) + 0.1).requires_grad_()
    noise = member_noise(noise_of(kind, fold), fold, (ROWS, UNITS), x)
    fused = dense_each(x, mean, var, noise, fold)
    assert fused.shape == (MEMBERS * fold.received * fold.branches * ROWS, UNITS)
    assert_same(fused, plain_dense_each(x, mean, var, noise, fold), [x, mean, var])


@pytest.mark.parametrize("name", ["entry", "along", "doubling"])
def test_dense_is_that_of_every_member_alone(name: str) -> None:
    fold = FOLDS[name]
    x = torch.randn(rows_of(fold), INPUTS)
    mean = torch.randn(MEMBERS * UNITS, INPUTS + 1)
    var = torch.rand_like(mean) + 0.1
    noise = member_noise(fresh, fold, (ROWS, UNITS), x)
    blocks = [x] * MEMBERS if fold.shared else list(x.chunk(MEMBERS))
    each = zip(blocks, mean.chunk(MEMBERS), var.chunk(MEMBERS), noise, strict=True)
    alone = [dense(part, m, v, e.flatten(0, 1), fold.branches) for part, m, v, e in each]
    torch.testing.assert_close(
        dense_each(x, mean, var, noise, fold), torch.cat(alone), atol=1e-12, rtol=1e-12
    )


@pytest.mark.parametrize("kind", ["fresh", "antithetic"])
@pytest.mark.parametrize("name", FOLDS)
def test_perturb_of_feature_maps(name: str, kind: str) -> None:
    fold = FOLDS[name]
    shape = ROWS, UNITS, 3, 2
    mean = torch.randn(MEMBERS, fold.received, *shape, requires_grad=True)
    var = torch.rand(MEMBERS, fold.received, *shape).requires_grad_()
    noise = member_noise(noise_of(kind, fold), fold, shape, mean)
    fused = perturb_each(mean, var, noise)
    assert_same(fused, plain_perturb_each(mean, var, noise), [mean, var])
    # Whoever gets the draws may work on them in place.
    perturb_each(mean, var, noise).relu_().sum().backward()


def test_antithetic_pairs_are_samples_of_one_member() -> None:
    fold = Fold(2, 1, 4, shared=True)
    noise = member_noise(Reused(4, 100, 2), fold, (100, 16), torch.empty(0))
    assert noise.shape == (2, 2, 2, 100, 16)
    assert torch.equal(noise[:, 0], -noise[:, 1])
    assert not torch.equal(noise[0], noise[1])
    # Members begin a little further on in the same numbers, as samples do.
    one, two = noise[0, 0, 0].flatten(), noise[1, 0, 0].flatten()
    assert torch.equal(one[23:], two[:-23])


@pytest.mark.parametrize("samples", [1, 3, 4])
def test_the_noise_of_each_member_is_standard_normal(samples: int) -> None:
    fold = Fold(3, 1, samples, shared=True)
    drawn = [
        member_noise(Reused(samples, 8, 3), fold, (8, 16), torch.empty(0)).reshape(
            3, samples, 8, 16
        )
        for _ in range(2000)
    ]
    noise = torch.stack(drawn)
    assert float(noise.mean(0).abs().max()) < 5 / 2000**0.5
    assert float((noise.square().mean(0) - 1).abs().max()) < 5 * (2 / 2000) ** 0.5


def test_a_row_of_zeros_has_a_finite_gradient() -> None:
    fold = Fold(2, 1, 2, shared=True)
    mean = torch.zeros(2 * UNITS, INPUTS, requires_grad=True)
    var = torch.ones(2 * UNITS, INPUTS).requires_grad_()
    noise = member_noise(fresh, fold, (3, UNITS), mean)
    dense_each(torch.zeros(3, INPUTS), mean, var, noise, fold).sum().backward()
    assert mean.grad is not None
    assert bool(torch.isfinite(mean.grad).all())


def test_within_a_transform_the_plain_expression_runs() -> None:
    fold = Fold(2, 1, 2, shared=True)
    mean, var, x = torch.randn(2 * UNITS, INPUTS), torch.ones(2 * UNITS, INPUTS), torch.ones(1, 6)
    noise = member_noise(fresh, fold, (1, UNITS), mean)
    jacobian = torch.func.jacrev(lambda m: dense_each(x, m, var, noise, fold))(mean)
    assert jacobian.shape == (4, UNITS, 2 * UNITS, INPUTS)
