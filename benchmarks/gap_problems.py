"""Problems of `gap.py`: rows with a gap, and points inside the data, in the gap and far away."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import headstart as hs

FRESH = 2000
"""New rows inside the data."""


@dataclass(frozen=True)
class Problem:
    """Rows to learn from, and points inside, in the gap and at three times the range."""

    x: Tensor
    y: Tensor
    points: dict[str, Tensor]
    noise: float | None
    """The noise variance; None for classes 0 and 1."""
    fresh: tuple[Tensor, Tensor] | None = None
    """New rows inside the data."""

    @property
    def data(self) -> tuple[Tensor, Tensor]:
        """The rows as `fit` takes them."""
        return self.x, self.y if self.noise is None else self.y.unsqueeze(1)

    def likelihood(self) -> hs.Likelihood:
        if self.noise is None:
            return hs.Bernoulli()
        return hs.Gaussian(self.noise, learn_noise=False)

    def log_likelihood(self, f: Tensor) -> Tensor:
        """Of outputs (C, N)."""
        if self.noise is None:
            return nn.functional.logsigmoid(f * (2 * self.y - 1)).sum(1)
        return -0.5 * (self.y - f).square().sum(1) / self.noise


def gap_1d() -> Problem:
    def f(x: Tensor) -> Tensor:
        return (2 * x).sin().squeeze(1)

    x = 0.7 + 1.3 * torch.rand(80, 1)
    x = torch.cat([x[:40], -x[40:]])
    inside = torch.cat([torch.linspace(-2, -0.8, 20), torch.linspace(0.8, 2, 20)])
    outside = torch.tensor([-6.0, -5.5, -5.0, 5.0, 5.5, 6.0])
    points = {"inside": inside, "gap": torch.linspace(-0.4, 0.4, 9), "outside": outside}
    columns = {name: at.unsqueeze(1) for name, at in points.items()}
    y = f(x) + 0.2 * torch.randn(80)
    new = (0.7 + 1.3 * torch.rand(FRESH, 1)) * (2 * torch.rand(FRESH, 1).round() - 1)
    return Problem(x, y, columns, 0.04, (new, f(new) + 0.2 * torch.randn(FRESH)))


def gap_2d() -> Problem:
    def f(x: Tensor) -> Tensor:
        return (2 * x[:, 0]).sin() + x[:, 1].cos()

    x = 4 * torch.rand(400, 2) - 2
    x = x[x[:, 0].abs() > 0.7][:200]
    y = f(x) + 0.2 * torch.randn(len(x))
    fresh = 4 * torch.rand(200, 2) - 2
    angle = torch.rand(40) * 2 * math.pi
    points = {
        "inside": fresh[fresh[:, 0].abs() > 0.8][:40],
        "gap": fresh[fresh[:, 0].abs() < 0.4][:20],
        "outside": 6 * torch.stack([angle.cos(), angle.sin()], 1),
    }
    new = 4 * torch.rand(2 * FRESH, 2) - 2
    new = new[new[:, 0].abs() > 0.7][:FRESH]
    return Problem(x, y, points, 0.04, (new, f(new) + 0.2 * torch.randn(len(new))))


def moons() -> Problem:
    from sklearn.datasets import make_moons

    x, y = (
        torch.as_tensor(part, dtype=torch.float32)
        for part in make_moons(200, noise=0.15, random_state=0)
    )
    x = (x - x.mean(0)) / x.std(0)
    angle = torch.rand(60) * 2 * math.pi
    points = {"inside": x[:60], "outside": 6 * torch.stack([angle.cos(), angle.sin()], 1)}
    return Problem(x, y, points, None)


PROBLEMS: dict[str, Callable[[], Problem]] = {"gap-1d": gap_1d, "gap-2d": gap_2d, "moons": moons}


def make(name: str) -> Problem:
    """A problem, the same every time."""
    torch.manual_seed(0)
    return PROBLEMS[name]()
