"""Data as the core sees it: a re-iterable of `(x, y)` with a known number of rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headstart.distributed.collectives import SINGLE_PROCESS, ProcessGroup
from headstart.distributed.rng import RNG
from headstart.distributed.rows import AllRows
from headstart.distributed.samplers import distributed_sampler, is_sharded
from headstart.distributed.sharding import ShardedBatch, shard_common, shard_contributed
from headstart.distributed.stream import BatchStream
from headstart.errors import HeadstartError

Data = Any
"""A DataLoader, any re-iterable of `(x, y)`, or a pair of tensors or arrays."""


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

    A pair of arrays is shuffled anew each pass with torch's own random state.
    On several ranks the rows of each batch that all of them have are interleaved among them.
    What a sampler or the caller has sharded stays as it is.

    Args:
        data: a DataLoader, a re-iterable of `(x, y)`, a pair of arrays, or `Sharded` of these.
        batch_size: rows of a batch, where `data` is a pair of arrays.
        shuffle: whether a pair of arrays is shuffled.
        num_data: the number of rows, where `data` cannot tell it.
        like: the model whose device and dtype the batches get; None leaves them as they are.
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
    ) -> None:
        if batch_size < 1:
            raise HeadstartError(f"batch_size must be at least 1, not {batch_size}.")
        self.group, self.sharded = group, is_sharded(data)
        data = data.batches if getattr(data, "is_sharded", False) else data
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
        elif not isinstance(data, Iterable):
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
        self.like = like

    @property
    def batches_per_pass(self) -> int:
        """The number of batches of a pass, about: a loader may refuse to tell."""
        with suppress(TypeError):
            if self.pair is None and isinstance(self.loader, Sized):
                return len(self.loader)
        return math.ceil(self.num_data / self.batch_size)

    @property
    def rows(self) -> AllRows:
        """Sums and means over the rows that all processes hold together."""
        return self.group.rows

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
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
        if self.sharded and not self.group.is_alone:
            yield from self._contributed(rows)
        elif self.pair is not None:
            for chosen in self._chosen(rows):
                shard = shard_common(self.group, len(chosen))
                mine = shard.of(chosen)
                yield ShardedBatch(*self._place(self.pair[0][mine], self.pair[1][mine]), shard)
        else:
            for x, y in self._read(self.loader) if rows is None else self._first(rows):
                shard = shard_common(self.group, len(x))
                yield ShardedBatch(*self._place(shard.of(x), shard.of(y)), shard)

    def _contributed(self, rows: int | None) -> Iterator[ShardedBatch]:
        """Ranks contribute their own batches, some perhaps fewer, until none has any more."""
        mine: Iterator[tuple[Tensor, Tensor]] = iter(self)
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

    def _read(self, batches: Iterable[Any]) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches as they are, checked."""
        seen = 0
        for number, batch in enumerate(batches):
            x, y = _pair_of(number, batch)
            check_finite(x, f"x of batch {number}")
            check_finite(y, f"y of batch {number}")
            seen += len(x)
            yield x, y
        _refuse_empty(seen)

    def _placed(self, batches: Iterable[Any]) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in self._read(batches):
            yield self._place(x, y)

    def digest(self) -> list[float] | None:
        """Two sums that tell a pair of arrays from another."""
        return None if self.pair is None else [float(part.double().sum()) for part in self.pair]

    def forever(self, rng: RNG | None = None) -> BatchStream[tuple[Tensor, Tensor]]:
        """Batch after batch, pass after pass.

        Args:
            rng: what the order is drawn from, where ranks draw noise of their own.
        """
        return BatchStream(lambda: iter(self), rng, self._set_epoch)

    def take(self, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
        """At most `rows` rows, each once, in batches, of those that this process reads.

        A source with a method `take_rows` need not load more.
        """
        if self.pair is not None:
            x, y = self.pair
            for chosen in self._chosen(rows):
                yield self._place(x[chosen], y[chosen])
            return
        for x, y in self._first(rows):
            yield self._place(x, y)

    def _chosen(self, rows: int | None) -> Iterable[Tensor]:
        """Which rows of the pair, batch by batch."""
        assert self.pair is not None
        count = len(self.pair[0])
        order = torch.randperm(count) if self.shuffle else torch.arange(count)
        return order[:rows].split(self.batch_size)

    def _first(self, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
        """At most so many rows of the loader's."""
        loader = self.loader.take_rows(rows) if hasattr(self.loader, "take_rows") else self.loader
        for x, y in self._read(loader):
            yield x[:rows], y[:rows]
            rows -= len(x)
            if rows <= 0:
                return

    def _set_epoch(self, number: int) -> None:
        """A DistributedSampler has to be told that a new pass begins."""
        announce = getattr(distributed_sampler(self.loader), "set_epoch", None)
        if not self.group.is_alone and announce is not None:
            announce(number)

    def _place(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.like is None:
            return x, y
        return place_inputs(x, self.like), place_labels(y, self.like)

    def _count(self) -> int:
        """The rows of all ranks."""
        if self.pair is not None:
            return self._of_all(len(self.pair[0]))
        sampler = getattr(self.loader, "sampler", None)
        owners = [sampler, getattr(self.loader, "dataset", None)]
        # A DistributedSampler counts the rows of one rank, its data set all.
        distributed = distributed_sampler(self.loader) is not None
        for owner in reversed(owners) if distributed else owners:
            try:
                mine = len(owner)  # type: ignore[arg-type]
            except TypeError:
                continue
            return mine if distributed else self._of_all(mine)
        if isinstance(self.loader, (list, tuple)):
            batches = enumerate(self.loader)
            return self._of_all(sum(len(_pair_of(number, batch)[0]) for number, batch in batches))
        raise HeadstartError(
            "The number of training rows cannot be read off these batches; pass num_data=."
        )

    def _of_all(self, mine: int) -> int:
        """How many rows there are, where this rank reads `mine`."""
        return self.rows.total(mine) if self.sharded else mine


def _pair_of(number: int, batch: Any) -> tuple[Tensor, Tensor]:
    """A batch as tensors (x, y), or a sentence about what it is instead."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise HeadstartError(f"Batch {number} is not a pair (x, y) but a {type(batch).__name__}.")
    x, y = to_tensor(batch[0]), to_tensor(batch[1], "y")
    if x.ndim == 0 or y.ndim == 0:
        raise HeadstartError(
            f"Batch {number} holds single numbers, not rows; pass arrays or tensors."
        )
    return x, y


def place_inputs(x: Tensor, model: nn.Module) -> Tensor:
    """Inputs on the model's device in its floating dtype.

    Whole numbers too, unless an embedding wants them as they are.
    """
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    if parameter is None:
        return x
    embeds = any(isinstance(module, (nn.Embedding, nn.EmbeddingBag)) for module in model.modules())
    keep = not x.is_floating_point() and embeds
    return x.to(parameter.device, None if keep else parameter.dtype)


def place_labels(y: Tensor, model: nn.Module) -> Tensor:
    """Labels on the model's device; real numbers in its dtype, classes and counts as they are."""
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    if parameter is None:
        return y
    return y.to(parameter.device, parameter.dtype if y.is_floating_point() else None)


def _as_pair(data: Data) -> tuple[Tensor, Tensor] | None:
    if not (
        isinstance(data, (tuple, list))
        and len(data) == 2
        and all(hasattr(part, "__array__") for part in data)
    ):
        return None
    return to_tensor(data[0], "x"), to_tensor(data[1], "y")


def to_tensor(values: Any, what: str = "x") -> Tensor:
    """A tensor of whatever holds numbers: a tensor, an array, a data frame, a list.

    Example:
        >>> to_tensor([[1.0, 2.0]]).shape
        torch.Size([1, 2])
    """
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise HeadstartError(
            f"{what} must hold numbers; it holds {array.dtype} values. Encode text and dates first."
        )
    return torch.as_tensor(array if array.flags.writeable else array.copy())


def _refuse_empty(rows: int) -> None:
    if rows == 0:
        raise HeadstartError("The batches are empty: there is not a single row to learn from.")


def check_finite(values: Tensor, what: str) -> None:
    """Refuse NaN and inf, naming the first place.

    Example:
        >>> check_finite(torch.tensor([[0.0, float("nan")]]), "x")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        headstart.errors.HeadstartError: x holds nan at index [0, 1]; remove or impute ...
    """
    # One pass over the values; only where their sum is not finite they are searched.
    if values.is_floating_point() and not torch.isfinite(values.sum()):
        bad = (~torch.isfinite(values)).nonzero()
        if len(bad):
            place = bad[0].tolist()
            raise HeadstartError(
                f"{what} holds {values[tuple(place)].item()} at index {place}; "
                "remove or impute such values first."
            )
