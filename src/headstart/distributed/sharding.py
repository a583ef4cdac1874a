"""Which rows of a batch are this rank's. Ranks hold a batch together: its rows are dealt out in turn, and each row's noise is its own.

So a computation over all rows has the same result on any number of ranks: what is drawn for a row does not depend on who holds it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headstart.distributed.collectives import Ranks
from headstart.kernels.noise import Noise, fresh

Index = Any
"""What picks rows of a tensor: a slice or a tensor of positions."""


class Share(ABC):
    """A rank's rows among the `total` of a batch."""

    total: int

    @abstractmethod
    def of(self, rows: Tensor) -> Tensor:
        """This rank's, of something with a row for each of the batch's."""

    @abstractmethod
    def gather(self, mine: Tensor) -> Tensor:
        """All rows in order, on every rank."""

    @abstractmethod
    def noise(self) -> Noise:
        """Noise of the batch's rows, once or for several samples, of which a rank gets its own."""

    @abstractmethod
    def within(self, start: int, end: int) -> tuple[Index, Share]:
        """Which of this rank's rows lie between two of the batch's, and their share among those."""

    @abstractmethod
    def then(self, others: Sequence[Any]) -> Share:
        """The share in several batches, one after another."""


class Whole(Share):
    """All rows are this process's."""

    def __init__(self, total: int) -> None:
        self.total = total

    def of(self, rows: Tensor) -> Tensor:
        return rows

    def gather(self, mine: Tensor) -> Tensor:
        return mine

    def noise(self) -> Noise:
        return fresh

    def within(self, start: int, end: int) -> tuple[Index, Share]:
        end = min(end, self.total)
        return slice(start, end), Whole(end - start)

    def then(self, others: Sequence[Whole]) -> Share:
        return Whole(self.total + sum(other.total for other in others))


class Dealt(Share):
    """The rows at the positions `at`; ranks hold the others."""

    def __init__(self, ranks: Ranks, total: int, at: Tensor) -> None:
        self.ranks, self.total, self.at = ranks, total, at

    def of(self, rows: Tensor) -> Tensor:
        return rows[self.at.to(rows.device)]

    def gather(self, mine: Tensor) -> Tensor:
        """As a sum in which every row has one term: exact."""
        kind = torch.uint8 if mine.dtype == torch.bool else mine.dtype
        every = torch.zeros(self.total, *mine.shape[1:], dtype=kind, device=mine.device)
        every[self.at.to(mine.device)] = mine.to(kind)
        return self.ranks.sum(every).to(mine.dtype)

    def noise(self) -> Noise:
        def draw(shape: tuple[int, ...], like: Tensor) -> Tensor:
            mine = (
                self.at if len(self.at) else torch.zeros(1, dtype=torch.long)
            )  # `filled` has one row then
            times = shape[0] // len(mine)
            drawn = fresh((times * self.total, *shape[1:]), like).unflatten(0, (times, self.total))
            return drawn[:, mine.to(like.device)].flatten(0, 1)

        return draw

    def within(self, start: int, end: int) -> tuple[Index, Share]:
        end = min(end, self.total)
        inside = ((self.at >= start) & (self.at < end)).nonzero().squeeze(1)
        return inside, Dealt(self.ranks, end - start, self.at[inside] - start)

    def then(self, others: Sequence[Dealt]) -> Share:
        ats, total = [self.at], self.total
        for other in others:
            ats.append(other.at + total)
            total += other.total
        return Dealt(self.ranks, total, torch.cat(ats))


def deal(ranks: Ranks, total: int) -> Share:
    """This rank's rows of a batch that every rank has before it: every `world`-th."""
    return (
        Whole(total)
        if ranks.world == 1
        else Dealt(ranks, total, every_th(ranks.world, ranks.rank, total))
    )


def every_th(step: int, start: int, total: int) -> Tensor:
    """Every `step`-th of so many places, from `start` on; none where that lies beyond them.

    Example:
        >>> [every_th(3, start, 4).tolist() for start in range(3)], every_th(3, 2, 1).tolist()
        ([[0, 3], [1], [2]], [])
    """
    return torch.arange(total)[start::step]


def brought(ranks: Ranks, mine: int) -> Share:
    """The share of a rank that brings `mine` rows to a batch, in turn with those that the others bring."""
    counts = ranks.counts(mine)
    return (
        Whole(mine) if ranks.world == 1 else Dealt(ranks, sum(counts), places(counts, ranks.rank))
    )


def places(counts: Sequence[int], rank: int) -> Tensor:
    """Where a rank's rows are, when ranks give one of theirs in turn for as long as they have any.

    Example:
        >>> [places([3, 1, 2], rank).tolist() for rank in range(3)]
        [[0, 3, 5], [1], [2, 4]]
    """
    row, every = torch.arange(counts[rank]).unsqueeze(1), torch.tensor(counts)
    return every.minimum(row).sum(1) + (every[:rank] > row).sum(1)


class Piece(NamedTuple):
    """Rows of a batch on this rank, and which of the batch's they are."""

    x: Tensor
    y: Tensor
    share: Share

    @property
    def filled(self) -> Tensor:
        """x for a net that cannot take none: where there is no row, one of zeros; `trim` what comes of it."""
        return self.x if len(self.x) else self.x.new_zeros(1, *self.x.shape[1:])

    def trim(self, found: Tensor) -> Tensor:
        """What a net made of `filled`, without what the row of zeros became."""
        return found if len(self.x) else found[:0]

    def split(self, size: int) -> Iterator[Piece]:
        """Pieces of `size` of the batch's rows."""
        for start in range(0, self.share.total, size):
            yield self.between(start, start + size)

    def between(self, start: int, end: int) -> Piece:
        """The part of it that lies between two of the batch's rows."""
        index, share = self.share.within(start, end)
        return Piece(self.x[index], self.y[index], share)


def spread(ranks: Ranks, piece: Piece) -> Piece:
    """The same rows, dealt anew if a rank has none of them: a net cannot take none."""
    if ranks.world == 1 or min(ranks.counts(len(piece.x))):
        return piece
    share = deal(ranks, piece.share.total)
    return Piece(
        share.of(piece.share.gather(piece.x)), share.of(piece.share.gather(piece.y)), share
    )


def join(pieces: Sequence[Piece]) -> Piece:
    """Several batches as one; of a single one there is nothing to copy."""
    if len(pieces) == 1:
        return pieces[0]
    share = pieces[0].share.then([piece.share for piece in pieces[1:]])
    return Piece(
        torch.cat([piece.x for piece in pieces]), torch.cat([piece.y for piece in pieces]), share
    )
