"""Data as the core sees it: a re-iterable of `(x, y)` with a known number of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headstart.distributed.collectives import SINGLE_PROCESS, ProcessGroup
from headstart.distributed.rng import RNG
from headstart.distributed.rows import AllRows
from headstart.distributed.samplers import distributed_sampler, is_sharded
from headstart.distributed.sharding import ShardedBatch, shard_common, shard_contributed
from headstart.distributed.stream import BatchStream
from headstart.errors import HeadstartError
from headstart.linalg.precision import in_double
from headstart.nested import TensorTree, is_whole, parts_of
from headstart.network.inputs import (
    as_tensors,
    check_finite,
    has_labels,
    is_array,
    is_pair,
    read_batch,
)
from headstart.network.placement import placing

Batch = tuple[Any, Any]
"""Inputs and labels, each a tensor or several with the same rows."""
Data = Any
"""A DataLoader, any re-iterable of batches, or all rows at once.

A batch is a pair `(x, y)` or a dictionary with labels, and so are all rows at once. Inputs and
labels are tensors or arrays, or a dictionary or tuple of them.
"""


@dataclass(frozen=True)
class Collated:
    """Batches of any kind, of which a function makes pairs `(x, y)`.

    Args:
        batches: a DataLoader or a re-iterable of anything.
        collate: what makes `(x, y)`, or a dictionary with labels, of one of its batches.

    Example:
        >>> triples = [(torch.randn(6, 2), torch.randn(6, 3), torch.randn(6))]
        >>> both = Collated(triples, lambda batch: (batch[:2], batch[2]))
        >>> Batches(both).num_data
        6
    """

    batches: Any
    collate: Callable[[Any], Any]

    def __iter__(self) -> Iterator[Any]:
        return (self.collate(batch) for batch in self.batches)

    def __len__(self) -> int:
        return len(self.batches)

    def __getattr__(self, name: str) -> Any:
        # What a DataLoader is asked for its number of rows and its order.
        if name in ("sampler", "batch_sampler", "dataset"):
            return getattr(self.batches, name)
        raise AttributeError(name)


@dataclass(frozen=True)
class Sharded:
    """Batches of which each rank has its own: a stream that was divided by rank already.

    A loader with a DistributedSampler is recognized without this.

    Args:
        batches: the batches of this rank.

    Example:
        >>> x = torch.randn(10, 3)
        >>> Batches(Sharded((x, x.sum(1)))).num_data  # on one process
        10
    """

    batches: Data
    is_sharded = True


class Batches:
    """Any of the accepted kinds of data, checked, on the model's device and in its dtype.

    All rows at once are shuffled anew each pass with torch's own random state.
    On several ranks the rows of each batch that all of them have are interleaved among them.
    What a sampler or the caller has sharded stays as it is.

    Args:
        data: a DataLoader, a re-iterable of batches, all rows at once, or `Sharded` of these.
        batch_size: rows of a batch, where `data` is all rows at once.
        shuffle: whether these are shuffled.
        num_data: the number of rows, where `data` cannot tell it.
        like: the model whose device and dtype the batches get; None leaves them as they are.
        move_y: whether labels go to that device too.
        group: the processes that share the batches.

    Raises:
        HeadstartError: where the data cannot be read, with a sentence about why.

    Example:
        >>> data = Batches((torch.randn(10, 3), torch.randn(10)), batch_size=4)
        >>> data.num_data, [len(x) for x, _ in data]
        (10, [4, 4, 2])
    """

    def __init__(
        self,
        data: Data,
        *,
        batch_size: int = 64,
        shuffle: bool = True,
        num_data: int | None = None,
        like: nn.Module | None = None,
        group: ProcessGroup = SINGLE_PROCESS,
        move_y: bool = True,
    ) -> None:
        if batch_size < 1:
            raise HeadstartError(f"batch_size must be at least 1, not {batch_size}.")
        self.group, self.sharded = group, is_sharded(data)
        data = data.batches if getattr(data, "is_sharded", False) else data
        if isinstance(data, (tuple, list)) and len(data) == 2 and is_whole(data[0]):
            # One batch.
            data = [data]
        self.pair = _as_pair(data)
        self.batch_size, self.shuffle = batch_size, shuffle
        if self.pair is not None:
            x, y = self.pair
            if len(x) != len(y):
                raise HeadstartError(
                    f"x has {len(x)} rows and y has {len(y)}; they must have the same number."
                )
            _refuse_empty(len(x))
            check_finite(x, "x")
            check_finite(y, "y")
        elif is_array(data) or not isinstance(data, Iterable):
            raise HeadstartError(
                "Batches must be a DataLoader, an iterable of (x, y), or a pair of arrays, "
                f"not {type(data).__name__}."
            )
        elif isinstance(data, Iterator):
            raise HeadstartError(
                "The batches are an iterator that can be read only once; "
                "pass a list or a DataLoader instead."
            )
        self.loader: Iterable[Any] = data
        self.num_data = num_data if num_data is not None else self._count()
        self.like, self.move_y = like, move_y

    @property
    def batches_per_pass(self) -> int:
        """The number of batches of a pass, about: a loader may refuse to tell."""
        with suppress(TypeError):
            if self.pair is None and isinstance(self.loader, Sized):
                return len(self.loader)
        return math.ceil(self.num_data / self.batch_size)

    @property
    def knows_length(self) -> bool:
        """Whether `batches_per_pass` is exact."""
        with suppress(TypeError):
            return self.pair is not None or (
                isinstance(self.loader, Sized) and len(self.loader) >= 0
            )
        return False

    @property
    def rows(self) -> AllRows:
        """Sums and means over the rows that all processes hold together."""
        return self.group.rows

    def __iter__(self) -> Iterator[Batch]:
        """One pass: this rank's rows of every batch.

        A batch with fewer rows than there are ranks, the last, is left out.
        """
        if self.group.is_alone or self.sharded:
            yield from (
                self._placed(self.loader) if self.pair is None else self.take(len(self.pair[0]))
            )
            return
        enough = 0
        for x, y, shard in self.shards():
            if shard.total >= self.group.size:
                enough += 1
                yield x, y
        if not enough:
            raise HeadstartError(
                f"There are {self.group.size} ranks but no batch with as many rows; "
                "raise batch_size, or use fewer ranks."
            )

    def shards(self, rows: int | None = None) -> Iterator[ShardedBatch]:
        """One pass: this rank's shard of every batch.

        Args:
            rows: a bound on the rows of all ranks together; None for a whole pass.
        """
        place = placing(self.like, self.move_y)
        if self.sharded and not self.group.is_alone:
            yield from self._contributed(rows)
        elif self.pair is not None:
            for chosen in self._chosen(rows):
                shard = shard_common(self.group, len(chosen))
                mine = shard.of(chosen)
                yield ShardedBatch(*place(self.pair[0][mine], self.pair[1][mine]), shard)
        else:
            for x, y in self._read(self.loader) if rows is None else self._first(rows):
                shard = shard_common(self.group, len(x))
                yield ShardedBatch(*place(shard.of(x), shard.of(y)), shard)

    def _contributed(self, rows: int | None) -> Iterator[ShardedBatch]:
        """Ranks contribute their own batches, some perhaps fewer, until none has any more."""
        mine: Iterator[Batch] = iter(self)
        x, y = next(mine)
        left = math.inf if rows is None else rows
        while left > 0:
            batch = ShardedBatch(x, y, shard_contributed(self.group, len(x)))
            if batch.shard.total == 0:
                return
            total = int(min(left, batch.shard.total))
            yield batch if total == batch.shard.total else batch.between(0, total)
            left -= total
            x, y = next(mine, (x[:0], y[:0]))

    def _read(self, batches: Iterable[Any]) -> Iterator[Batch]:
        """Batches as they are, checked."""
        seen = 0
        for number, batch in enumerate(batches):
            x, y = read_batch(batch, f"Batch {number}")
            check_finite(x, f"x of batch {number}")
            check_finite(y, f"y of batch {number}")
            if is_whole(x) and not self.group.is_alone:
                raise HeadstartError("hs.whole inputs are not sharded: use one process for them.")
            seen += len(x)
            yield x, y
        _refuse_empty(seen)

    def _placed(self, batches: Iterable[Any]) -> Iterator[Batch]:
        place = placing(self.like, self.move_y)
        for x, y in self._read(batches):
            yield place(x, y)

    def digest(self) -> list[float] | None:
        """Sums that tell all rows at once from others."""
        if self.pair is None:
            return None
        return [float(in_double(part).sum()) for x in self.pair for part in parts_of(x)]

    def forever(self, rng: RNG | None = None) -> BatchStream[Batch]:
        """Batch after batch, pass after pass.

        Args:
            rng: what the order is drawn from, where ranks draw noise of their own.
        """
        return BatchStream(lambda: iter(self), rng, self._set_epoch)

    def take(self, rows: int) -> Iterator[Batch]:
        """At most `rows` rows, each once, in batches, of those that this process reads.

        A source with a method `take_rows` need not load more.
        """
        place = placing(self.like, self.move_y)
        if self.pair is not None:
            x, y = self.pair
            for chosen in self._chosen(rows):
                yield place(x[chosen], y[chosen])
            return
        for x, y in self._first(rows):
            yield place(x, y)

    def _chosen(self, rows: int | None) -> Iterable[Tensor]:
        """Which rows of the pair, batch by batch."""
        assert self.pair is not None
        count = len(self.pair[0])
        order = torch.randperm(count) if self.shuffle else torch.arange(count)
        return order[:rows].split(self.batch_size)

    def _first(self, rows: int) -> Iterator[Batch]:
        """At most so many rows of the loader's."""
        loader = self.loader.take_rows(rows) if hasattr(self.loader, "take_rows") else self.loader
        for x, y in self._read(loader):
            yield (x, y) if is_whole(x) else (x[:rows], y[:rows])
            rows -= len(x)
            if rows <= 0:
                return

    def _set_epoch(self, number: int) -> None:
        """A DistributedSampler has to be told that a new pass begins."""
        announce = getattr(distributed_sampler(self.loader), "set_epoch", None)
        if not self.group.is_alone and announce is not None:
            announce(number)

    def _count(self) -> int:
        """The rows of all ranks."""
        if self.pair is not None:
            return self._of_all(len(self.pair[0]))
        sampler = getattr(self.loader, "sampler", None)
        owners = [sampler, getattr(self.loader, "dataset", None)]
        distributed = distributed_sampler(self.loader) is not None
        # A DistributedSampler counts the rows of one rank, and one that draws so many rows, with
        # weights say, counts its draws; their data set has all.
        drawn = distributed or hasattr(sampler, "num_samples")
        for owner in reversed(owners) if drawn else owners:
            try:
                mine = len(owner)  # type: ignore[arg-type]
            except TypeError:
                continue
            return mine if distributed else self._of_all(mine)
        if isinstance(getattr(self.loader, "batches", self.loader), (list, tuple)):
            read = (read_batch(each, f"Batch {n}")[0] for n, each in enumerate(self.loader))
            return self._of_all(sum(len(x) for x in read))
        raise HeadstartError(
            "The number of training rows cannot be read off these batches; pass num_data=."
        )

    def _of_all(self, mine: int) -> int:
        """How many rows there are, where this rank reads `mine`."""
        return self.rows.total(mine) if self.sharded else mine


def _as_pair(data: Data) -> tuple[TensorTree, TensorTree] | None:
    """All rows at once, where the data hold them so: a pair of arrays, or a dictionary."""
    if has_labels(data):
        return read_batch(data, "The data")
    if not is_pair(data):
        return None
    # Two collections may be two batches; the inputs of one name no labels.
    two = all(not is_array(part) for part in data)
    if two and not (isinstance(data[0], Mapping) and not has_labels(data[0])):
        return None
    return as_tensors(data[0], "x"), as_tensors(data[1], "y")


def _refuse_empty(rows: int) -> None:
    if rows == 0:
        raise HeadstartError("The batches are empty: there is not a single row to learn from.")
