"""Which rows are a rank's, and batches made of them."""

from __future__ import annotations

import torch
from torch import Tensor

from headstart.distributed.collectives import SINGLE_PROCESS
from headstart.distributed.rows import LOCAL_ROWS
from headstart.distributed.sharding import (
    FullShard,
    InterleavedShard,
    ShardedBatch,
    concatenate,
    rebalance,
    shard_common,
    shard_contributed,
)


def test_rows_are_interleaved() -> None:
    # The second of three ranks.
    shard = InterleavedShard(LOCAL_ROWS, 8, torch.arange(1, 8, 3))
    assert shard.of(torch.arange(8)).tolist() == [1, 4, 7]
    assert shard.gather(torch.tensor([10, 40, 70])).tolist() == [0, 10, 0, 0, 40, 0, 0, 70]
    index, inner = shard.within(3, 6)
    assert (index.tolist(), inner.total, inner.of(torch.arange(3)).tolist()) == ([1], 3, [1])
    assert shard.then([shard]).of(torch.arange(16)).tolist() == [1, 4, 7, 9, 12, 15]
    torch.manual_seed(0)
    every = torch.randn(2 * 8, 5)
    torch.manual_seed(0)
    mine = shard.noise()((2 * 3, 5), torch.empty(0))
    assert torch.equal(mine, every.unflatten(0, (2, 8))[:, [1, 4, 7]].flatten(0, 1))


def test_one_process_holds_every_row() -> None:
    x = torch.randn(5, 3)
    assert shard_common(SINGLE_PROCESS, 5).of(x) is x
    assert shard_contributed(SINGLE_PROCESS, 5).gather(x) is x


def batch(x: Tensor, *at: int, total: int = 6) -> ShardedBatch:
    shard = InterleavedShard(LOCAL_ROWS, total, torch.tensor(at, dtype=torch.long))
    return ShardedBatch(shard.of(x), shard.of(x[:, 0]), shard)


def test_a_batch_is_split_by_the_rows_of_all_ranks() -> None:
    x = torch.arange(12.0).reshape(6, 2)
    parts = list(batch(x, 1, 3, 5).split(4))
    assert [part.y.tolist() for part in parts] == [[2.0, 6.0], [10.0]]
    assert [part.shard.total for part in parts] == [4, 2]
    both = concatenate(parts)
    assert torch.equal(both.x, x[1::2])
    assert both.shard.total == 6
    assert concatenate(parts[:1]) is parts[0]


def test_a_rank_without_rows_passes_a_row_of_zeros() -> None:
    empty = batch(torch.randn(6, 2))
    assert empty.padded.tolist() == [[0.0, 0.0]]
    assert len(empty.unpad(empty.padded)) == 0
    full = batch(torch.randn(6, 2), 0, 2)
    assert full.padded is full.x
    assert full.unpad(full.x) is full.x


def test_one_process_has_nothing_to_rebalance() -> None:
    x = torch.randn(4, 2)
    alone = ShardedBatch(x, x[:, 0], FullShard(4))
    assert rebalance(SINGLE_PROCESS, alone) is alone
