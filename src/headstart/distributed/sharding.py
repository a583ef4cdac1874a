"""Which rows of a batch are this rank's.

Ranks hold a batch together: its rows are interleaved, and each row's noise is its own.
So a computation over all rows has the same result on any number of ranks: what is drawn for a row
does not depend on who holds it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headstart.distributed.collectives import ProcessGroup
from headstart.distributed.rows import AllRows, interleaved_positions, scatter_and_sum
from headstart.kernels.noise import Noise, fresh
from headstart.nested import is_whole, join_tensors, map_each

Index = Any
"""What picks rows of a tensor: a slice or a tensor of positions."""


class Shard(ABC):
    """A rank's rows among the `total` of a batch."""

    total: int

    @abstractmethod
    def of(self, values: Any) -> Any:
        """This rank's rows, of something with a row for each of the batch's."""

    @abstractmethod
    def gather(self, mine: Tensor) -> Tensor:
        """All rows in order, on every rank."""

    @abstractmethod
    def noise(self) -> Noise:
        """Noise of the batch's rows, once or for several samples, of which a rank gets its own."""

    @abstractmethod
    def within(self, start: int, end: int) -> tuple[Index, Shard]:
        """Which of this rank's rows lie between two of the batch's, and their shard of those."""

    @abstractmethod
    def then(self, others: Sequence[Any]) -> Shard:
        """The shard of several batches, one after another."""


class FullShard(Shard):
    """All rows are this process's."""

    def __init__(self, total: int) -> None:
        self.total = total

    def of(self, values: Any) -> Any:
        return values

    def gather(self, mine: Tensor) -> Tensor:
        return mine

    def noise(self) -> Noise:
        return fresh

    def within(self, start: int, end: int) -> tuple[Index, Shard]:
        end = min(end, self.total)
        return slice(start, end), FullShard(end - start)

    def then(self, others: Sequence[FullShard]) -> Shard:
        return FullShard(self.total + sum(other.total for other in others))


class InterleavedShard(Shard):
    """The rows at the positions `at`; other ranks hold the others.

    Args:
        rows: how to sum over ranks.
        total: the number of rows on all ranks.
        at: the positions of this rank's.
    """

    def __init__(self, rows: AllRows, total: int, at: Tensor) -> None:
        self.rows, self.total, self.at = rows, total, at

    def of(self, values: Any) -> Any:
        return values[self.at.to(values.device)]

    def gather(self, mine: Tensor) -> Tensor:
        return scatter_and_sum(self.rows, mine, self.at, self.total)

    def noise(self) -> Noise:
        # A batch that is `padded` has one row where this rank has none.
        mine = self.at if len(self.at) else torch.zeros(1, dtype=torch.long)

        def draw(shape: tuple[int, ...], like: Tensor) -> Tensor:
            times = shape[0] // len(mine)
            drawn = fresh((times * self.total, *shape[1:]), like).unflatten(0, (times, self.total))
            return drawn[:, mine.to(like.device)].flatten(0, 1)

        return draw

    def within(self, start: int, end: int) -> tuple[Index, Shard]:
        end = min(end, self.total)
        inside = ((self.at >= start) & (self.at < end)).nonzero().squeeze(1)
        return inside, InterleavedShard(self.rows, end - start, self.at[inside] - start)

    def then(self, others: Sequence[InterleavedShard]) -> Shard:
        ats, total = [self.at], self.total
        for other in others:
            ats.append(other.at + total)
            total += other.total
        return InterleavedShard(self.rows, total, torch.cat(ats))


def shard_common(group: ProcessGroup, total: int) -> Shard:
    """This rank's rows of a batch that every rank has: every `size`-th.

    Args:
        group: the ranks.
        total: the rows of the batch.
    """
    if group.is_alone:
        return FullShard(total)
    return InterleavedShard(group.rows, total, torch.arange(total)[group.rank :: group.size])


def shard_contributed(group: ProcessGroup, mine: int) -> Shard:
    """The shard of a rank that contributes `mine` rows to a batch, in turn with the other ranks.

    Args:
        group: the ranks.
        mine: the rows of this one.
    """
    if group.is_alone:
        return FullShard(mine)
    counts = group.counts(mine)
    positions = interleaved_positions(counts, group.rank)
    return InterleavedShard(group.rows, sum(counts), positions)


class ShardedBatch(NamedTuple):
    """Rows of a batch on this rank, and which of the batch's they are."""

    x: Any
    y: Any
    shard: Shard

    @property
    def padded(self) -> Any:
        """x for a net that cannot take none: a row of zeros where there is no row.

        `unpad` what comes of it.
        """
        if len(self.x):
            return self.x
        return map_each(lambda part: part.new_zeros(1, *part.shape[1:]), self.x)

    def unpad(self, found: Tensor) -> Tensor:
        """What a net made of `padded`, without what the row of zeros became."""
        return found if len(self.x) else found[:0]

    def split(self, size: int) -> Iterator[ShardedBatch]:
        """Batches of `size` of the batch's rows; one, where these belong together."""
        size = self.shard.total if is_whole(self.x) else size
        for start in range(0, self.shard.total, size):
            yield self.between(start, start + size)

    def between(self, start: int, end: int) -> ShardedBatch:
        """What lies between two of the batch's rows; all, where these belong together."""
        if is_whole(self.x):
            return self
        index, shard = self.shard.within(start, end)
        return ShardedBatch(self.x[index], self.y[index], shard)


def rebalance(group: ProcessGroup, batch: ShardedBatch) -> ShardedBatch:
    """The same rows, sharded anew where a rank has none of them: a net cannot take none.

    Args:
        group: the ranks.
        batch: their rows.
    """
    if group.is_alone or min(group.counts(len(batch.x))):
        return batch
    shard = shard_common(group, batch.shard.total)
    x, y = (
        map_each(lambda part: shard.of(batch.shard.gather(part)), mine)
        for mine in (batch.x, batch.y)
    )
    return ShardedBatch(x, y, shard)


def concatenate(batches: Sequence[ShardedBatch]) -> ShardedBatch:
    """Several batches as one; of a single one there is nothing to copy."""
    if len(batches) == 1:
        return batches[0]
    shard = batches[0].shard.then([batch.shard for batch in batches[1:]])
    x, y = (join_tensors(parts) for parts in zip(*((b.x, b.y) for b in batches), strict=True))
    return ShardedBatch(x, y, shard)


def join_batches(
    batches: Iterable[ShardedBatch], rows: int, fewest: int = 1
) -> Iterator[ShardedBatch]:
    """The same rows in batches of about `rows`, small ones joined and large ones split.

    Args:
        batches: batches of any size.
        rows: how many rows are enough for a batch.
        fewest: with fewer rows the last one joins the one before.
    """
    ready: list[ShardedBatch] = []
    held: list[ShardedBatch] = []
    for part in (part for batch in batches for part in batch.split(rows)):
        held.append(part)
        if sum(each.shard.total for each in held) >= rows:
            if ready:
                yield concatenate(ready)
            ready, held = held, []
    if ready and sum(each.shard.total for each in held) < fewest:
        ready, held = [*ready, *held], []
    for rest in (ready, held):
        if rest:
            yield concatenate(rest)
