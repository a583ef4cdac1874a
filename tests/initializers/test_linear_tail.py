"""Read-outs behind which a net mixes rows or positions: the exact regression all the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.initializers.linear_tail import is_linear_tail, tail_rows

pytestmark = pytest.mark.usefixtures("float64")


class Mixing(nn.Module):
    """`A (x W)` of a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        return adjacency @ self.head(x) + 1.0


class Upsampled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.interpolate(self.head(x), scale_factor=2.0, mode="bilinear")


def test_the_posterior_of_a_graph_is_that_of_the_mixed_rows() -> None:
    x, adjacency, y = torch.randn(20, 4), torch.rand(20, 20) / 10, torch.randn(20, 2)
    model = hs.bayesianize(Mixing(), posterior="full_covariance", prior=0.7)
    lik = hs.Gaussian(0.3, learn_noise=False)
    hs.initialize_(model, "iblm", lik, (hs.whole(x, adjacency), y))
    rows = adjacency @ torch.cat([x, torch.ones(20, 1)], 1)
    precision = rows.T @ rows / 0.3 + torch.eye(5) / 0.7
    mean = torch.linalg.solve(precision, rows.T @ (y - 1.0) / 0.3).T
    found = model.head.posterior
    torch.testing.assert_close(found.mean, mean, rtol=0, atol=1e-9)
    torch.testing.assert_close(
        found.variance(), precision.inverse().diagonal().expand(2, -1), rtol=0, atol=1e-9
    )


def test_an_interpolation_is_regressed_through() -> None:
    x = torch.randn(6, 3, 4, 4)
    y = torch.randn(6, 2, 8, 8)
    model = hs.bayesianize(Upsampled(), posterior="full_covariance", prior=0.7)
    lik = hs.PerPosition(hs.Gaussian(0.3, learn_noise=False), axis=1)
    hs.initialize_(model, "iblm", lik, (x, y))
    wide = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear").movedim(1, -1)
    rows = torch.cat([wide.reshape(-1, 3), torch.ones(6 * 64, 1)], 1)
    precision = rows.T @ rows / 0.3 + torch.eye(4) / 0.7
    mean = torch.linalg.solve(precision, rows.T @ y.movedim(1, -1).reshape(-1, 2) / 0.3).T
    torch.testing.assert_close(model.head.posterior.mean, mean, rtol=0, atol=1e-9)


def test_all_passes_have_the_same_draw_of_the_layers_before() -> None:
    """With a random body, the rows times the mean are the output of that draw."""

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.skip, self.head = nn.Linear(4, 5), nn.Linear(4, 2), nn.Linear(5, 2)

        def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
            added = self.skip(x)
            return adjacency @ self.head(self.body(x).tanh()) + added

    x = hs.whole(torch.randn(20, 4), torch.rand(20, 20) / 10)
    model = hs.bayesianize(Deep())
    model.head.posterior.logvar.data.fill_(-80.0)
    torch.manual_seed(3)
    rows, offset = tail_rows(model, model.head, x, "local")
    torch.manual_seed(3)
    with torch.no_grad(), hs.drawing(model, "local"):
        want = model(*x.args)
    found = rows[0] @ model.head.posterior.mean.detach().T + offset
    torch.testing.assert_close(found, want)


@pytest.mark.parametrize(
    ("tail", "linear"),
    [
        (lambda f: f, True),
        (lambda f: f.flip(0) - f, True),
        (lambda f: f.relu(), False),
        (lambda f: f.flip(-1), False),
        (lambda f: f * torch.tensor([1.0, 2.0]), False),
        (lambda f: f.cumsum(-1), False),
        (lambda f: 0 * f, False),
    ],
    ids=["same", "rows", "kink", "units exchanged", "units scaled", "units mixed", "lost"],
)
def test_what_is_linear_and_alike_for_units(tail: Any, linear: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return tail(self.head(x))

    model = hs.bayesianize(Net())
    assert is_linear_tail(model, model.head, torch.randn(5, 4)) is linear
