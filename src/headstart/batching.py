"""The data as the core sees it: something that can be iterated again and again for `(x, y)`, with a known number of rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headstart.distributed.collectives import ONE, Ranks
from headstart.distributed.rng import Stream, Together
from headstart.distributed.sharding import Piece, brought, deal
from headstart.errors import HeadstartError

Data = Any
"""A DataLoader, any re-iterable of `(x, y)`, or a pair of tensors or arrays."""


@dataclass(frozen=True)
class Sharded:
    """Batches of which each rank has its own: a stream that was divided already. (A DistributedSampler is seen without this.)"""

    batches: Data


class Batches:
    """Any of the accepted kinds of data, made uniform: checked, on the model's device, in its floating dtype.

    A pair of arrays is shuffled anew each pass (`shuffle=True`) with torch's own random state. On several ranks what all of them
    have before them is dealt out, row by row of each batch; what a sampler or the caller has divided stays as it is.

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
        ranks: Ranks = ONE,
    ) -> None:
        if batch_size < 1:
            raise HeadstartError(f"batch_size must be at least 1, not {batch_size}.")
        self.ranks, self.divided = ranks, _is_divided(data)
        data = data.batches if isinstance(data, Sharded) else data
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
                f"Batches must be a DataLoader, an iterable of (x, y), or a pair of arrays, not {type(data).__name__}."
            )
        elif isinstance(data, Iterator):
            raise HeadstartError(
                "The batches are an iterator that can be read only once; pass a list or a DataLoader instead."
            )
        self.loader: Iterable[Any] = data
        self.num_data = num_data if num_data is not None else self._count()
        self.like = like

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass: this rank's rows of every batch. A batch that has not one for every rank, the last, is left out."""
        if self.ranks.world == 1 or self.divided:
            yield from (
                self.take(len(self.pair[0])) if self.pair is not None else self._placed(self.loader)
            )
            return
        enough = 0
        for x, y, share in self.pieces():
            if share.total >= self.ranks.world:
                enough += 1
                yield x, y
        if not enough:
            raise HeadstartError(
                f"There are {self.ranks.world} ranks but no batch with as many rows; raise batch_size, or use fewer ranks."
            )

    def pieces(self, rows: int | None = None) -> Iterator[Piece]:
        """One pass, or at most so many rows of it, all ranks together: what is this one's of every batch."""
        if self.divided and self.ranks.world > 1:
            yield from self._brought(rows)
        elif self.pair is not None:
            for chosen in self._chosen(rows):
                share = deal(self.ranks, len(chosen))
                mine = share.of(chosen)
                yield Piece(*self._place(self.pair[0][mine], self.pair[1][mine]), share)
        else:
            for x, y in self._read(self.loader) if rows is None else self._first(rows):
                share = deal(self.ranks, len(x))
                yield Piece(*self._place(share.of(x), share.of(y)), share)

    def _brought(self, rows: int | None) -> Iterator[Piece]:
        """Ranks bring their own batches, some perhaps fewer: it ends when none brings any more."""
        mine: Iterator[tuple[Tensor, Tensor]] = iter(self)
        x, y = next(mine)
        left = math.inf if rows is None else rows
        while left > 0:
            piece = Piece(x, y, brought(self.ranks, len(x)))
            if piece.share.total == 0:
                return
            total = int(min(left, piece.share.total))
            yield piece if total == piece.share.total else piece.between(0, total)
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

    def forever(self, together: Together | None = None) -> Stream[tuple[Tensor, Tensor]]:
        """Batch after batch, pass after pass; ranks that draw noise of their own take the order from what they draw `together`."""
        return Stream(lambda: iter(self), together, self._set_epoch)

    def take(self, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
        """At most `rows` rows, each once, in batches, of what this process sees; a source with a method `take_rows` need not load more."""
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
        for x, y in self._read(
            self.loader.take_rows(rows) if hasattr(self.loader, "take_rows") else self.loader
        ):
            yield x[:rows], y[:rows]
            rows -= len(x)
            if rows <= 0:
                return

    def _set_epoch(self, number: int) -> None:
        """A DistributedSampler has to be told that a new pass begins."""
        announce = getattr(_dealing_sampler(self.loader), "set_epoch", None)
        if self.ranks.world > 1 and announce is not None:
            announce(number)

    def _place(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (
            (x, y)
            if self.like is None
            else (place_inputs(x, self.like), place_labels(y, self.like))
        )

    def _count(self) -> int:
        if self.pair is not None:
            return self.ranks.total(len(self.pair[0])) if self.divided else len(self.pair[0])
        sampler, dataset = (
            getattr(self.loader, "sampler", None),
            getattr(self.loader, "dataset", None),
        )
        dealt = (
            _dealing_sampler(self.loader) is not None
        )  # such a sampler counts one rank's rows, its data set all
        for owner in (dataset, sampler) if dealt else (sampler, dataset):
            try:
                mine = len(owner)  # type: ignore[arg-type]
            except TypeError:
                continue
            return self.ranks.total(mine) if self.divided and not dealt else mine
        if isinstance(self.loader, (list, tuple)):
            mine = sum(len(_pair_of(number, batch)[0]) for number, batch in enumerate(self.loader))
            return self.ranks.total(mine) if self.divided else mine
        raise HeadstartError(
            "The number of training rows cannot be read off these batches; pass num_data=."
        )


def _is_divided(data: Data) -> bool:
    return isinstance(data, Sharded) or getattr(_dealing_sampler(data), "num_replicas", 1) > 1


def _dealing_sampler(data: Data) -> Any:
    """The DistributedSampler of a loader, if it has one: its own, or that of its batches."""
    for sampler in (
        getattr(data, "sampler", None),
        getattr(getattr(data, "batch_sampler", None), "sampler", None),
    ):
        if hasattr(sampler, "num_replicas"):
            return sampler
    return None


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
    """Inputs on the model's device in its floating dtype; whole numbers too, unless an embedding wants them as they are."""
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    if parameter is None:
        return x
    embeds = any(isinstance(module, (nn.Embedding, nn.EmbeddingBag)) for module in model.modules())
    keep = not x.is_floating_point() and embeds
    return x.to(parameter.device, None if keep else parameter.dtype)


def place_labels(y: Tensor, model: nn.Module) -> Tensor:
    """Labels on the model's device; real numbers in its dtype, classes and counts as they are."""
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    return (
        y
        if parameter is None
        else y.to(parameter.device, parameter.dtype if y.is_floating_point() else None)
    )


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
        >>> check_finite(torch.tensor([[0.0, float("nan")]]), "x")
        Traceback (most recent call last):
        ...
        headstart.errors.HeadstartError: x holds nan at index [0, 1]; remove or impute such values first.
    """
    if values.is_floating_point() and not torch.isfinite(
        values.sum()
    ):  # one pass; only a suspect is looked at closely
        bad = (~torch.isfinite(values)).nonzero()
        if len(bad):
            place = bad[0].tolist()
            raise HeadstartError(
                f"{what} holds {values[tuple(place)].item()} at index {place}; remove or impute such values first."
            )
