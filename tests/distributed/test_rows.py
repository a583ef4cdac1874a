"""Statistics over all rows: one process against torch, a shard against the whole."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headstart.distributed.rows import (
    LOCAL_ROWS,
    ShardedRows,
    WeightedRows,
    interleaved_positions,
)


class TwoRanks(ShardedRows):
    """The first of two ranks; an all-reduce adds what the second would have sent."""

    def __init__(self, *sent: Tensor) -> None:
        super().__init__(0, 2, torch.device("cpu"))
        self.sent = list(sent)

    def sum(self, values: Tensor) -> Tensor:
        return values + self.sent.pop(0)


def test_one_process_takes_torch_s_own_path() -> None:
    x = torch.randn(7, 3, dtype=torch.float64)
    assert torch.equal(LOCAL_ROWS.mean(x), x.mean(0))
    assert torch.equal(LOCAL_ROWS.var(x), x.var(0, correction=0))
    assert torch.equal(LOCAL_ROWS.std(x), x.std(0, correction=0))
    assert LOCAL_ROWS.overall_mean(x) == float(x.mean())
    assert LOCAL_ROWS.overall_var(x) == float(x.var())
    assert LOCAL_ROWS.sum(x) is x
    assert LOCAL_ROWS.gather([x])[0] is x
    assert LOCAL_ROWS.weighted_means([x], 7)[0] is x
    assert LOCAL_ROWS.total(7) == 7


def test_a_mean_over_shards_counts_rows() -> None:
    x = torch.randn(7, 3, dtype=torch.float64)
    other = torch.cat([x[2:].sum(0), torch.tensor([5.0])])
    torch.testing.assert_close(TwoRanks(other).mean(x[:2]), x.mean(0))


def test_means_are_weighted_by_the_rows_behind_them() -> None:
    x = torch.randn(7, 3, dtype=torch.float64)
    other = torch.cat([x[2:].sum(0), torch.tensor([5.0])])
    (found,) = TwoRanks(other).weighted_means([x[:2].mean(0)], 2)
    torch.testing.assert_close(found, x.mean(0))


@pytest.mark.parametrize("kind", [torch.float64, torch.bool, torch.int64])
def test_rows_of_shards_are_gathered_in_turn(kind: torch.dtype) -> None:
    x = torch.randn(5).to(kind)
    mine, others = (interleaved_positions([3, 2], rank) for rank in range(2))
    sent = torch.zeros(5, dtype=torch.uint8 if kind == torch.bool else kind)
    sent[others] = x[others].to(sent.dtype)
    (found,) = TwoRanks(torch.tensor([0, 2]), sent).gather([x[mine]])
    assert torch.equal(found, x)


def test_a_row_of_weight_w_is_w_rows_in_every_mean() -> None:
    weights = torch.tensor([1, 2, 0, 3])
    rows = WeightedRows(LOCAL_ROWS, weights.double().unsqueeze(1))
    x = torch.randn(4, 5, dtype=torch.float64)
    again = x.repeat_interleave(weights, 0)
    for name in ("mean", "var", "std", "overall_mean"):
        found, want = (getattr(each, name)(y) for each, y in ((rows, x), (LOCAL_ROWS, again)))
        assert found == pytest.approx(want, rel=1e-12, abs=1e-12)
    assert rows.total(4) == 4
    assert rows.evidence(4) == 6
    # Two rows of each example have its weight.
    torch.testing.assert_close(rows.mean(x.repeat_interleave(2, 0)), rows.mean(x))


def test_rows_of_an_example_that_are_no_labels_have_the_mean_of_its_weights() -> None:
    rows = WeightedRows(LOCAL_ROWS, torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
    torch.testing.assert_close(rows.mean(torch.tensor([[1.0], [5.0]])), torch.tensor([3.0]))
    labels = torch.tensor([[1.0], [2.0], [7.0], [3.0]])
    torch.testing.assert_close(rows.mean(labels), torch.tensor([14 / 6]))
