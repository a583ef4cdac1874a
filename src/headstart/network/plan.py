"""Plans of a forward pass: what every layer does in it, and which plans may serve a request.

Samples branch along a chain of layers, or all of them where the input enters the net; or the input
comes S times; or one function runs after another. `headstart.network.forward` tries them in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from headstart.kernels.noise import Noise, Reused, fresh
from headstart.nested import TensorTree, feed, heads_of, map_each, map_rows, row_count
from headstart.network.branching import (
    Branch,
    Branching,
    branch_along_chain,
    branch_at_entry,
)
from headstart.network.layer import Bayesian
from headstart.network.recomputation import forget, keep_for_backward
from headstart.network.samplers import (
    NO_ROWS,
    Local,
    Mean,
    PlanMisfit,
    Sampler,
    Weights,
    WeightsOnCall,
    check_output,
    repeat_rows,
)
from headstart.posteriors import KnownMoments, Posterior
from headstart.posteriors.mixture import sample_each

Layers = Mapping[str, Bayesian]
"""The Bayesian layers of a net by name, as `bayesian_layers` gives them."""


@dataclass(eq=False)
class ForwardPlan:
    """What every layer does in one forward pass.

    Args:
        sampler: One of `SAMPLERS`.
        samples: The number of samples S.
        rows: The number of rows of the batch; None where it is not known.
        averaged: Whether only an average over rows and samples is needed. Rows need not share a
            sample's weights then, nor need samples be independent: weights are drawn when a layer
            is called, and samples have antithetic noise (`headstart.kernels.noise`).
        branching: Where samples branch; nowhere: the input comes S times.
        weights: Draws of every layer's weights, where they are made before the pass.
        noise: Where the noise comes from; None: what suits `averaged`.
        moments: What to draw with in place of a posterior, where the KL has computed its moments.
        members: The number K of members of a mixture; `samples` are those of each.
        single_row: Whether the batch is a single row and draws are of its outputs only.
        tables: Layers that are given the same whatever the batch is.
        misfit: Why the plan did not fit the net, after a `run` that gave nothing.
    """

    sampler: str
    samples: int
    rows: int | None = None
    averaged: bool = False
    branching: Branching = field(default_factory=dict)
    weights: list[Tensor] | None = None
    noise: Noise | None = None
    moments: Mapping[Posterior, KnownMoments] = field(default_factory=dict)
    members: int = 1
    single_row: bool = False
    tables: frozenset[Bayesian] = frozenset()
    misfit: tuple[Any, ...] = ()

    @property
    def folds(self) -> bool:
        """Whether the net takes the batch itself, and branches it into samples on its own."""
        return len(self.branching) > 0

    @contextmanager
    def installed(self, layers: Layers) -> Iterator[None]:
        """Within this scope the layers follow the plan."""
        before = [layer.sampler for layer in layers.values()]
        everywhere = Branch(self.samples, self.samples)
        try:
            for index, layer in enumerate(layers.values()):
                layer.use(self._sampler(index, layer, self.branching.get(layer, everywhere)))
                forget(layer)
            yield
        finally:
            for layer, old in zip(layers.values(), before, strict=True):
                layer.use(old)

    def _sampler(self, index: int, layer: Bayesian, branch: Branch) -> Sampler:
        """What one layer does."""
        if self.sampler == "mean":
            return Mean(self.members, self.rows and self.rows * self.samples * self.members)
        received, given, enters = branch
        apart = 1 if enters else self.members
        rows = None if self.rows is None else self.rows * received * apart
        if layer in self.tables:
            rows = NO_ROWS
        if self.sampler == "weights" and self.weights is not None:
            return Weights(self.weights[index], enters, rows)
        noise, moments = self.noise, self.moments.get(layer.posterior)
        fold = branch.fold(self.members, self.rows is not None)
        if noise is None:
            noise = fresh
            if self.averaged and self.rows is not None:
                noise = branch.noise(self.rows, self.members)
        if self.sampler == "local":
            return Local(branch.draws, rows, noise, moments, fold, given)
        return WeightsOnCall(
            given, branch.draws, enters, rows, noise, moments, fold, self.single_row
        )

    def run(self, model: nn.Module, layers: Layers, x: TensorTree) -> Any:
        """One pass.

        Args:
            model: The net.
            layers: Its Bayesian layers.
            x: The batch.

        Returns:
            The draws (S, B, ...), those of a member together, or None where the plan does not fit
            the net.
        """
        samples = self.samples * self.members
        try:
            with self.installed(layers):
                fed = x if self.folds else map_rows(lambda part: repeat_rows(part, samples), x)
                out = heads_of(feed(model, fed))
                samplers: dict[nn.Module, Any] = {each: each.sampler for each in layers.values()}
            check_output(out, samples * row_count(x))
        except PlanMisfit as misfit:
            # Not the exception itself: its traceback would keep the activations.
            self.misfit = misfit.args
            return None
        keep_for_backward(out, samplers)
        return map_each(lambda part: part.unflatten(0, (samples, -1)), out)


class ForwardRequest:
    """What a forward pass is asked for, and the plans that may serve it.

    Each method gives the plans of the passes whose draws follow one another: mostly one. An empty
    list says that this kind of plan is not for this request.

    Args:
        layers: The Bayesian layers of the net.
        sampler: One of `SAMPLERS`.
        samples: The number of samples S of each member.
        rows: The number of rows of the batch.
        averaged: Whether only an average over rows and samples is needed.
        weights: Draws of every layer's weights, where they are made already.
        noise: Where the noise comes from; None: what suits `averaged`.
        moments: What to draw with in place of a posterior, where the KL has computed its moments.
        members: The number of members of a mixture.
        functions: Whether draws by weights are to be functions of any row.
        tables: The names of layers that are given the same whatever the batch is.
    """

    def __init__(
        self,
        layers: Layers,
        sampler: str,
        samples: int,
        rows: int,
        averaged: bool,
        weights: list[Tensor] | None,
        noise: Noise | None,
        moments: Mapping[Posterior, KnownMoments],
        members: int = 1,
        functions: bool = True,
        tables: frozenset[str] = frozenset(),
    ) -> None:
        self.members, self.functions = members, functions
        self.tables = frozenset(layer for name, layer in layers.items() if name in tables)
        self.layers, self.sampler, self.samples, self.rows = layers, sampler, samples, rows
        self.averaged, self.weights, self.noise, self.moments = averaged, weights, noise, moments
        self.folding: Branching = {} if sampler == "mean" else branch_at_entry(layers, samples)

    def branched(self) -> list[ForwardPlan]:
        """Where only an average is wanted: samples share the draws of the first layers."""
        if not self.averaged or self.weights is not None or self.sampler == "mean":
            return []
        branching = branch_along_chain(self.layers, self.sampler, self.samples, self.members)
        if len(branching) > 0:
            return [self._plan(branching)]
        # For an average weights are drawn when a layer is called, even if no draws are shared.
        return [self._plan(self.folding)] if self.sampler == "weights" else []

    def single_row(self) -> list[ForwardPlan]:
        """Where draws of one row need be no functions: dense layers draw their outputs."""
        if self.functions or self.rows != 1 or self.sampler != "weights":
            return []
        return [replace(self._plan(self.folding), single_row=True)]

    def folded(self) -> list[ForwardPlan]:
        """The batch goes in once, and all samples branch where it enters."""
        return [self._plan(self.folding, self._fixed_weights())] if len(self.folding) > 0 else []

    def repeated(self) -> list[ForwardPlan]:
        """The batch goes in S times."""
        if self.sampler == "weights" and len(self.folding) > 0:
            return []
        return [self._plan({}, self._fixed_weights())]

    def one_by_one(self) -> list[ForwardPlan]:
        """The batch goes through one function after another."""
        weights = self._fixed_weights()
        if weights is None or len(weights[0]) == 1:
            return []
        branching = branch_at_entry(self.layers, 1)
        functions = zip(*(each.split(1) for each in weights), strict=True)
        return [
            ForwardPlan("weights", 1, self.rows, branching=branching, weights=list(function))
            for function in functions
        ]

    def _plan(self, branching: Branching, weights: list[Tensor] | None = None) -> ForwardPlan:
        """One pass of all samples."""
        return ForwardPlan(
            self.sampler,
            self.samples,
            self.rows,
            self.averaged,
            branching,
            weights,
            self.noise,
            self.moments,
            self.members,
            tables=self.tables,
        )

    def _fixed_weights(self) -> list[Tensor] | None:
        """By weights: the draws that all later plans have in common, made when first needed."""
        if self.sampler != "weights":
            return None
        if self.weights is None:
            reused = Reused(self.samples, self.rows) if self.averaged else fresh
            noise = reused if self.noise is None else self.noise
            posteriors = [layer.posterior for layer in self.layers.values()]
            laws = [self.moments.get(posterior, posterior) for posterior in posteriors]
            self.weights = [sample_each(law, self.samples, self.members, noise) for law in laws]
        return self.weights
