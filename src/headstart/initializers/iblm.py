"""I-BLM: each unit starts at the posterior of a Bayesian linear model from inputs to labels.

Layer by layer in execution order: draw the layers before, take the layer's inputs as rows,
a function of the labels as targets, solve in closed form, project onto the layer's posterior.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from headstart.batching import Batches
from headstart.distributed.sharding import ShardedBatch, rebalance
from headstart.initializers.carried import CarriedRows, carry, read_out_rows, row_source
from headstart.initializers.certainty import max_noise_fraction
from headstart.initializers.heads import find_heads, label_outputs
from headstart.initializers.layer_inputs import LayerInputs, RowStream, check_enough_rows
from headstart.initializers.plain_start import keep_mean_, why_plain
from headstart.initializers.regression import (
    Extent,
    are_constant,
    count_positions,
    draw_input_fractions,
    solve_units,
    take_patches,
    unit_targets,
    weighted_by_label,
)
from headstart.initializers.rescaling import normalizing
from headstart.initializers.settings import DEFAULT_SETTINGS, IBLMSettings
from headstart.initializers.walk import count_calls, execution_order
from headstart.likelihoods import Likelihood
from headstart.linalg.affine import groups
from headstart.linalg.blm import Statistics
from headstart.linalg.gaussians import Rescaled, Stacked, UnitGaussian
from headstart.linalg.precision import in_double
from headstart.nested import join_tensors, map_each, of_head
from headstart.network.forward import draw
from headstart.network.layer import Bayesian, count_members
from headstart.network.members import member
from headstart.network.probe import evaluating, local_is_approximate

MAX_PASSES = 16
"""How often small data goes through the net for the read-out."""
MIN_ROWS, ROWS_PER_WEIGHT = 4096, 8
"""Rows of a regression, where they are not given: eight for each weight of a unit, or more."""
MIN_IMAGES, PATCHES_PER_WEIGHT = 1024, 4
"""Images whose patches a convolution regresses on; and patches for each weight of a filter."""
MIN_LABELED_IMAGES = 64
"""Images of a layer whose every position has a label of its own: all their patches are used."""
RESCALE_IMAGES = 512
"""Images on whose feature maps pre-activations are measured; a dense layer takes `MIN_ROWS`."""
FIT_DRAWS = 8
"""Draws of the net from which the likelihood is fitted."""
LAST_ROWS = {"local": 16_384, "weights": 8192}
"""Rows of the read-out, where they are not given, by how the layers below are drawn."""
DESIGN_BUDGET = 2**25
"""Numbers in the rows of one regression: a convolution with many positions takes fewer images."""
INPUT_BUDGET = 2**26
"""Numbers in the inputs of the net that are used at once."""


@torch.no_grad()
def iblm_(
    model: nn.Module,
    likelihood: Likelihood,
    batches: Batches,
    settings: IBLMSettings = DEFAULT_SETTINGS,
) -> Iterator[str]:
    """Initialize every Bayesian layer of `model`, first to last; of a mixture member by member.

    Each member has label codes, input projections, rows and draws of its own.
    What the likelihood learns is fitted at the end, to the predictions of all of them.

    Args:
        model: the net, overwritten.
        likelihood: what turns labels into targets; its noise is fitted where it is learned.
        batches: the data.
        settings: the choices that the paper leaves open.

    Yields:
        The name of each layer as it is done.
    """
    check_enough_rows(model, batches, settings)
    predictions: list[tuple[Tensor, Tensor]] = []
    members = count_members(model)
    for index in range(members):
        is_last = index == members - 1
        with member(model, index):
            yield from _initialize_member_(
                model, likelihood, batches, settings, predictions, is_last
            )


def _initialize_member_(
    model: nn.Module,
    likelihood: Likelihood,
    batches: Batches,
    settings: IBLMSettings,
    predictions: list[tuple[Tensor, Tensor]],
    is_last: bool,
) -> Iterator[str]:
    """`iblm_` of one member; with the last, the predictions of all fit the likelihood."""
    x, y = next(batches.take(2))
    outputs = label_outputs(model, likelihood, x, y)
    order = execution_order(model, x)
    heads = batches.group.broadcast(find_heads(model, likelihood, x, order))
    # Row by row where that is the true law, else one draw of the weights for all rows of a batch.
    sampler = "weights" if settings.one_draw or local_is_approximate(model, x) else "local"
    hidden, times = sorted(order.keys() - heads, key=list(order).index), count_calls(model, x)
    how = settings, outputs, sampler, len(hidden), times
    run = IBLM(model, likelihood, batches, *how).carrying(len(heads))
    for name in hidden:
        if why_plain(model, order[name], x, times[order[name]]):
            keep_mean_(order[name])
        else:
            run.regress_(order[name], first=name == next(iter(order)))
        yield name
    for name, found in heads.items():
        read_out = run.of_head(*found)
        if settings.read_out:
            read_out.read_out_(order[name], first=not hidden)
        else:
            read_out.regress_(order[name], first=not hidden, own_class=True)
        yield name
    if settings.fit_noise and heads and any(p.requires_grad for p in likelihood.parameters()):
        predictions.append(run.predictions())
        # The regressions of every member take the likelihood as it was given.
        if is_last:
            draws, labels = zip(*predictions, strict=True)
            likelihood.fit_(join_tensors(draws, dim=1), join_tensors(labels))
        # The noise is that of the read-outs, and so is the time it took.
        yield name


@dataclass(frozen=True)
class IBLM:
    """One initialization of a model.

    Args:
        model: the net, overwritten.
        likelihood: what turns labels into targets.
        batches: the data.
        settings: the choices that the paper leaves open.
        outputs: what the likelihood's `check` is told of the outputs of the net.
        sampler: how the layers below a layer are drawn, "local" or "weights".
        layers: how many layers are initialized as hidden ones.
        calls: how often a pass calls each layer; once, where it is not said.
        head: which of several heads of the net the likelihood is that of; None: all of them.
        mixes: whether the net mixes the rows or positions that its head gives.
        carried: rows that go through the net once; None: each layer has rows of its own.
    """

    model: nn.Module
    likelihood: Likelihood
    batches: Batches
    settings: IBLMSettings
    outputs: Any
    sampler: str
    layers: int
    calls: Mapping[Bayesian, int] = field(default_factory=dict)
    head: str | None = None
    mixes: bool = False
    carried: CarriedRows | None = None

    @property
    def inputs(self) -> LayerInputs:
        """What reaches a layer."""
        how = self.calls, self.read, self.mixes, self.settings.one_draw
        return LayerInputs(self.model, self.batches, self.sampler, *how)

    def carrying(self, heads: int = 1) -> IBLM:
        """The same with carried rows, for a chain with one head; more than usual are streamed."""
        rows, settings = self.last_rows, self.settings
        shares = settings.read_out and settings.units_per_batch is None and heads == 1
        if not self.layers or not shares or settings.one_draw or rows > LAST_ROWS[self.sampler]:
            return self
        return replace(self, carried=carry(self.inputs, rows, MAX_PASSES, INPUT_BUDGET))

    @property
    def last_rows(self) -> int:
        """A bound on the rows of the read-out."""
        given = self.settings.last_rows
        return LAST_ROWS[self.sampler] if given is None else given

    def of_head(self, name: str | None, mixes: bool = False) -> IBLM:
        """The same for one head of the net.

        Args:
            name: of the head; None where there is but one.
            mixes: whether the net mixes the rows or positions that the head gives.
        """
        if name is None:
            return replace(self, mixes=mixes)
        likelihood = self.likelihood.heads()[name]
        outputs = self.outputs[name]
        return replace(self, likelihood=likelihood, outputs=outputs, head=name, mixes=mixes)

    def read(self, output: Any) -> Tensor:
        """What the likelihood reads in the output of the net."""
        found: Tensor = self.likelihood.read_rows(of_head(output, self.head))
        return found

    def labels(self, y: Any) -> Any:
        """The labels as the likelihood checks them."""
        return self.likelihood.check(of_head(y, self.head), self.outputs)

    def regress_(self, layer: Bayesian, first: bool, own_class: bool = False) -> None:
        """Every unit regresses its layer's inputs on a function of the labels of its own.

        A layer whose inputs are the same for every row keeps its mean.

        Args:
            layer: the layer, overwritten.
            first: whether it sees the data itself.
            own_class: whether the layer is the read-out, each unit on its own output.
        """
        settings, count, rows = self.settings, layer.posterior.units, self.batches.rows
        if own_class:
            # A read-out has nothing to pass on.
            settings = replace(settings, input_share=0.0)
        carried = None if first else self.carried
        if carried is not None:
            carried.reach_(layer)
        extent = self.extent(layer, first)
        source = row_source(self.inputs, carried, extent)
        fractions = draw_input_fractions(count, settings.input_share)
        solved: list[UnitGaussian] = []
        for units in torch.arange(count).split(settings.units_per_batch or count):
            batch = source.take(extent.rows)
            designs = self._designs(source.inputs, layer, batch, extent, own_class)
            if not own_class and are_constant(designs, rows):
                keep_mean_(layer)
                return
            y = self.labels(batch.y)
            at, labeled_rows = designs.shape[2], weighted_by_label(rows, self.likelihood, y)
            t, v = unit_targets(self.likelihood, y, units, settings, own_class, labeled_rows, at)
            # Where each position has a label there are as many labels as positions.
            labeled = not own_class and at == self.likelihood.positions(self.outputs)
            num_data = self.batches.num_data * (at if labeled else 1)
            solved += solve_units(
                layer, designs, t, v, units, fractions[units], settings, num_data, labeled_rows
            )
        one, zero = torch.ones_like(solved[0].mean[:1, :1]), torch.zeros_like(solved[0].mean[:1])
        gaussian = Rescaled(Stacked(tuple(solved)), one, zero, settings.variance_scale)
        layer.posterior.project_(gaussian, settings.match)
        if settings.rescale and not own_class:
            # On its own batch a fitted unit varies less than elsewhere: take another.
            inputs = source.inputs.of(layer, source.beside(extent.measured))
            max_noise = max_noise_fraction(
                settings.noise_share, self.layers, num_data, labeled_rows.overall_mean(v)
            )
            change = normalizing(layer, inputs, settings.bias_spread, max_noise, rows)
            layer.posterior.project_(Rescaled(gaussian, *change), settings.match)

    @staticmethod
    def _designs(
        inputs: LayerInputs, layer: Bayesian, batch: ShardedBatch, extent: Extent, own_class: bool
    ) -> Tensor:
        """The rows of a regression, (G, N, P, D)."""
        if own_class:
            return inputs.all_head_rows(layer, batch)
        return take_patches(layer, inputs.of(layer, batch), extent.positions, batch.shard)

    def extent(self, layer: Bayesian, first: bool) -> Extent:
        """How much of the data a layer's regression uses.

        Rows may come twice, each time with a fresh draw of the layers below, where there are any.

        Args:
            layer: the layer.
            first: whether it sees the data itself.
        """
        settings, weights = self.settings, layer.posterior.size
        few = self.inputs.few(1)
        inputs = self.inputs.of(layer, few)
        positions, size = count_positions(layer, inputs), layer.fan_in
        labeled = positions == self.likelihood.positions(self.outputs)
        limit = self.batches.num_data if first or settings.evidence_rows is None else math.inf
        measured = MIN_ROWS if positions == 1 else RESCALE_IMAGES
        if positions > 1 and settings.patches is not None:
            patches = max(settings.patches, PATCHES_PER_WEIGHT * weights)
            images = MIN_LABELED_IMAGES if labeled else MIN_IMAGES
            rows = min(limit, settings.rows or max(images, math.ceil(patches / positions)))
            positions = positions if labeled else min(positions, math.ceil(patches / rows))
        else:
            rows = min(limit, settings.rows or max(MIN_ROWS, ROWS_PER_WEIGHT * weights))
        in_design = DESIGN_BUDGET // (groups(layer.op) * positions * size)
        rows = max(2, min(int(rows), in_design, INPUT_BUDGET // few.x.numel()))
        return Extent(rows, positions, min(rows, measured))

    def read_out_(self, layer: Bayesian, first: bool) -> None:
        """The last layer on all rows up to `last_rows`; some likelihoods need two rounds.

        Small data goes through several times, each time with a fresh draw of the layers below, and
        counts once: the statistics are those expected under q, and the read-out does not trust
        features that another draw would not give.

        Args:
            layer: the layer, overwritten.
            first: whether it sees the data itself.
        """
        match = self.settings.match
        layer.posterior.project_(self._read_out_once(layer, first, refined=False), match)
        x, y, _ = self.inputs.few(2)
        if self.likelihood.refined_targets(self.labels(y), self.inputs.mean_outputs(x)) is not None:
            layer.posterior.project_(self._read_out_once(layer, first, refined=True), match)

    def _read_out_once(self, layer: Bayesian, first: bool, refined: bool) -> UnitGaussian:
        members = torch.arange(layer.posterior.units).chunk(groups(layer.op))
        statistics, read = [Statistics(self.batches.rows) for _ in members], 0
        # The outputs of the mean network need the data.
        carried, passes = None if refined else self.carried, 1 if first else MAX_PASSES
        for inputs, batch in read_out_rows(self.inputs, carried, layer, self.last_rows, passes):
            t, v = self._read_out_targets(batch, refined)
            rows, offset = inputs.head_rows(layer, batch)
            # What the net adds to the layer is not the layer's to fit.
            t, v = in_double(t - offset.to(t)), in_double(v)
            for group, units, mine in zip(rows, members, statistics, strict=True):
                mine.add(group, t[:, units], v[:, units] if v.shape[1] > 1 else v)
            read += batch.shard.total
        for mine in statistics:
            mine.weight = self.batches.num_data / read
        solved = [
            layer.prior.condition(mine, units)
            for mine, units in zip(statistics, members, strict=True)
        ]
        return solved[0] if len(solved) == 1 else Stacked(tuple(solved))

    def _read_out_targets(self, batch: ShardedBatch, refined: bool) -> tuple[Tensor, Tensor]:
        y = self.labels(batch.y)
        f = batch.unpad(self.inputs.mean_outputs(batch.padded)) if refined else None
        found = None if f is None else self.likelihood.refined_targets(y, f)
        return found or self.likelihood.regression_targets(y, self.settings.center)

    def predictions(self) -> tuple[Tensor, Tensor]:
        """Draws of the net's outputs for some rows, (S, N, K), and the labels of these."""
        rows = MIN_ROWS if self.sampler == "local" else RESCALE_IMAGES
        batch = RowStream(self.inputs).take(min(rows, self.batches.num_data))
        x, y, shard = rebalance(self.batches.group, batch)
        with evaluating(self.model):
            noise = self.inputs.noise(shard)
            f = self.likelihood.read(draw(self.model, x, FIT_DRAWS, self.sampler, noise))
        f = map_each(lambda part: shard.gather(part.movedim(1, 0)).movedim(0, 1), f)
        return f, self.labels(map_each(shard.gather, y))
