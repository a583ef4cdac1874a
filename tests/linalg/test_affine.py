"""The two verbs equal the stock layers and fit each other, for every case."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.linalg.affine import (
    affine,
    channel_axis,
    design,
    fan_in,
    fan_out,
    flatten,
    groups,
    split,
)
from tests.cases import LAYERS

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("name", LAYERS)
def test_affine_with_its_own_weights_is_the_stock_layer(name: str) -> None:
    op = LAYERS[name].make()
    x = torch.randn(3, *LAYERS[name].shape)
    torch.testing.assert_close(affine(op, x, op.weight, op.bias), op(x), atol=0, rtol=0)


@pytest.mark.parametrize("side", [2, 5])
def test_small_maps_of_many_channels_are_convolved_however_they_lie(side: int) -> None:
    op = torch.nn.Conv2d(256, 3, 3, padding=1)
    x = torch.randn(2, 256, side, side)
    apart = x.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(affine(op, apart, op.weight, op.bias), op(x), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", LAYERS)
def test_flatten_and_split_are_inverse(name: str) -> None:
    op = LAYERS[name].make()
    weight, bias = split(op, flatten(op, op.weight, op.bias))
    torch.testing.assert_close(weight, op.weight)
    assert (bias is None) == (op.bias is None)
    if bias is not None:
        torch.testing.assert_close(bias, op.bias)


@pytest.mark.parametrize("name", LAYERS)
def test_design_times_weights_is_the_layer(name: str) -> None:
    op = LAYERS[name].make()
    x = torch.randn(3, *LAYERS[name].shape)
    rows = design(op, x)
    matrix = flatten(op, op.weight, op.bias)
    assert rows.shape[:2] == (groups(op), 3)
    assert rows.shape[-1] == fan_in(op)
    weights = matrix[:, : fan_in(op)].unflatten(0, (groups(op), -1))
    out = torch.einsum("gnpd,gud->ngup", rows, weights).flatten(1, 2)
    if op.bias is not None:
        out = out + op.bias.unsqueeze(-1)
    expected = op(x).movedim(channel_axis(op), 1).flatten(2) if x.ndim > 2 else op(x).unsqueeze(-1)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("name", LAYERS)
def test_design_at_some_positions_is_a_part_of_the_whole(name: str) -> None:
    op = LAYERS[name].make()
    x = torch.randn(3, *LAYERS[name].shape)
    whole = design(op, x)
    at = torch.randint(whole.shape[2], (3, 4))
    expected = torch.stack([whole[:, n, at[n]] for n in range(3)], dim=1)
    torch.testing.assert_close(design(op, x, at), expected, rtol=0, atol=0)


@pytest.mark.parametrize("mode", ["zeros", "circular", "reflect", "replicate"])
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_padding_by_name_is_the_stock_layers(dims: int, padding: str, mode: str) -> None:
    """Where a kernel has no middle, more is added after than before; torch warns with zeros."""
    kernel = (5, 3, 3) if mode == "zeros" else (4, 3, 2)
    kind = getattr(torch.nn, f"Conv{dims}d")
    op = kind(2, 3, kernel[:dims], padding=padding, padding_mode=mode)
    x = torch.randn(2, 2, *(8, 7, 6)[:dims])
    torch.testing.assert_close(affine(op, x, op.weight, op.bias), op(x), atol=0, rtol=0)
    out = torch.einsum("gnpd,gud->ngup", design(op, x), flatten(op, op.weight, None).unsqueeze(0))
    bias = op.bias.view(-1, *[1] * dims)
    torch.testing.assert_close(out.flatten(1, 2) + bias.flatten(1), op(x).flatten(2))


def test_linear_on_sequences_counts_positions() -> None:
    op = torch.nn.Linear(5, 3)
    assert design(op, torch.randn(2, 7, 5)).shape == (1, 2, 7, 5)


def test_fans_of_a_grouped_convolution() -> None:
    op = torch.nn.Conv2d(4, 6, (2, 3), groups=2)
    assert (fan_in(op), fan_out(op)) == (2 * 6, 3 * 6)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[torch.nn.Module, torch.Tensor]:
    """Any convolution of up to three dimensions, and an input it can take."""
    dims, groups, transposed = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.booleans())
    kernel, stride, dilation = ([draw(st.integers(1, 3)) for _ in range(dims)] for _ in range(3))
    mode = (
        "zeros"
        if transposed
        else draw(st.sampled_from(["zeros", "circular", "reflect", "replicate"]))
    )
    padding = [draw(st.integers(0, 1)) for _ in range(dims)]
    kind = getattr(torch.nn, f"Conv{'Transpose' * transposed}{dims}d")
    op = kind(
        groups * draw(st.integers(1, 2)),
        groups * draw(st.integers(1, 2)),
        tuple(kernel),
        stride=tuple(stride),
        padding=tuple(padding),
        dilation=tuple(dilation),
        groups=groups,
        bias=draw(st.booleans()),
        padding_mode=mode,
    )
    sizes = [
        d * (k - 1) + 1 + draw(st.integers(2, 4)) for d, k in zip(dilation, kernel, strict=True)
    ]
    return op, torch.randn(2, op.in_channels, *sizes)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(convolutions())
def test_any_convolution_is_its_design_times_its_weights(
    case: tuple[torch.nn.Module, torch.Tensor],
) -> None:
    op, x = case
    weights = flatten(op, op.weight, None).unflatten(0, (groups(op), -1))
    out = torch.einsum("gnpd,gud->ngup", design(op, x), weights).flatten(1, 2)
    torch.testing.assert_close(out, affine(op, x, op.weight, None).flatten(2))
