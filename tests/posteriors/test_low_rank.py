"""The low-rank family: better with every direction."""

from __future__ import annotations

import pytest

from headstart.posteriors import (
    LowRank,
    MeanField,
)
from tests.cases import random_gaussian
from tests.posteriors.dense import kl_to

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 6])
def test_low_rank_is_never_worse_than_mean_field_and_better_with_rank(rank: int) -> None:
    p = random_gaussian(3, 6)
    fewer, more, diagonal = (
        LowRank(3, 6, rank=max(1, rank - 1)),
        LowRank(3, 6, rank=rank),
        MeanField(3, 6),
    )
    for q in (fewer, more, diagonal):
        q.project_(p)
    assert kl_to(more, p) <= kl_to(fewer, p) + 1e-9
    assert kl_to(fewer, p) <= kl_to(diagonal, p) + 1e-9
    if rank == 6:
        assert kl_to(more, p) == pytest.approx(0.0, abs=1e-9)
