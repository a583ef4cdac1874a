"""Every accepted kind of data is the same data, and what cannot be learned from gets a sentence."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import headstart as hs
from headstart import data
from headstart.batching import Batches, Collated
from headstart.network.placement import Placement

X, Y = torch.randn(10, 3), torch.arange(10)


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(zip(X, Y, strict=True))


class Custom:
    """Re-iterable, without a length."""

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter([(X[:6], Y[:6]), (X[6:], Y[6:])])


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        [X, Y],
        (X.numpy(), Y.numpy()),
        (pd.DataFrame(X.numpy()), pd.Series(Y.numpy())),
        DataLoader(TensorDataset(X, Y), batch_size=4),
        [(X[:6], Y[:6]), (X[6:].numpy(), Y[6:].numpy())],
        Collated([(Y, X)], lambda batch: batch[::-1]),
    ],
    ids=["tensors", "list", "numpy", "pandas", "loader", "batches", "collated"],
)
def test_all_kinds_of_data_are_the_same_rows(data: object) -> None:
    batches = Batches(data, batch_size=4, shuffle=False)
    assert batches.num_data == 10
    # A second pass gives the same.
    for _ in range(2):
        assert torch.equal(torch.cat([x for x, _ in batches]).float(), X)
        assert torch.equal(torch.cat([y for _, y in batches]), Y)


def test_a_pair_is_shuffled_anew_each_pass_and_complete() -> None:
    batches = Batches((X, Y), batch_size=3)
    first, second = (torch.cat([y for _, y in batches]) for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(first.sort().values, Y)


def test_take_gives_each_row_once_at_most() -> None:
    batches = Batches((X, Y), batch_size=4)
    assert [len(x) for x, _ in batches.take(6)] == [4, 2]
    assert [len(x) for x, _ in batches.take(60)] == [4, 4, 2]


def test_num_data_of_loaders() -> None:
    assert Batches(DataLoader(TensorDataset(X, Y), batch_size=4, drop_last=True)).num_data == 10
    assert Batches(Custom(), num_data=10).num_data == 10
    assert Batches(DataLoader(Stream(), batch_size=4), num_data=10).num_data == 10
    for unknown in (Custom(), DataLoader(Stream(), batch_size=4)):
        with pytest.raises(hs.HeadstartError, match="pass num_data"):
            Batches(unknown)


def test_a_sampler_that_draws_rows_does_not_change_their_number() -> None:
    weighted = WeightedRandomSampler(torch.ones(10), num_samples=25)
    random = RandomSampler(TensorDataset(X, Y), replacement=True, num_samples=4)
    for sampler in (weighted, random):
        assert Batches(DataLoader(TensorDataset(X, Y), sampler=sampler)).num_data == 10
    subset = SubsetRandomSampler([1, 2, 5])
    assert Batches(DataLoader(TensorDataset(X, Y), sampler=subset)).num_data == 3


def test_numbers_take_the_dtype_of_the_model_and_labels_keep_theirs() -> None:
    model = hs.bayesianize(torch.nn.Linear(3, 1).double())
    x, y = next(iter(Batches((X.numpy(), Y), like=model)))
    assert (x.dtype, y.dtype) == (torch.float64, torch.int64)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Batches((X, Y[:5])), "x has 10 rows and y has 5"),
        (lambda: Batches((X[:0], Y[:0])), "not a single row"),
        (lambda: list(Batches([])), "not a single row"),
        (
            lambda: list(Batches(DataLoader(TensorDataset(X[:0], Y[:0])), num_data=1)),
            "not a single row",
        ),
        (lambda: Batches(iter([(X, Y)])), "only once"),
        (lambda: Batches(7), "must be a DataLoader"),
        (lambda: list(Batches([X[:5], Y[:5], X], num_data=5)), "not a pair"),
        (
            lambda: Batches(
                (X.index_put((torch.tensor(2), torch.tensor(1)), torch.tensor(torch.inf)), Y)
            ),
            r"x holds inf at index \[2, 1\]",
        ),
        (lambda: Batches((X, torch.full((10,), torch.nan))), r"y holds nan at index \[0\]"),
        (
            lambda: list(Batches([(X, Y), (X * np.nan, Y)])),
            r"x of batch 1 holds nan at index \[0, 0\]",
        ),
        (lambda: Batches((X, Y), batch_size=0), "at least 1"),
        (lambda: Batches([{"x": X}]), "Batch 0 is a dictionary without labels"),
        (lambda: Batches([(X, X, Y)]), "Batch 0 is not a pair .* but a tuple of 3"),
        (lambda: Batches(([[1.0, 2.0], [3.0, 4.0]], [0, 1])), "single numbers"),
        (lambda: Batches((np.array([["a"], ["b"]]), Y[:2])), "x must hold numbers"),
    ],
)
def test_bad_data_get_a_sentence(make: object, sentence: str) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        make()  # type: ignore[operator]


def test_a_large_sum_is_not_taken_for_a_bad_number() -> None:
    big = torch.full((4, 2), 3e38)
    assert Batches((big, torch.zeros(4))).num_data == 4


def test_a_shard_counts_the_whole_data() -> None:
    sampler = torch.utils.data.DistributedSampler(TensorDataset(X, Y), num_replicas=4, rank=0)
    assert Batches(DataLoader(TensorDataset(X, Y), sampler=sampler, batch_size=2)).num_data == 10


def test_few_rows_of_images_touch_no_others() -> None:
    x, y = torch.randint(256, (100, 1, 4, 4), dtype=torch.uint8), torch.arange(100)
    parts = data.Split(x, y, x, y)
    images = data.Images(x, y, data.fit_scaling(parts, targets=False), batch_size=32)
    torch.manual_seed(0)
    whole = [labels for _, labels in Batches(images)]
    torch.manual_seed(0)
    few = [labels for _, labels in Batches(images).take(40)]
    assert [len(labels) for labels in few] == [32, 8]
    assert torch.equal(torch.cat(few), torch.cat(whole)[:40])


def test_a_pass_asks_the_net_once_where_it_wants_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for every batch: it takes as long as a layer of a small net."""
    asked = list[nn.Module]()
    before = Placement.__init__

    def count(self: Placement, model: nn.Module, move_labels: bool) -> None:
        asked.append(model)
        before(self, model, move_labels)

    monkeypatch.setattr(Placement, "__init__", count)
    rows = Batches((X, Y), batch_size=2, like=nn.Linear(3, 1).double())
    assert [x.dtype for x, _ in rows] == [torch.float64] * 5
    assert len(asked) == 1
