"""The two verbs agree with the stock layers and with each other, for every row of the case table."""

from __future__ import annotations

import pytest
import torch

from headstart.affine import affine, channel_axis, design, fan_in, fan_out, flatten, groups, split
from tests.cases import LAYERS

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("name", LAYERS)
def test_affine_with_its_own_weights_is_the_stock_layer(name: str) -> None:
    op = LAYERS[name].make()
    x = torch.randn(3, *LAYERS[name].shape)
    torch.testing.assert_close(affine(op, x, op.weight, op.bias), op(x), atol=0, rtol=0)


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


def test_linear_on_sequences_counts_positions() -> None:
    op = torch.nn.Linear(5, 3)
    assert design(op, torch.randn(2, 7, 5)).shape == (1, 2, 7, 5)


def test_fans_of_a_grouped_convolution() -> None:
    op = torch.nn.Conv2d(4, 6, (2, 3), groups=2)
    assert (fan_in(op), fan_out(op)) == (2 * 6, 3 * 6)
