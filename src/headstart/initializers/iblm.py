"""I-BLM: each unit starts at the posterior of a Bayesian linear model from its layer's inputs to the labels.

Layer by layer in execution order: draw the layers before, take the layer's inputs as rows, a function of the labels as
targets, solve in closed form, project onto the layer's posterior.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headstart.batching import Batches
from headstart.distributed.rng import Stream
from headstart.distributed.sharding import Piece, Share, Whole, join, spread
from headstart.errors import HeadstartError
from headstart.initializers.regression import (
    draw_shares,
    enough,
    normalising,
    rows_with_bias,
    solve_units,
    take_patches,
    unit_targets,
)
from headstart.initializers.settings import DEFAULT, Settings
from headstart.initializers.walk import (
    count_outputs,
    execution_order,
    is_linear_head,
    layer_input,
    linear_head,
)
from headstart.kernels.noise import Noise, fresh
from headstart.likelihoods import Likelihood
from headstart.linalg.affine import design, groups
from headstart.linalg.blm import Statistics
from headstart.linalg.gaussians import Rescaled, Stacked, UnitGaussian
from headstart.network.forward import check_outputs, draw, drawing
from headstart.network.layer import Bayesian, bayesian_layers
from headstart.network.probe import evaluating, local_is_approximate

MOST_PASSES = 16
"""How often small data goes through the net for the read-out."""
FEWEST_ROWS, ROWS_PER_WEIGHT = 4096, 8
"""Rows of a regression, where they are not given: eight for each weight of a unit, at least 4096."""
FEWEST_IMAGES, PATCHES_PER_WEIGHT = 1024, 4
"""Images whose patches a convolution regresses on, at least; and patches for each weight of a filter."""
RESCALE_IMAGES = 512
"""Images on whose feature maps pre-activations are measured; a dense layer takes `FEWEST_ROWS` rows."""
ROWS_OF_A_DRAW, FEWEST_DRAWS = 256, 16
"""Rows that go through one draw of the weights at most, and draws of a batch: more draws say more, and small feature maps stay in the cache."""
FIT_DRAWS = 8
"""Draws of the net from which the likelihood is fitted."""
LAST_ROWS = {"local": 16_384, "weights": 8192}
"""Rows of the read-out, where they are not given, by how the layers below are drawn: row by row, or as whole functions."""
ROW_BUDGET = 2**25
"""Numbers in the rows of one regression: a convolution with many positions takes fewer images."""
INPUT_BUDGET = 2**26
"""Numbers in the inputs of the net that are looked at at once."""


@torch.no_grad()
def iblm_(
    model: nn.Module, likelihood: Likelihood, batches: Batches, settings: Settings = DEFAULT
) -> Iterator[str]:
    """Initialise every Bayesian layer of `model`, first to last; yields the name of each as it is done."""
    if batches.num_data == 1:
        raise HeadstartError(
            "I-BLM regresses over rows, so it needs at least two of them; the batches hold one."
        )
    if batches.ranks.world > 1 and any(
        layer.posterior.law_is_local for layer in bayesian_layers(model).values()
    ):
        raise HeadstartError(
            "I-BLM does not start nets with posterior='dropout' on several ranks: initialise them with one, then train."
        )
    most = min(batches.num_data, settings.rows or batches.num_data)
    if 0 < most < batches.ranks.world:
        raise HeadstartError(
            f"I-BLM is to look at {most} rows; there are {batches.ranks.world} ranks, use fewer."
        )
    x = next(batches.take(2))[0]
    outputs = count_outputs(model, x)
    *hidden, (last_name, last) = execution_order(model, x).items()
    fits = batches.ranks.agree(last.posterior.units == outputs and is_linear_head(model, last, x))
    if not fits:
        warnings.warn(
            f"The net's output is not a fixed multiple, sum or mean of that of its last Bayesian layer {last_name!r} "
            "(plus what does not depend on it), so I-BLM initializes this layer like a hidden one and cannot fit the "
            "labels before training. Let the net end in that layer: the likelihood applies the link function.",
            stacklevel=2,
        )
    # Row by row where that is the true law, else one draw of the weights for all rows of a batch.
    sampler = "weights" if local_is_approximate(model, x) else "local"
    layers = len(hidden) + (not fits)
    task = _Task(model, likelihood, batches, settings, outputs, sampler, layers)
    for number, (name, layer) in enumerate(hidden):
        task.regress(layer, first=number == 0)
        yield name
    if not fits:
        task.regress(last, first=not hidden)
    elif not settings.read_out:
        task.regress(last, first=not hidden, own_class=True)
    else:
        task.read_out(last, first=not hidden)
    if settings.fit_noise and fits and any(p.requires_grad for p in likelihood.parameters()):
        task.fit_likelihood()
    yield last_name


class _Extent(NamedTuple):
    """Rows of a layer's regression, positions of each, and rows on which its pre-activations are measured."""

    rows: int
    positions: int
    measured: int


class _Stream:
    """Rows in any number, from batch after batch, pass after pass; what is left of a batch is not used."""

    def __init__(self, batches: Batches) -> None:
        batches.ranks.align_()
        self.pieces = Stream(batches.pieces)

    def take(self, rows: int) -> Piece:
        """So many rows, all ranks together."""
        parts: list[Piece] = []
        while sum(part.share.total for part in parts) < rows:
            parts.append(next(self.pieces))
        return join(parts).between(0, rows)


@dataclass(frozen=True)
class _Task:
    """One initialisation: the model with its data and settings, how the layers below are drawn, and how many are hidden."""

    model: nn.Module
    likelihood: Likelihood
    batches: Batches
    settings: Settings
    outputs: int
    sampler: str
    layers: int

    def _inputs(self, layer: Bayesian, piece: Piece) -> Tensor:
        """What reaches the layer from this rank's rows."""
        parts = [
            part.trim(
                layer_input(self.model, layer, part.filled, self.sampler, self._noise(part.share))
            )
            for part in self._parts(piece)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _parts(self, piece: Piece) -> Iterator[Piece]:
        """As many of these rows at a time as share a draw of the layers below: all, where those are drawn row by row."""
        total = piece.share.total
        size = (
            min(self._at_once(total), max(1, total // FEWEST_DRAWS))
            if self.sampler == "weights"
            else total
        )
        return piece.split(size)

    def _at_once(self, total: int) -> int:
        """How many of so many rows may share a draw of the layers below; drawn row by row, they go through together."""
        return ROWS_OF_A_DRAW if self.sampler == "weights" else total

    def _noise(self, share: Share) -> Noise:
        """Of the rows of all ranks, where rows are drawn one by one; weights are drawn alike on every rank."""
        return share.noise() if self.sampler == "local" else fresh

    def regress(self, layer: Bayesian, first: bool, own_class: bool = False) -> None:
        """Every unit regresses its layer's inputs on a function of the labels of its own, chunk by chunk of units."""
        settings, count, ranks = self.settings, layer.posterior.units, self.batches.ranks
        if own_class:  # a read-out has nothing to pass on
            settings = replace(settings, input_share=0.0)
        extent = self._extent(layer, first)
        stream = _Stream(self.batches)
        shares = draw_shares(count, settings.input_share)
        parts: list[UnitGaussian] = []
        for units in torch.arange(count).split(settings.units_per_batch or count):
            piece = stream.take(extent.rows)
            rows = (
                self._all_head_rows(layer, piece)
                if own_class
                else self._patches(layer, piece, extent)
            )
            y = self.likelihood.check(piece.y, self.outputs)
            t, v = unit_targets(self.likelihood, y, units, settings, own_class, ranks)
            parts.extend(
                solve_units(
                    layer, rows, t, v, units, shares[units], settings, self.batches.num_data, ranks
                )
            )
        one, zero = torch.ones_like(parts[0].mean[:1, :1]), torch.zeros_like(parts[0].mean[:1])
        gaussian = Rescaled(Stacked(tuple(parts)), one, zero, settings.variance_scale)
        layer.posterior.project_(gaussian, settings.match)
        if (
            settings.rescale and not own_class
        ):  # on its own batch a fitted unit looks smaller than it is: take another
            inputs = self._inputs(layer, stream.take(extent.measured))
            most_noise = self._most_noise(ranks.average(v))
            scaled = Rescaled(
                gaussian, *normalising(layer, inputs, settings.bias_spread, most_noise, ranks)
            )
            layer.posterior.project_(scaled, settings.match)

    def _patches(self, layer: Bayesian, piece: Piece, extent: _Extent) -> Tensor:
        return take_patches(layer, self._inputs(layer, piece), extent.positions, piece.share)

    def _all_head_rows(self, layer: Bayesian, piece: Piece) -> Tensor:
        parts = [self._head_rows(layer, part)[0] for part in self._parts(piece)]
        return torch.cat(parts, 1).unsqueeze(2)

    def _most_noise(self, noise_var: float) -> float:
        """The share of a layer's pre-activations that may be noise; where rows are scarce, more: there the net is to start unsure."""
        share = self.settings.noise_share
        return (
            1.0
            if share is None
            else share / self.layers**2 / math.sqrt(enough(self.batches.num_data, noise_var))
        )

    def _extent(self, layer: Bayesian, first: bool) -> _Extent:
        """How much a layer looks at. Rows may come twice, each time with a fresh draw of the layers below, where that changes them."""
        settings, weights = self.settings, layer.posterior.size
        few = self._few(1)
        positions, size = design(layer.op, self._inputs(layer, few)).shape[2:]
        most = self.batches.num_data if first or settings.evidence_rows is None else math.inf
        measured = FEWEST_ROWS if positions == 1 else RESCALE_IMAGES
        if positions > 1 and settings.patches is not None:
            patches = max(settings.patches, PATCHES_PER_WEIGHT * weights)
            rows = min(most, settings.rows or max(FEWEST_IMAGES, math.ceil(patches / positions)))
            positions = min(positions, math.ceil(patches / rows))
        else:
            rows = min(most, settings.rows or max(FEWEST_ROWS, ROWS_PER_WEIGHT * weights))
        rows = max(
            2,
            min(
                int(rows),
                ROW_BUDGET // (groups(layer.op) * positions * size),
                INPUT_BUDGET // few.x.numel(),
            ),
        )
        return _Extent(rows, positions, min(rows, measured))

    def _few(self, rows: int) -> Piece:
        """So many rows on every rank, for their shapes."""
        x, y = next(self.batches.take(rows))
        return Piece(x, y, Whole(len(x)))

    def read_out(self, layer: Bayesian, first: bool) -> None:
        """The last layer on all rows up to `last_rows`, from statistics summed over batches; some likelihoods look twice.

        Small data goes through several times, each time with a fresh draw of the layers below, and counts once: the statistics
        are those expected under q, so the read-out does not trust features that another draw would not give.
        """
        layer.posterior.project_(
            self._read_out_once(layer, first, refined=False), self.settings.match
        )
        x, y, _ = self._few(2)
        if (
            self.likelihood.refined_targets(
                self.likelihood.check(y, self.outputs), self._mean_outputs(x)
            )
            is not None
        ):
            layer.posterior.project_(
                self._read_out_once(layer, first, refined=True), self.settings.match
            )

    def _read_out_once(self, layer: Bayesian, first: bool, refined: bool) -> UnitGaussian:
        given, ranks = self.settings.last_rows, self.batches.ranks
        limit = LAST_ROWS[self.sampler] if given is None else given
        members = torch.arange(self.outputs).chunk(groups(layer.op))
        statistics = [Statistics(ranks) for _ in members]
        ranks.align_()
        read, passes = self._read(layer, limit, refined, members, statistics), 1
        if not first:
            passes = max(1, min(MOST_PASSES, limit // read))
        for _ in range(passes - 1):
            read += self._read(layer, limit, refined, members, statistics)
        for mine in statistics:
            # The rows that were read stand for all there are.
            mine.weight = self.batches.num_data / read
        solved = [
            layer.prior.condition(mine, units)
            for mine, units in zip(statistics, members, strict=True)
        ]
        return solved[0] if len(solved) == 1 else Stacked(tuple(solved))

    def _read(
        self,
        layer: Bayesian,
        limit: int,
        refined: bool,
        members: Sequence[Tensor],
        statistics: Sequence[Statistics],
    ) -> int:
        """One pass of at most `limit` rows into the statistics of each group of units; how many rows there were."""
        read = 0
        for piece in self._pieces(limit):
            y = self.likelihood.check(piece.y, self.outputs)
            f = piece.trim(self._mean_outputs(piece.filled)) if refined else None
            targets = None if f is None else self.likelihood.refined_targets(y, f)
            t, v = targets or self.likelihood.regression_targets(y, self.settings.centre)
            rows, offset = self._head_rows(layer, piece)
            # What the net adds to the layer is not the layer's to fit.
            t, v = (t - offset.to(t)).double(), v.double()
            for group, units, mine in zip(rows, members, statistics, strict=True):
                mine.add(group, t[:, units], v[:, units] if v.shape[1] > 1 else v)
            read += piece.share.total
        return read

    def _head_rows(self, layer: Bayesian, piece: Piece) -> tuple[Tensor, Tensor]:
        """The read-out's rows (G, N, D), one for each example whatever its positions; and what the net adds to it (N, K)."""
        head = linear_head(self.model, layer, piece.filled, self.sampler, self._noise(piece.share))
        parts = [
            (weights.double().unsqueeze(-1) * rows_with_bias(layer, inputs)).sum(2)
            for inputs, weights in head.calls
        ]
        return sum(parts[1:], parts[0])[:, : len(piece.x)], piece.trim(head.offset)

    def _pieces(self, rows: int) -> Iterator[Piece]:
        """At most `rows` rows, as many at a time as share a draw."""
        for piece in self.batches.pieces(rows):
            yield from piece.split(self._at_once(piece.share.total))

    def fit_likelihood(self) -> None:
        """What the likelihood learns with the weights, at its best for what the net now predicts."""
        rows = FEWEST_ROWS if self.sampler == "local" else RESCALE_IMAGES
        x, y, share = spread(
            self.batches.ranks, _Stream(self.batches).take(min(rows, self.batches.num_data))
        )
        with evaluating(self.model):
            f = check_outputs(draw(self.model, x, FIT_DRAWS, self.sampler, self._noise(share)))
        f = share.gather(f.movedim(1, 0)).movedim(0, 1)
        self.likelihood.fit_(f, self.likelihood.check(share.gather(y), self.outputs))

    def _mean_outputs(self, x: Tensor) -> Tensor:
        with evaluating(self.model), drawing(self.model, "mean"):
            return self.model(x)
