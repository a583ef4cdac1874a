"""Convolutions of few rows equal those of torch, draw by draw, and lie as their inputs do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import headstart as hs
from headstart.kernels.few_rows import are_few, convolve_apart, convolve_shared, plain_convolve
from headstart.linalg.affine import affine, affine_each, split

pytestmark = pytest.mark.usefixtures("float64")
SETTINGS = [((1, 1), (0, 0), (1, 1)), ((2, 1), (1, 2), (1, 2))]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_they_are_the_plain_convolutions(settings: Any, rows: int, bias: bool) -> None:
    draws = torch.randn(8, 5, 3 * 3 * 2 + bias)
    x, each = torch.randn(rows, 3, 11, 9), torch.randn(8 * rows, 3, 11, 9)
    for run, given, shared in ((convolve_shared, x, True), (convolve_apart, each, False)):
        want = plain_convolve(given, draws, (3, 2), *settings, shared=shared)
        for order in (torch.contiguous_format, torch.channels_last):
            found = run(given.contiguous(memory_format=order), draws, (3, 2), *settings)
            torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-12)
            assert found.is_contiguous(memory_format=order)


@pytest.mark.parametrize(
    "op",
    [
        nn.Conv2d(4, 6, 3),
        nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, dilation=(1, 2), bias=False),
        nn.Conv2d(4, 6, 3, groups=2),
        nn.Conv2d(4, 6, 3, padding="same"),
        nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_every_convolution_of_few_rows_is_that_of_each_draw(op: nn.Conv2d, shared: bool) -> None:
    size = op.weight[0].numel() + (op.bias is not None)
    draws, x = torch.randn(9, 6, size), torch.randn(1 if shared else 9, 4, 7, 7)
    assert are_few(x, 9, shared)
    found = affine_each(op, x, draws, shared)
    rows = [x] * 9 if shared else x.chunk(9)
    want = [affine(op, each, *split(op, draw)) for each, draw in zip(rows, draws, strict=True)]
    torch.testing.assert_close(found, torch.cat(want), rtol=1e-12, atol=1e-12)


class Viewing(nn.Module):
    """A net that looks at its activations in the order that torch's convolutions give them."""

    def __init__(self) -> None:
        super().__init__()
        self.images, self.head = nn.Conv2d(1, 3, 3), nn.Linear(3 * 5 * 5, 2)

    def forward(self, x: torch.Tensor) -> Any:
        found = torch.relu(self.images(x))
        return self.head(found.view(len(found), -1))


@pytest.mark.parametrize("rows", [1, 2])
def test_nets_that_view_their_activations_predict_few_rows(rows: int) -> None:
    model, x = hs.bayesianize(Viewing()), torch.randn(rows, 1, 7, 7)
    plain = nn.Sequential(model.images, nn.ReLU(), nn.Flatten(), model.head)
    found, want = (
        hs.predict(net, hs.Categorical(2), x, samples=32, sampler="weights", seed=0).draws
        for net in (model, plain)
    )
    torch.testing.assert_close(found, want, rtol=1e-10, atol=1e-10)


def test_gradients_pass_through() -> None:
    model = hs.bayesianize(nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3)))
    x = torch.randn(1, 1, 7, 7, requires_grad=True)
    hs.draw(model, x, 16, "weights").square().sum().backward()
    assert float(model[0].posterior.logvar.grad.abs().min()) > 0
    assert float(x.grad.abs().min()) > 0
