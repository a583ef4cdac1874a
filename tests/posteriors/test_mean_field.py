"""The mean-field family: the nearest member in either KL."""

from __future__ import annotations

import pytest
import torch

from headstart.posteriors import (
    MeanField,
)
from tests.cases import random_gaussian

pytestmark = pytest.mark.usefixtures("float64")


def test_mean_field_matches_either_kl() -> None:
    p = random_gaussian(2, 3)
    narrow, wide = MeanField(2, 3), MeanField(2, 3)
    narrow.project_(p, "kl_qp")
    wide.project_(p, "kl_pq")
    torch.testing.assert_close(narrow.variance(), 1 / p.precision().diagonal(dim1=1, dim2=2))
    torch.testing.assert_close(wide.variance(), p.covariance().diagonal(dim1=1, dim2=2))
    assert bool((wide.variance() >= narrow.variance()).all())
