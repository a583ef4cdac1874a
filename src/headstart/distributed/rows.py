"""Statistics over the rows of a data set, wherever those rows are.

The mathematics asks for a sum or a mean over rows and never how many processes hold them.
One process answers with torch's own reductions, several with an all-reduce.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from headstart.linalg.precision import exact_device, in_double

MIN_WEIGHT = 1e-8
"""What a row of weight 0 counts for in the regressions of I-BLM: next to nothing."""


class AllRows(ABC):
    """What can be asked of rows of which this process holds all, or a shard.

    Tensors have the rows of this process on axis 0.
    """

    @abstractmethod
    def sum(self, values: Tensor) -> Tensor:
        """The sum of what every process has found in its rows, the same bits on each.

        Args:
            values: this process's term, in the same shape everywhere.
        """

    @abstractmethod
    def total(self, count: int) -> int:
        """The sum of every process's `count`."""

    def evidence(self, count: int) -> float:
        """How many rows the sum of every process's `count` rows counts for."""
        return self.total(count)

    def noise_of(self, variances: Tensor) -> Tensor:
        """The noise variances of rows, (N, ...), if they are these where a row counts for one."""
        return variances

    @abstractmethod
    def mean(self, values: Tensor) -> Tensor:
        """The mean over all rows: (N, ...) to (...)."""

    @abstractmethod
    def var(self, values: Tensor) -> Tensor:
        """The variance over all rows, divided by their number: (N, ...) to (...)."""

    @abstractmethod
    def std(self, values: Tensor) -> Tensor:
        """The root of `var`."""

    @abstractmethod
    def overall_mean(self, values: Tensor) -> float:
        """The mean of all numbers in all rows."""

    @abstractmethod
    def overall_var(self, values: Tensor) -> float:
        """The unbiased variance of all numbers in all rows."""

    @abstractmethod
    def gather(self, values: Sequence[Tensor]) -> list[Tensor]:
        """All rows of each tensor, in the same order on every process."""

    @abstractmethod
    def weighted_means(self, values: Sequence[Tensor], weight: int) -> list[Tensor]:
        """Means over processes, each weighted by `weight`, the number of its rows.

        Args:
            values: what this process has found, a mean over its own rows each.
            weight: how many rows that were.
        """


class LocalRows(AllRows):
    """All rows are this process's.

    Example:
        >>> LocalRows().mean(torch.tensor([1.0, 3.0])), LocalRows().total(7)
        (tensor(2.), 7)
    """

    def sum(self, values: Tensor) -> Tensor:
        return values

    def total(self, count: int) -> int:
        return count

    def mean(self, values: Tensor) -> Tensor:
        return values.mean(0)

    def var(self, values: Tensor) -> Tensor:
        return values.var(0, correction=0)

    def std(self, values: Tensor) -> Tensor:
        return values.std(0, correction=0)

    def overall_mean(self, values: Tensor) -> float:
        return float(values.mean())

    def overall_var(self, values: Tensor) -> float:
        return float(values.var())

    def gather(self, values: Sequence[Tensor]) -> list[Tensor]:
        return list(values)

    def weighted_means(self, values: Sequence[Tensor], weight: int) -> list[Tensor]:
        return list(values)


class ShardedRows(AllRows):
    """Rank `rank` of `size` holds a shard of the rows."""

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        self.rank, self.size, self.device = rank, size, device

    def sum(self, values: Tensor) -> Tensor:
        """In the process group that Fabric has made.

        Fabric's own all_reduce would wait at a barrier first.
        """
        total = values.detach().clone().contiguous()
        torch.distributed.all_reduce(total)
        return total

    def counts(self, count: int) -> list[int]:
        """Every rank's number."""
        mine = torch.zeros(self.size, dtype=torch.int64, device=self.device)
        mine[self.rank] = count
        return self.sum(mine).tolist()

    def total(self, count: int) -> int:
        return sum(self.counts(count))

    def mean(self, values: Tensor) -> Tensor:
        """In double precision, the rows counted in the same message."""
        sums = values.to(exact_device(values.device)).sum(0, dtype=torch.float64)
        found = self.sum(torch.cat([sums.flatten(), sums.new_tensor([len(values)])]))
        return (found[:-1] / found[-1]).reshape(sums.shape).to(values)

    def var(self, values: Tensor) -> Tensor:
        return self.mean((values - self.mean(values)).square())

    def std(self, values: Tensor) -> Tensor:
        return self.var(values).sqrt()

    def overall_mean(self, values: Tensor) -> float:
        return float(self.mean(values.flatten()))

    def overall_var(self, values: Tensor) -> float:
        count = self.total(values.numel())
        squares = in_double(values - self.overall_mean(values)).square()
        return self.overall_mean(squares) * count / (count - 1)

    def gather(self, values: Sequence[Tensor]) -> list[Tensor]:
        counts = self.counts(len(values[0]))
        at = interleaved_positions(counts, self.rank)
        return [scatter_and_sum(self, each, at, sum(counts)) for each in values]

    def weighted_means(self, values: Sequence[Tensor], weight: int) -> list[Tensor]:
        """All in one message, in single precision at least: a sum overflows half precision."""
        kind = torch.promote_types(values[0].dtype, torch.float32)
        flat = torch.cat([each.detach().flatten().to(kind) for each in values])
        found = self.sum(torch.cat([weight * flat, flat.new_tensor([weight])]))
        means = (found[:-1] / found[-1]).split([each.numel() for each in values])
        return [mean.view_as(each).to(each.dtype) for mean, each in zip(means, values, strict=True)]


class WeightedRows(AllRows):
    """Rows with weights: means over them are weighted, sums and counts are not.

    Args:
        rows: the rows that each count for one.
        weights: what each of the P labels of an example counts for, (N, P). Tensors have a row
            for each label; or other rows of each example, which share the mean of its weights.

    Example:
        >>> rows = WeightedRows(LOCAL_ROWS, torch.tensor([[1.0], [0.0]]))
        >>> rows.mean(torch.tensor([3.0, 99.0])), rows.total(2), rows.evidence(2)
        (tensor(3.), 2, 1.0)
    """

    def __init__(self, rows: AllRows, weights: Tensor) -> None:
        self.rows, self.weights = rows, in_double(weights)

    def _weights(self, count: int) -> Tensor:
        """The weights of so many rows."""
        if count == self.weights.numel():
            return self.weights.flatten()
        return self.weights.mean(1).repeat_interleave(count // max(1, len(self.weights)))

    def sum(self, values: Tensor) -> Tensor:
        return self.rows.sum(values)

    def total(self, count: int) -> int:
        return self.rows.total(count)

    def evidence(self, count: int) -> float:
        found = float(self.rows.sum(self._weights(count).sum()))
        return max(found, torch.finfo(torch.float32).eps)

    def noise_of(self, variances: Tensor) -> Tensor:
        weights = self._weights(len(variances)).clamp_min(MIN_WEIGHT)
        return variances / weights.to(variances).view(-1, *[1] * (variances.ndim - 1))

    def mean(self, values: Tensor) -> Tensor:
        """In double precision, the weights summed in the same message."""
        weights = self._weights(len(values))
        there = values.to(weights.device)
        sums = (weights.view(-1, *[1] * (values.ndim - 1)) * there).sum(0)
        found = self.rows.sum(torch.cat([sums.flatten(), weights.sum().view(1)]))
        mean = found[:-1] / found[-1].clamp_min(torch.finfo(torch.float32).eps)
        return mean.reshape(sums.shape).to(values)

    def var(self, values: Tensor) -> Tensor:
        return self.mean((values - self.mean(values)).square())

    def std(self, values: Tensor) -> Tensor:
        return self.var(values).sqrt()

    def overall_mean(self, values: Tensor) -> float:
        return float(self.mean(values.flatten(1).mean(1)))

    def overall_var(self, values: Tensor) -> float:
        count = self.total(values.numel())
        squares = in_double(values - self.overall_mean(values)).square()
        return self.overall_mean(squares) * count / (count - 1)

    def gather(self, values: Sequence[Tensor]) -> list[Tensor]:
        return self.rows.gather(values)

    def weighted_means(self, values: Sequence[Tensor], weight: int) -> list[Tensor]:
        return self.rows.weighted_means(values, weight)


LOCAL_ROWS = LocalRows()


def interleaved_positions(counts: Sequence[int], rank: int) -> Tensor:
    """Where a rank's rows are, when ranks contribute one row each in turn while they have any.

    Args:
        counts: how many rows each rank contributes.
        rank: whose positions to return.

    Example:
        >>> [interleaved_positions([3, 1, 2], rank).tolist() for rank in range(3)]
        [[0, 3, 5], [1], [2, 4]]
    """
    row, every = torch.arange(counts[rank]).unsqueeze(1), torch.tensor(counts)
    return every.minimum(row).sum(1) + (every[:rank] > row).sum(1)


def scatter_and_sum(rows: AllRows, mine: Tensor, positions: Tensor, total: int) -> Tensor:
    """All `total` rows in order, as a sum in which every row has one term: exact.

    Args:
        rows: who sums.
        mine: this rank's rows.
        positions: where they belong.
        total: how many rows there are on all ranks.
    """
    kind = torch.uint8 if mine.dtype == torch.bool else mine.dtype
    every = torch.zeros(total, *mine.shape[1:], dtype=kind, device=mine.device)
    every[positions.to(mine.device)] = mine.to(kind)
    return rows.sum(every).to(mine.dtype)
