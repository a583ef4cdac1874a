"""How a layer draws in a forward pass, with S samples of each row folded into the batch.

Local reparameterization draws the layer's *output*: `mean + sqrt(var)·ε`, with fresh noise for
every sample, row and position. It is exact for a dense layer with one row per example. Where
positions share weights (convolutions, Linear on sequences, a layer called twice) it has the right
marginals and drops the covariance between positions, which is the usual approximation.
Weight sampling draws one W per sample: exact everywhere, and what coherent function draws need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.kernels.members import Fold
from headstart.kernels.noise import Noise, fresh
from headstart.linalg.affine import affine, affine_apart, affine_each, is_dense, split
from headstart.nested import parts_of
from headstart.posteriors import Functions, KnownMoments, Posterior
from headstart.posteriors.mixture import sample_each

SAMPLERS = ("local", "mean", "weights")
NO_ROWS = 0
"""The rows of a layer that is given the same whatever the batch is, as a table of positions is.

How many entries it is given says nothing then: there may be as many as rows by chance.
"""


class Sampler(Protocol):
    """What a Bayesian layer does with its input."""

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor: ...


class PlanMisfit(HeadstartError):
    """The net does not do with its rows what the plan of the pass expects.

    A layer cannot end a forward pass of somebody else's module but by an exception, and it cannot
    go on either: nobody knows how many rows the rest of the net wants. So this one exception is
    part of the control flow. Layers raise it here, and `ForwardPlan.run` alone catches it.
    """

    def __str__(self) -> str:
        # Written when asked for: most misfits are met by another plan, and never seen.
        what, received, rows = self.args
        if isinstance(what, nn.Module) and rows == NO_ROWS:
            return (
                f"{what} is given the same {received} entries whatever the batch is, so the "
                "members of a mixture cannot draw it row by row: use sampler='weights', or leave "
                "this layer out with bayesianize(..., where=)."
            )
        if isinstance(what, nn.Module) and received % rows:
            return (
                f"{what} received {received} rows where the batch has {rows}: it is fed by "
                "something other than the batch, or the net moves the batch off axis 0. Keep the "
                "batch first, or leave this layer out with bayesianize(..., where=)."
            )
        if isinstance(what, nn.Module):
            return (
                f"{what} was to see one batch of {rows} rows, once: the net stacks several "
                "batches, or calls the layer again. hs.draw and hs.nelbo take such a net; within "
                "hs.drawing leave out rows= and averaged=."
            )
        return (
            f"The net must give one tensor with a row for each of the {rows} rows it received "
            f"(samples are folded into axis 0), but it gave {what}."
        )


def _check_input(op: nn.Module, x: Tensor, rows: int | None, apart: bool) -> None:
    """Axis 0 must be the batch, or where samples need not be told apart, several batches.

    A table may then be looked up at other places than those of the batch, as one of positions is.
    """
    if isinstance(op, nn.Embedding) and not apart:
        return
    if rows is not None and x.shape[0] != rows and (apart or _is_apart(x, rows)):
        raise PlanMisfit(op, x.shape[0], rows)


def _is_apart(x: Tensor, rows: int | None) -> bool:
    """Whether the entries of an input are not those of rows."""
    return rows is not None and (rows == NO_ROWS or x.shape[0] % rows != 0)


def for_every_row(x: Tensor, rows: int | None) -> Tensor:
    """An input that is the same for every row, as numbers of positions are, once for each.

    Args:
        x: what a layer is given.
        rows: how many rows it is to see, where known.
    """
    if rows is None or rows == 1 or x.shape[0] != 1:
        return x
    return x.expand(rows, *x.shape[1:])


def check_output(output: Any, rows: int) -> None:
    """The net must give a tensor with so many rows, or several."""
    for part in parts_of(output):
        if not isinstance(part, Tensor):
            raise PlanMisfit(f"a {type(part).__name__}", 0, rows)
        if part.ndim == 0 or part.shape[0] != rows:
            raise PlanMisfit(f"a tensor of shape {tuple(part.shape)}", 0, rows)


@dataclass(eq=False)
class Mean:
    """The mean network: no noise at all.

    Args:
        members: The number K of posteriors; each has an equal part of the rows, in order.
        rows: How many rows the layer is to see, where known.
    """

    members: int = 1
    rows: int | None = None

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        if self.members > 1:
            each = posterior.mean.unflatten(0, (self.members, -1))
            return affine_apart(op, for_every_row(x, self.rows), each).flatten(0, 1)
        return affine(op, x, *split(op, posterior.mean))


@dataclass(eq=False)
class OutsidePlan:
    """What a layer with several members does where nobody said whose rows it sees: it refuses.

    Args:
        members: Their number.
    """

    members: int

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        raise HeadstartError(
            f"{op} has {self.members} members, and a plain call does not say which of them is to "
            "draw: use hs.draw, hs.predict or hs.drawing(model, samples=), or take one member "
            "with hs.member(model, index)."
        )


@dataclass(eq=False)
class Local:
    """Local reparameterization: draws of the layer's outputs.

    Args:
        branches: How many samples to draw from each row, folded into the batch.
        rows: How many rows the layer is to see, where known. Several batches of them, one under
            another, are fine unless the layer branches.
        noise: Where the noise comes from.
        moments: The posterior's moments, where they are known already.
        fold: How samples lie, where the posterior is that of several members.
        samples: How many samples leave the layer, for each member; they matter where weights are
            drawn after all (`by_weights`).
    """

    branches: int = 1
    rows: int | None = None
    noise: Noise = fresh
    moments: KnownMoments | None = None
    fold: Fold | None = None
    samples: int = 1
    is_repeatable: ClassVar[bool] = True
    """Whether a second call with the same random state gives the same."""

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        x = for_every_row(x, self.rows)
        _check_input(op, x, self.rows, self.branches > 1 or self.fold is not None)
        law = posterior if self.moments is None else self.moments
        if self.fold is not None:
            return law.local_each(op, x, self.fold, self.noise)
        if isinstance(op, nn.Embedding) and _is_apart(x, self.rows):
            # What it gives meets the rows of all samples: they share one draw of the table.
            return affine_each(op, x, law.sample(1))
        return law.local(op, x, self.branches, self.noise)

    def for_tied(self, transposed: bool) -> Local:
        """What a module does that shares the weights: outputs of its own, of the rows it sees."""
        return Local()

    def by_weights(self) -> WeightsOnCall:
        """The same samples for a layer whose calls must share their weights."""
        return WeightsOnCall(
            *(self.samples, self.branches, False, self.rows),
            *(self.noise, self.moments, self.fold),
        )


@dataclass(eq=False)
class Weights:
    """Weights that have been drawn, the same at every call.

    Args:
        draws: The weights, (S, units, size).
        enters: Whether the input is one batch for all the draws, not S of them folded together.
        rows: How many rows the layer is to see, where known.
    """

    draws: Tensor
    enters: bool = False
    rows: int | None = None

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        x = for_every_row(x, self.rows)
        _check_input(op, x, self.rows, self.draws.shape[0] > 1)
        return affine_each(op, x, self.draws, self.enters)

    def for_tied(self, transposed: bool) -> Weights:
        """The same weights for a module that shares them."""
        return Weights(self.draws.mT if transposed else self.draws)


@dataclass(eq=False)
class WeightsOnDemand:
    """One draw of the weights, made when the layer is first called: a pass may stop before it.

    Args:
        drawn: Nothing at first.
    """

    drawn: list[Weights]

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        if not self.drawn:
            self.drawn.append(Weights(posterior.sample(1)))
        return self.drawn[0](op, posterior, x)

    def for_tied(self, transposed: bool) -> Sampler:
        """The same weights for a module that shares them."""

        def read(op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
            if not self.drawn:
                weights = posterior.sample(1)
                self.drawn.append(Weights(weights.mT if transposed else weights))
            return self.drawn[0].for_tied(transposed)(op, posterior, x)

        return read


@dataclass(eq=False)
class WeightsOnCall:
    """Weights drawn when the layer is called, the same when it is called again.

    A dense layer that sees the batch itself draws its outputs instead: where only an average is
    wanted each row has the same law, and no weights are drawn at all. So do all dense layers where
    the batch is a single row, whose samples each meet weights of their own.

    Args:
        samples: How many draws of the weights.
        branches: How many draws each sample that comes in meets, one after another.
        enters: Whether the input is one batch for all the draws.
        rows: How many rows the layer is to see, where known.
        noise: Where the noise comes from.
        moments: The posterior's moments, where they are known already.
        fold: How samples lie, where the posterior is that of several members; `samples` are those
            of each.
        single_row: Whether the batch is a single row.
    """

    samples: int
    branches: int
    enters: bool
    rows: int | None
    noise: Noise
    moments: KnownMoments | None = None
    fold: Fold | None = None
    single_row: bool = False
    functions: Functions | None = None
    has_drawn_outputs: bool = False

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        x = for_every_row(x, self.rows)
        _check_input(op, x, self.rows, self.samples > 1 or self.fold is not None)
        if self.has_drawn_outputs:
            # Called again after all, and the two calls must have the same weights.
            raise PlanMisfit(op, x.shape[0], x.shape[0])
        law = posterior if self.moments is None else self.moments
        if self.functions is None:
            if self._may_draw_outputs(op, posterior, x):
                self.has_drawn_outputs = True
                return Local(self.branches, None, self.noise, self.moments, self.fold)(
                    op, posterior, x
                )
            self.functions = self._functions(law)
        members = 1 if self.fold is None else self.fold.members
        x = x if self.enters or self.branches == 1 else repeat_rows(x, self.branches, members)
        return self.functions(op, x, self.enters)

    def for_tied(self, transposed: bool) -> Sampler:
        """Nothing: weights that are shared are drawn before the pass."""

        def refuse(op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
            raise PlanMisfit(op, x.shape[0], x.shape[0])

        return refuse

    def _may_draw_outputs(self, op: nn.Module, posterior: Posterior, x: Tensor) -> bool:
        """Whether no two rows need the same weights, and outputs are cheaper to draw."""
        apart = self.enters or self.single_row
        return apart and posterior.local_is_cheap and is_dense(op) and x.ndim == 2

    def _functions(self, law: Posterior | KnownMoments) -> Functions:
        """The draws of all members."""
        if self.fold is None:
            return law.functions(self.samples, self.noise)
        draws = sample_each(law, self.samples, self.fold.members, self.noise)
        return lambda op, x, shared: affine_each(op, x, draws, shared)


def repeat_rows(x: Tensor, samples: int, members: int = 1) -> Tensor:
    """S copies of the batch, one after another: (S·B, ...).

    Args:
        x: The batch, or the batches of several members.
        samples: S.
        members: How many batches there are, one after another; each is followed by its copies.
    """
    if members == 1:
        return x.repeat(samples, *[1] * (x.ndim - 1))
    blocks = x.unflatten(0, (members, 1, -1))
    return blocks.expand(-1, samples, *[-1] * (blocks.ndim - 2)).flatten(0, 2)


def local_moments(op: nn.Module, posterior: Posterior, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and marginal variance of a layer's output: `op(x, μ)` and `op(x², d) + Σ_r op(x, v_r)²`.

    Args:
        op: The layer.
        posterior: The posterior of its weights.
        x: Its input.
    """
    return affine(op, x, *split(op, posterior.mean)), posterior.local_variance(op, x)
