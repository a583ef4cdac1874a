"""The dropout family: a law on two points, without a density."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headstart.errors import HeadstartError
from headstart.linalg.gaussians import Diagonal
from headstart.posteriors import Dropout
from headstart.priors import Isotropic
from tests.posteriors.dense import joint_covariance, scrambled

pytestmark = pytest.mark.usefixtures("float64")


@torch.no_grad()
def test_units_are_absent_or_scaled_and_as_often_as_p_says() -> None:
    q = scrambled("dropout", p=0.2)
    draws, n = q.sample(20_000), 20_000
    present = draws.ne(0).all(-1)
    assert torch.equal(present, draws.ne(0).any(-1))
    torch.testing.assert_close(draws[present], (q.mean / 0.8).expand_as(draws)[present])
    z = (present.double().mean(0) - 0.8) / (0.2 * 0.8 / n) ** 0.5
    assert float(z.abs().max()) < 4.5


@torch.no_grad()
def test_positions_of_a_feature_map_are_dropped_on_their_own() -> None:
    q, op = scrambled("dropout", units=2, size=4), nn.Conv1d(1, 2, 3)
    dropped = q.local(op, torch.randn(1, 1, 50), 3).eq(0)
    assert dropped.shape == (3, 2, 48)
    assert all(0 < int(unit.sum()) < 48 for unit in dropped.flatten(0, 1))


def test_the_kl_is_the_cross_entropy_without_its_constant() -> None:
    q, prior = scrambled("dropout"), Isotropic(0.6)
    second = q.mean.square().flatten() + joint_covariance(q).diagonal()
    expected = 0.5 * (second / 0.6 + torch.tensor(0.6).log()).sum()
    torch.testing.assert_close(q.kl(prior), expected, atol=1e-9, rtol=0)


def test_a_projection_takes_the_mean_and_keeps_p() -> None:
    q = Dropout(3, 4, p=0.3)
    p = Diagonal(torch.randn(3, 4), torch.rand(3, 4))
    q.project_(p)
    torch.testing.assert_close(q.mean, p.mean)
    assert q.config() == {"p": 0.3}


def test_what_has_no_density_says_so() -> None:
    with pytest.raises(HeadstartError, match="no log-determinant"):
        scrambled("dropout").logdet()
    for p in (1.0, -0.1):
        with pytest.raises(HeadstartError, match=r"a probability in \[0, 1\), not"):
            Dropout(2, 3, p=p)
