"""Rows that go through a chain of layers once, as its layers are placed one after another.

A net that is not a chain starts each pass at its inputs (`layer_inputs.RowStream`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Tensor, nn

from headstart.distributed.sharding import ShardedBatch, concatenate
from headstart.initializers.layer_inputs import LayerInputs, RowStream
from headstart.initializers.regression import Extent
from headstart.network.chain import chain_elements
from headstart.network.layer import Bayesian, bayesian_layers

CARRIED_BUDGET = 2**27
"""Numbers in what reaches a layer from all carried rows; where there are more, rows wait below."""


class _Copy(nn.Module):
    """The same rows, for others to overwrite."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clone()


class CarriedRows:
    """Rows of the data and what has become of them, through draws of the layers passed so far.

    Every layer takes other rows than the layer before, as long as there are any, so that its
    inputs are those of rows that the layers below were not fitted to.

    Args:
        inputs: the net and its data.
        limit: how many rows at most.
        max_passes: how often a row may come, each time with draws of its own.
    """

    def __init__(self, inputs: LayerInputs, limit: int, max_passes: int) -> None:
        self.elements = chain_elements(inputs.model)
        # These rows are passed more than once, and what comes first may work in place.
        self.inputs = replace(inputs, model=nn.Sequential(_Copy(), *self.elements))
        read = list(inputs.passes(limit, max_passes))
        self.total, self.taken = sum(part.shard.total for part in read), 0
        size = inputs.rows_per_draw(self.total)
        self.parts = [piece for part in read for piece in part.split(size)]

    def reach_(self, layer: Bayesian) -> None:
        """Pass the rows on to a layer, where what reaches it fits into memory.

        Args:
            layer: one of the layers that have not been passed.
        """
        if not any(layer is element for element in self.elements):
            return
        one = self.inputs.of(layer, self.parts[0].between(0, 1))
        if len(one) > 1 or self.total * math.prod(one[0].shape[1:]) > CARRIED_BUDGET:
            return
        for number, part in enumerate(self.parts):
            (x,) = self.inputs.of_one_draw(layer, part)
            self.parts[number] = ShardedBatch(x, part.y, part.shard)
        at = next(i for i, element in enumerate(self.elements) if element is layer)
        self.elements = self.elements[at:]
        self.inputs = replace(self.inputs, model=nn.Sequential(*self.elements))

    def take(self, rows: int) -> ShardedBatch:
        """So many rows that were not taken before, or the longest ago.

        Args:
            rows: how many; no more than there are.
        """
        found = self.beside(rows)
        self.taken += rows
        return found

    def beside(self, rows: int) -> ShardedBatch:
        """The rows that would be taken next: other rows than those taken last.

        Some of every part, so that they have met as many draws as there are.

        Args:
            rows: how many; no more than there are.
        """
        counts = [part.shard.total for part in self.parts]
        pieces: list[ShardedBatch] = []
        for part, (start, end) in zip(self.parts, next_rows(counts, self.taken, rows), strict=True):
            count = part.shard.total
            pieces += [part.between(start, min(count, end)), part.between(0, max(0, end - count))]
        return concatenate([piece for piece in pieces if piece.shard.total])


def next_rows(counts: Sequence[int], taken: int, rows: int) -> list[tuple[int, int]]:
    """Rows after so many that were taken, some of every part, each row of a part at most once.

    Args:
        counts: the rows of each part.
        taken: how many rows were taken before, round and round.
        rows: how many to take; no more than there are.

    Returns:
        Of each part where its rows start and end; those behind the last go on with the first.

    Example:
        >>> next_rows([4, 4], taken=0, rows=4), next_rows([4, 4], taken=6, rows=4)
        ([(0, 2), (0, 2)], [(3, 5), (3, 5)])
    """
    total, before = sum(counts), 0
    shares: list[tuple[int, int]] = []
    for count in counts:
        ends = (before, before + count)
        first, last = (
            ends[1] * done // total - ends[0] * done // total for done in (taken, taken + rows)
        )
        shares.append((first % count, last - first))
        before += count
    # Rounding may ask a part for a row more than it has, or for one less than none: others help.
    within = [min(count, max(0, share)) for (_, share), count in zip(shares, counts, strict=True)]
    missing, found = rows - sum(within), []
    for (start, _), share, count in zip(shares, within, counts, strict=True):
        more = max(-share, min(missing, count - share))
        missing -= more
        found.append((start, start + share + more))
    return found


def carry(inputs: LayerInputs, limit: int, max_passes: int, budget: int) -> CarriedRows | None:
    """Rows of a net that is a chain and calls each layer once, where they fit into memory.

    Args:
        inputs: the net and its data.
        limit: how many rows at most.
        max_passes: how often a row may come.
        budget: how many numbers the rows may have.
    """
    few = inputs.few(1).x
    if not isinstance(few, Tensor) or limit * few.numel() > budget:
        return None
    elements = chain_elements(inputs.model)
    for layer in bayesian_layers(inputs.model).values():
        if inputs.calls.get(layer, 1) > 1 or not any(layer is each for each in elements):
            return None
    return CarriedRows(inputs, limit, max_passes)


def row_source(
    inputs: LayerInputs, carried: CarriedRows | None, extent: Extent
) -> RowStream | CarriedRows:
    """Where the rows of a layer's regression come from: the carried ones, where those are enough.

    Args:
        inputs: the net and its data.
        carried: the carried rows, where there are any.
        extent: how much of the data the regression uses.
    """
    if carried is None or extent.rows + extent.measured > carried.total:
        return RowStream(inputs)
    return carried


def read_out_rows(
    inputs: LayerInputs,
    carried: CarriedRows | None,
    layer: Bayesian,
    limit: int,
    max_passes: int,
) -> Iterator[tuple[LayerInputs, ShardedBatch]]:
    """The rows of a read-out, as many at a time as share a draw, and what takes them to it.

    Args:
        inputs: the net and its data.
        carried: the carried rows, where they are to be read out.
        layer: the layer.
        limit: a bound on other rows.
        max_passes: a bound on the passes of these.
    """
    if carried is None:
        for batch in inputs.passes(limit, max_passes):
            yield inputs, batch
        return
    carried.reach_(layer)
    for batch in carried.parts:
        yield replace(carried.inputs, read=inputs.read, mixes=inputs.mixes), batch
