"""Hamiltonian Monte Carlo on the weights of a small net in float64: the truth of `gap.py`.

Several chains run at once, as one batch of nets. Path lengths are random, the step size and the
variances of the momenta are adapted during the warm-up by what chains see together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

LogDensity = Callable[[Tensor], Tensor]
"""Weights of C chains (C, P) to log densities (C,)."""


def net_outputs(weights: Tensor, x: Tensor, hidden: int) -> Tensor:
    """Outputs (C, N) of nets with one hidden tanh layer.

    Args:
        weights: (C, P), in the order of the parameters: hidden weights and biases, read-out's.
        x: (N, D).
        hidden: the hidden units.
    """
    size = x.shape[1]
    first, bias, last, offset = weights.split([hidden * size, hidden, hidden, 1], 1)
    features = (x @ first.unflatten(1, (hidden, size)).mT + bias.unsqueeze(1)).tanh()
    return (features @ last.unsqueeze(-1)).squeeze(-1) + offset


@dataclass
class Chains:
    """The state of C chains.

    Args:
        log_density: of the target.
        at: weights, (C, P).
        target: the acceptance rate that the step size is adapted to.
    """

    log_density: LogDensity
    at: Tensor
    target: float = 0.8

    def __post_init__(self) -> None:
        self.step, self.scale = 0.02, torch.ones_like(self.at[0])

    def gradient(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """Log density and its gradient."""
        at = at.detach().requires_grad_()
        value = self.log_density(at)
        (slope,) = torch.autograd.grad(value.sum(), at)
        return value.detach(), slope

    def move(self, length: float) -> float:
        """One trajectory of about this length; returns the mean probability of acceptance."""
        momentum = torch.randn_like(self.at) / self.scale
        value, slope = self.gradient(self.at)
        start = value - 0.5 * (momentum * self.scale).square().sum(1)
        at, steps = self.at, max(1, math.ceil(length * float(torch.rand(())) / self.step))
        for _ in range(min(steps, 200)):
            momentum = momentum + 0.5 * self.step * slope
            at = at + self.step * self.scale.square() * momentum
            new, slope = self.gradient(at)
            momentum = momentum + 0.5 * self.step * slope
        end = new - 0.5 * (momentum * self.scale).square().sum(1)
        chance = (end - start).nan_to_num(-1e9).clamp_max(0).exp()
        accepted = torch.rand_like(chance) < chance
        self.at = torch.where(accepted.unsqueeze(1), at, self.at)
        return float(chance.mean())

    def warm_up(self, moves: int, length: float) -> None:
        """Adapt the step size, and twice the scale of the momenta."""
        window: list[Tensor] = []
        for number in range(moves):
            rate = self.move(length)
            self.step *= math.exp((rate - self.target) / (1 + number % (moves // 3)) ** 0.5)
            self.step = min(self.step, 1.0)
            window.append(self.at)
            if number in (moves // 3, 2 * moves // 3):
                spread = torch.cat(window[len(window) // 2 :]).var(0)
                self.scale, window = spread.sqrt().clamp(1e-3, 10.0), []

    def run(self, moves: int, length: float, see: Callable[[Tensor], Tensor]) -> Tensor:
        """What is seen of each state, (moves, C, ...)."""
        found = []
        for _ in range(moves):
            self.move(length)
            found.append(see(self.at))
        return torch.stack(found)


def r_hat(draws: Tensor) -> Tensor:
    """The potential scale reduction of draws (moves, C, ...), chains split in halves."""
    halves = torch.cat(draws[: len(draws) // 2 * 2].chunk(2), 1)
    within = halves.var(0).mean(0)
    between = halves.mean(0).var(0)
    count = len(halves)
    return ((within * (count - 1) / count + between) / within).sqrt()
