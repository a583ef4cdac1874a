"""The matrix-normal family: Kronecker covariances are found exactly."""

from __future__ import annotations

import pytest
import torch

from headstart.linalg.gaussians import Primal
from headstart.posteriors import (
    MatrixNormal,
)
from tests.cases import random_gaussian
from tests.posteriors.dense import joint_covariance

pytestmark = pytest.mark.usefixtures("float64")


def test_matrix_normal_finds_a_kronecker_truth() -> None:
    inputs = random_gaussian(1, 4).precision()[0]
    v = torch.tensor([0.3, 1.0, 2.5])

    q = MatrixNormal(3, 4)
    q.project_(Primal(inputs / v[:, None, None], torch.randn(3, 4)))
    expected = torch.block_diag(*(unit * torch.linalg.inv(inputs) for unit in v))
    torch.testing.assert_close(joint_covariance(q), expected, atol=1e-9, rtol=0)
