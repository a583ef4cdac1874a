"""How a layer's weights are drawn, and how S draws are folded into the batch.

Local reparameterisation draws the layer's *output*: `mean + sqrt(var)·ε`, fresh noise for every sample, row and position.
For a dense layer with one row per example that is exact. Where positions share weights (convolutions, Linear on sequences,
a layer called twice) it has the right marginals and drops the covariance between positions: the usual approximation.
Weight sampling draws one W per sample: exact everywhere, and what coherent function draws need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.kernels.noise import Noise, fresh
from headstart.linalg.affine import affine, affine_each, is_dense, split
from headstart.posteriors import Functions, Posterior

SAMPLERS = ("local", "mean", "weights")


class Stacked(Exception):
    """A layer sees several batches, one under another or one after another, where it was to fold the samples into one."""


class Sampler(Protocol):
    """What a Bayesian layer does with its input."""

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor: ...


@dataclass(eq=False)
class Mean:
    """The mean network: no noise at all."""

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        return affine(op, x, *split(op, posterior.mean))


@dataclass(eq=False)
class Local:
    """Local reparameterisation. `expand` is the number of samples to draw from each row, folded into the batch.

    `rows`, where known, is the number of rows a batch has here: what comes in must be a multiple of it, and just that many
    where they are expanded. Where samples share draws (`shared`), any other number means that the net went another way than
    it did when it was converted.
    """

    expand: int = 1
    rows: int | None = None
    noise: Noise = fresh
    shared: bool = False

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        _check_shared(x, self.rows, self.shared)
        _check_rows(op, x, self.rows, self.expand > 1)
        return posterior.local(op, x, self.expand, self.noise)


@dataclass(eq=False)
class Weights:
    """Weights already drawn, (S, units, size); `expand` says that x is one batch, not S of them folded together."""

    draws: Tensor
    expand: bool = False
    rows: int | None = None

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        _check_rows(op, x, self.rows, self.draws.shape[0] > 1)
        return affine_each(op, x, self.draws, self.expand)


@dataclass(eq=False)
class Drawn:
    """Weights drawn when the layer is called, the same when it is called again; `expand` and `rows` as in `Weights`.

    A dense layer that sees a batch once draws its outputs instead: each row has the same law, and no weights are drawn at all.
    Where samples share draws (`shared`, as in `Local`), each that comes in may meet several draws: it goes through the layer `again`.
    """

    samples: int
    expand: bool
    rows: int | None
    noise: Noise
    shared: bool = False
    again: int = 1
    by_rows: bool = False
    functions: Functions | None = None

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        _check_shared(x, self.rows, self.shared)
        _check_rows(op, x, self.rows, self.samples > 1)
        x = x.repeat(self.again, *[1] * (x.ndim - 1)) if self.again > 1 else x
        if self.by_rows:
            raise Stacked  # called again after all: the two must share weights
        if self.functions is None:
            if self.expand and posterior.local_is_cheap and is_dense(op) and x.ndim == 2:
                self.by_rows = True
                return posterior.local(op, x, self.samples, self.noise)
            self.functions = posterior.functions(self.samples, self.noise)
        return self.functions(op, x, self.expand)


def _check_shared(x: Tensor, rows: int | None, shared: bool) -> None:
    """Where samples share draws, other rows than expected mean that the net went another way."""
    if shared and rows is not None and x.shape[0] % rows:
        raise Stacked


def _check_rows(op: nn.Module, x: Tensor, rows: int | None, just_them: bool) -> None:
    """The samples are folded into axis 0, so axis 0 must be the batch in every layer, or several of them one under another."""
    if rows is None or x.shape[0] == rows:
        return
    if x.shape[0] % rows:
        raise HeadstartError(
            f"{op} received {x.shape[0]} rows where the batch has {rows}: it is fed by something other than the batch, or the net "
            "moves the batch off axis 0. Keep the batch first, or leave this layer out with bayesianize(..., where=)."
        )
    if just_them:
        raise Stacked


def local_moments(op: nn.Module, posterior: Posterior, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and marginal variance of the layer's output: `op(x, μ)` and `op(x², d) + Σ_r op(x, v_r)²`."""
    return affine(op, x, *split(op, posterior.mean)), posterior.local_variance(op, x)
