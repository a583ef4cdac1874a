"""The full-covariance family holds every Gaussian with independent units."""

from __future__ import annotations

import pytest
import torch

from headstart.posteriors import FullCovariance
from tests.cases import random_gaussian
from tests.posteriors.dense import kl_to

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("match", ["kl_qp", "kl_pq"])
def test_a_projection_is_the_gaussian_itself(match: str) -> None:
    p, q = random_gaussian(3, 4), FullCovariance(3, 4)
    q.project_(p, match)
    assert kl_to(q, p) == pytest.approx(0.0, abs=1e-9)
    factors = q.factors().permute(1, 2, 0)
    torch.testing.assert_close(factors @ factors.mT, p.covariance(), atol=1e-9, rtol=0)
    assert torch.equal(factors, factors.tril())
