"""What reaches a layer from the data, through draws of the layers before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from headstart.batching import Batches
from headstart.distributed.sharding import FullShard, Shard, ShardedBatch, concatenate
from headstart.distributed.stream import BatchStream
from headstart.errors import HeadstartError
from headstart.initializers.linear_tail import tail_rows
from headstart.initializers.regression import rows_with_bias
from headstart.initializers.settings import IBLMSettings
from headstart.initializers.walk import Read, as_given, layer_inputs, linear_head
from headstart.kernels.noise import Noise, fresh
from headstart.linalg.precision import in_double
from headstart.nested import TensorTree, feed, heads_of, is_whole
from headstart.network.forward import drawing
from headstart.network.layer import Bayesian, bayesian_layers
from headstart.network.probe import evaluating

MAX_ROWS_PER_DRAW, MIN_DRAWS = 256, 16
"""Rows that go through one draw of the weights, and draws of a batch.

More draws say more, and small feature maps stay in the cache.
"""


def check_enough_rows(model: nn.Module, batches: Batches, settings: IBLMSettings) -> None:
    """Refuse data with too few rows, for a regression or for every rank.

    Args:
        model: the net.
        batches: the data.
        settings: how many rows are to be used.

    Raises:
        HeadstartError: there are too few.
    """
    if batches.num_data == 1:
        raise HeadstartError(
            "I-BLM regresses over rows, so it needs at least two of them; the batches hold one."
        )
    if batches.group.is_alone:
        return
    if any(layer.posterior.law_is_local for layer in bayesian_layers(model).values()):
        raise HeadstartError(
            "I-BLM does not start nets with posterior='dropout' on several ranks: "
            "initialize them with one, then train."
        )
    rows = min(batches.num_data, settings.rows or batches.num_data)
    if 0 < rows < batches.group.size:
        raise HeadstartError(
            f"I-BLM is to use {rows} rows; there are {batches.group.size} ranks, use fewer."
        )


class RowStream:
    """Rows in any number, from batch after batch, pass after pass.

    What is left of a batch is not used.

    Args:
        inputs: the net and its data, whose ranks draw the same order.
    """

    def __init__(self, inputs: LayerInputs) -> None:
        inputs.batches.group.synchronize_rng_()
        self.inputs, self.shards = inputs, BatchStream(inputs.batches.shards)

    def take(self, rows: int) -> ShardedBatch:
        """So many rows, all ranks together."""
        parts: list[ShardedBatch] = []
        while sum(part.shard.total for part in parts) < rows:
            parts.append(next(self.shards))
            if is_whole(parts[0].x):
                return parts[0]
        return concatenate(parts).between(0, rows)

    def beside(self, rows: int) -> ShardedBatch:
        """Other rows than those taken last."""
        return self.take(rows)


@dataclass(frozen=True)
class LayerInputs:
    """A model with its data, and how the layers before a layer are drawn.

    Args:
        model: the net.
        batches: the data.
        sampler: "local" draws the layers before row by row, "weights" for several rows at once.
        calls: how often a pass calls each layer; once, where it is not said.
        read: what the likelihood reads in the net's output.
        mixes: whether the net mixes the rows or positions that its read-out gives.
        one_draw: whether "weights" draws once for all rows of a batch, whatever their number.
    """

    model: nn.Module
    batches: Batches
    sampler: str
    calls: Mapping[Bayesian, int] = field(default_factory=dict)
    read: Read = as_given
    mixes: bool = False
    one_draw: bool = False

    def of(self, layer: Bayesian, batch: ShardedBatch) -> list[Tensor]:
        """What reaches the layer from this rank's rows, at each of its calls."""
        parts = [self.of_one_draw(layer, part) for part in self.parts(batch)]
        return (
            parts[0] if len(parts) == 1 else [torch.cat(call) for call in zip(*parts, strict=False)]
        )

    def of_one_draw(self, layer: Bayesian, part: ShardedBatch) -> list[Tensor]:
        """`of` rows that share one draw of the layers before, where weights are drawn."""
        noise, count = self.noise(part.shard), self.calls.get(layer, 1)
        found = layer_inputs(self.model, layer, part.padded, self.sampler, noise, count)
        return [part.unpad(inputs) for inputs in found]

    def parts(self, batch: ShardedBatch) -> Iterator[ShardedBatch]:
        """As many rows of a batch at a time as go through one draw, in several draws."""
        return batch.split(self.rows_per_draw(batch.shard.total))

    def rows_per_draw(self, total: int) -> int:
        """How many of so many rows share a draw; drawn row by row, all go through together."""
        if self.sampler == "weights" and not self.one_draw:
            return min(MAX_ROWS_PER_DRAW, max(1, total // MIN_DRAWS))
        return total

    def noise(self, shard: Shard) -> Noise:
        """Of the rows of all ranks, where rows are drawn one by one.

        Weights are drawn alike on every rank.
        """
        return shard.noise() if self.sampler == "local" else fresh

    def few(self, rows: int) -> ShardedBatch:
        """So many rows on every rank, for their shapes."""
        x, y = next(self.batches.take(rows))
        return ShardedBatch(x, y, FullShard(len(x)))

    def chunks(self, rows: int) -> Iterator[ShardedBatch]:
        """At most `rows` rows, as many at a time as share a draw."""
        at_once = MAX_ROWS_PER_DRAW if self.sampler == "weights" else rows
        for batch in self.batches.shards(rows):
            yield from batch.split(at_once)

    def passes(self, rows: int, most: int) -> Iterator[ShardedBatch]:
        """`chunks`, and again where all rows are few: as many passes as have `rows` rows together.

        Args:
            rows: a bound on the rows.
            most: a bound on the passes.
        """
        self.batches.group.synchronize_rng_()
        read = 0
        for batch in self.chunks(rows):
            read += batch.shard.total
            yield batch
        for _ in range(min(most, rows // read) - 1):
            yield from self.chunks(rows)

    def head_rows(self, layer: Bayesian, batch: ShardedBatch) -> tuple[Tensor, Tensor]:
        """The rows of a read-out, one for each label, and what the net adds to its output.

        Returns:
            Rows (G, N, D) and the offset (N, K): one for each example, whatever its positions, or
            one for each position, where the net has outputs there.
        """
        noise = self.noise(batch.shard)
        if self.mixes:
            rows, offset = tail_rows(
                self.model, layer, batch.padded, self.sampler, noise, self.read
            )
            return rows[:, : len(batch.x)].flatten(1, -2), batch.unpad(offset).flatten(0, -2)
        head = linear_head(self.model, layer, batch.padded, self.sampler, noise, self.read)
        rows = head.gather(
            [
                in_double(weights).unsqueeze(-1) * rows_with_bias(layer, inputs)
                for inputs, weights in head.calls
            ]
        )[:, : len(batch.x)]
        return rows.flatten(1, -2), batch.unpad(head.offset).flatten(0, -2)

    def all_head_rows(self, layer: Bayesian, batch: ShardedBatch) -> Tensor:
        """`head_rows` of a batch in several draws, as rows of one position, (G, N, 1, D)."""
        parts = [self.head_rows(layer, part)[0] for part in self.parts(batch)]
        return torch.cat(parts, 1).unsqueeze(2)

    def mean_outputs(self, x: TensorTree) -> Tensor:
        """The outputs of the mean network."""
        with evaluating(self.model), drawing(self.model, "mean"):
            return self.read(heads_of(feed(self.model, x)))
