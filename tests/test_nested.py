"""Several tensors are handled as one: rows, splits, what a net is given and what it returns."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import headstart as hs
from headstart.nested import (
    Nested,
    feed,
    heads_of,
    join_tensors,
    map_each,
    parts_of,
    row_count,
    row_kind,
)

A, B = torch.arange(10.0).reshape(5, 2), torch.arange(5)


class Two(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.sum(1) + 10 * b


class Whole(nn.Module):
    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return batch["a"].sum(1) + 10 * batch["b"]


def test_rows_are_taken_split_and_joined_of_all_tensors() -> None:
    both = Nested((A,), {"b": B})
    assert (len(both), row_count(both), both.numel(), both.keys) == (5, 5, 15, ["0", "b"])
    assert torch.equal(both[1:3].args[0], A[1:3])
    assert torch.equal(both[torch.tensor([4, 0])].named["b"], torch.tensor([4, 0]))
    parts = both.split(2)
    assert [len(part) for part in parts] == [2, 2, 1]
    assert all(
        torch.equal(x, y) for x, y in zip(join_tensors(parts).tensors, both.tensors, strict=True)
    )
    assert row_kind(both) == row_kind(both[:1]) != row_kind(Nested((A,)))
    assert torch.equal(map_each(lambda part: part + 1, both).named["b"], B + 1)


@pytest.mark.parametrize(
    ("net", "x"),
    [
        (Two(), Nested((A, B))),
        (Two(), Nested((A,), {"b": B})),
        (Whole(), Nested(named={"a": A, "b": B}, spread=False)),
    ],
)
def test_a_net_takes_them_as_arguments_or_as_one(net: nn.Module, x: Nested) -> None:
    assert torch.equal(feed(net, x), A.sum(1) + 10 * B)


def test_what_a_net_returns_is_a_tensor_or_heads() -> None:
    assert heads_of(A) is A
    assert heads_of(SimpleNamespace(logits=A, loss=None)) is A
    assert heads_of({"a": A, "cache": None}).keys == ["a"]
    assert len(heads_of([A, B]).args) == 2
    assert heads_of("text") == "text"
    assert parts_of("text") == ["text"]


def test_rows_of_different_shapes_are_not_joined() -> None:
    with pytest.raises(hs.HeadstartError, match=r"\(1, 2\) and \(1, 3\) for one row\): pad"):
        join_tensors([torch.zeros(4, 2), torch.zeros(4, 3)])
