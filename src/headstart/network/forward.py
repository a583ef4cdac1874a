"""Forward passes of a Bayesian net: how many draws, by which sampler, folded into the batch.

A `ForwardPlan` says what every layer does in one pass. `forward` makes the cheapest plan, and goes
on to the next one where the net does not do with its rows what the plan expects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError, unknown
from headstart.kernels.noise import Noise, Reused, fresh
from headstart.network.branching import Branch, Branching, branched, folded
from headstart.network.layer import Bayesian, bayesian_layers
from headstart.network.probe import check_rows
from headstart.network.samplers import (
    SAMPLERS,
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

Layers = Mapping[str, Bayesian]


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
            yield
        finally:
            for layer, old in zip(layers.values(), before, strict=True):
                layer.use(old)

    def _sampler(self, index: int, layer: Bayesian, branch: Branch) -> Sampler:
        """What one layer does."""
        if self.sampler == "mean":
            return Mean()
        received, given, enters = branch
        rows = None if self.rows is None else self.rows * received
        if self.sampler == "weights" and self.weights is not None:
            return Weights(self.weights[index], enters, rows)
        noise, moments = self.noise, self.moments.get(layer.posterior)
        if noise is None:
            reuses = self.averaged and self.rows is not None
            noise = Reused(given, self.rows) if reuses else fresh  # type: ignore[arg-type]
        if self.sampler == "local":
            return Local(given // received, rows, noise, moments)
        branches = given // received
        return WeightsOnCall(given, branches, enters, rows, noise, moments)

    def run(self, model: nn.Module, layers: Layers, x: Tensor) -> Tensor | None:
        """One pass.

        Args:
            model: The net.
            layers: Its Bayesian layers.
            x: The batch.

        Returns:
            The draws (S, B, ...), or None where the plan does not fit the net.
        """
        try:
            with self.installed(layers):
                out = model(x if self.folds else repeat_rows(x, self.samples))
            check_output(out, self.samples * x.shape[0])
        except PlanMisfit as misfit:
            # Not the exception itself: its traceback would keep the activations.
            self.misfit = misfit.args
            return None
        draws: Tensor = out.unflatten(0, (self.samples, -1))
        return draws


@contextmanager
def drawing(
    model: nn.Module,
    sampler: str = "local",
    samples: int = 1,
    *,
    rows: int | None = None,
    weights: list[Tensor] | None = None,
    noise: Noise | None = None,
    fold: bool = True,
    averaged: bool = False,
) -> Iterator[bool]:
    """Within this scope every forward pass of a net draws so many times.

    With `sampler="weights"` the draws are made once, at the start of the scope: every call in it
    sees the same functions.

    Args:
        model: A converted net.
        sampler: `"local"` draws each layer's outputs, `"weights"` its weights; `"mean"` draws
            nothing.
        samples: The number of samples S, folded into axis 0 of the output.
        rows: The number of rows of the inputs. Given them, every layer checks that the batch is
            still on axis 0.
        weights: Draws of every layer's weights (`draw_weights`), for `sampler="weights"`.
        noise: Where the noise comes from (`headstart.kernels.noise`).
        fold: Whether the net may take the input once and draw S samples of it.
        averaged: Whether one pass is made, and only an average over its rows and samples taken.
            Rows then need not share a sample's weights, nor need samples be independent.

    Yields:
        Whether the net takes the input once. If not, repeat it S times, as `draw` does.

    Raises:
        HeadstartError: A layer saw other rows than `rows` says.

    Example:
        >>> import torch, headstart as hs
        >>> model = hs.bayesianize(nn.Linear(3, 2))
        >>> with drawing(model, "mean"):
        ...     a, b = model(torch.ones(1, 3)), model(torch.ones(1, 3))
        >>> torch.equal(a, b)
        True
    """
    _check_request(sampler, samples)
    layers = bayesian_layers(model)
    branching: Branching = {}
    if fold and sampler != "mean":
        branching = branched(layers, sampler, samples) if averaged and rows is not None else {}
        branching = branching if len(branching) > 0 else folded(layers, samples)
    if sampler == "weights" and weights is None and not averaged:
        weights = draw_weights(model, samples, noise or fresh)
    plan = ForwardPlan(sampler, samples, rows, averaged, branching, weights, noise)
    with plan.installed(layers):
        yield plan.folds


def draw_weights(model: nn.Module, samples: int, noise: Noise = fresh) -> list[Tensor]:
    """Draws of every layer's weights, in the order of `bayesian_layers`.

    Args:
        model: A converted net.
        samples: How many draws.
        noise: Where the noise comes from.

    Returns:
        A tensor (S, units, size) for each layer.
    """
    return [layer.posterior.sample(samples, noise) for layer in bayesian_layers(model).values()]


def draw(
    model: nn.Module,
    x: Tensor,
    samples: int = 1,
    sampler: str = "local",
    noise: Noise | None = None,
    averaged: bool = False,
) -> Tensor:
    """S draws of a net's output: the samples run folded into the batch, in one forward pass.

    Args:
        model: A converted net.
        x: The inputs of B rows.
        samples: The number of samples S.
        sampler: `"local"`, `"weights"` or `"mean"`, as in `drawing`.
        noise: Where the noise comes from (`headstart.kernels.noise`).
        averaged: Whether only an average over rows and samples is taken, as in `drawing`.

    Returns:
        The draws, (S, B, ...).

    Example:
        >>> import torch, headstart as hs
        >>> draw(hs.bayesianize(nn.Linear(3, 2)), torch.ones(5, 3), samples=7).shape
        torch.Size([7, 5, 2])
    """
    return forward(model, x, samples, sampler, noise=noise, averaged=averaged)


def forward(
    model: nn.Module,
    x: Tensor,
    samples: int,
    sampler: str,
    weights: list[Tensor] | None = None,
    noise: Noise | None = None,
    averaged: bool = False,
    moments: Mapping[Posterior, KnownMoments] | None = None,
) -> Tensor:
    """`draw`, with what has been computed before.

    Plans are tried in turn, until one fits: samples that branch along a chain of layers, samples
    that all branch where the input enters the net, the input repeated S times, one function after
    another. A net that stacks several batches on axis 0, as a siamese one does, takes one of the
    last two; one that does not cross its layers as it did when it was converted shares no draws.

    Args:
        model: A converted net.
        x: The inputs of B rows.
        samples: The number of samples S.
        sampler: `"local"`, `"weights"` or `"mean"`.
        weights: Draws of every layer's weights, where they are made already.
        noise: Where the noise comes from.
        averaged: Whether only an average over rows and samples is taken.
        moments: The moments that the KL has computed (`kl_and_moments`).

    Returns:
        The draws, (S, B, ...).

    Raises:
        HeadstartError: No plan fits: the net does not keep the batch on axis 0.
    """
    _check_request(sampler, samples)
    check_rows(model, x)
    layers = bayesian_layers(model)
    known = {} if moments is None else moments
    request = _Request(layers, sampler, samples, x.shape[0], averaged, weights, noise, known)
    tried: list[ForwardPlan] = []
    for make in (request.branched, request.folded, request.repeated, request.one_by_one):
        plans = make()
        draws = [plan.run(model, layers, x) for plan in plans]
        found = [each for each in draws if each is not None]
        if plans and len(found) == len(plans):
            return found[0] if len(found) == 1 else torch.cat(found)
        tried += plans
    raise PlanMisfit(*tried[-1].misfit)


class _Request:
    """What `forward` is asked for, and the plans that may serve it.

    Each method gives the plans of the passes whose draws follow one another: mostly one. An empty
    list says that this kind of plan is not for this request.
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
    ) -> None:
        self.layers, self.sampler, self.samples, self.rows = layers, sampler, samples, rows
        self.averaged, self.weights, self.noise, self.moments = averaged, weights, noise, moments
        self.folding: Branching = {} if sampler == "mean" else folded(layers, samples)

    def branched(self) -> list[ForwardPlan]:
        """Where only an average is wanted: samples share the draws of the first layers."""
        if not self.averaged or self.weights is not None or self.sampler == "mean":
            return []
        branching = branched(self.layers, self.sampler, self.samples)
        if len(branching) > 0:
            return [self._plan(branching)]
        # For an average weights are drawn when a layer is called, even if no draws are shared.
        return [self._plan(self.folding)] if self.sampler == "weights" else []

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
        if weights is None or self.samples == 1:
            return []
        branching = folded(self.layers, 1)
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
            self.weights = [law.sample(self.samples, noise) for law in laws]
        return self.weights


def _check_request(sampler: str, samples: int) -> None:
    if sampler not in SAMPLERS:
        raise unknown("sampler", sampler, SAMPLERS)
    if samples < 1:
        raise HeadstartError(f"At least one sample must be drawn, not {samples}.")


def check_outputs(f: Tensor) -> Tensor:
    """Draws as a likelihood reads them.

    Args:
        f: Draws of a net's outputs.

    Returns:
        The draws (S, B, K), in float32 where they had half precision.

    Raises:
        HeadstartError: They have other axes.
    """
    if f.ndim != 3:
        raise HeadstartError(
            "A likelihood reads outputs of shape (rows, outputs); "
            f"the net gives (rows, {', '.join(map(str, f.shape[2:]))})."
        )
    return f.float() if f.dtype in (torch.float16, torch.bfloat16) else f
