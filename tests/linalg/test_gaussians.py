"""Gaussians over the weights of units: every moment consistent, in float64."""

from __future__ import annotations

import pytest
import torch

from headstart.linalg.gaussians import Diagonal, Primal, Rescaled, Stacked, precision_to_scale_tril
from tests.cases import random_gaussian

pytestmark = pytest.mark.usefixtures("float64")


def test_scale_tril_is_a_lower_factor_of_the_inverse() -> None:
    precision = random_gaussian(3, 5).precision()
    factor = precision_to_scale_tril(precision)
    torch.testing.assert_close(factor, factor.tril())
    torch.testing.assert_close(
        factor @ factor.mT @ precision, torch.eye(5).expand(3, 5, 5), atol=1e-10, rtol=0
    )


def test_rescaled_and_stacked_keep_every_moment_consistent() -> None:
    first, second = random_gaussian(2, 4), Diagonal(torch.randn(1, 4), torch.rand(1, 4) + 0.1)
    scale, shift = torch.rand(3, 1) + 0.5, torch.randn(3, 4)
    law = Rescaled(Stacked((first, second)), scale, shift, variance_scale=0.3)
    base_cov = torch.cat([first.covariance(), second.covariance()])
    torch.testing.assert_close(law.covariance(), 0.3 * scale.square().unsqueeze(-1) * base_cov)
    torch.testing.assert_close(law.mean, scale * torch.cat([first.mean, second.mean]) + shift)
    torch.testing.assert_close(
        law.precision() @ law.covariance(), torch.eye(4).expand(3, 4, 4), atol=1e-10, rtol=0
    )
    torch.testing.assert_close(law.scale_tril() @ law.scale_tril().mT, law.covariance())
    torch.testing.assert_close(law.precision_diagonal(), law.precision().diagonal(dim1=1, dim2=2))
    torch.testing.assert_close(law.covariance_diagonal(), law.covariance().diagonal(dim1=1, dim2=2))


def test_sums_over_units_need_no_matrix_for_each() -> None:
    shared = Primal(random_gaussian(1, 4).precision(), torch.randn(2, 4))
    law = Rescaled(
        Stacked(
            (random_gaussian(2, 4), shared, Diagonal(torch.randn(1, 4), torch.rand(1, 4) + 0.1))
        ),
        torch.rand(5, 1) + 0.5,
        torch.randn(5, 4),
        variance_scale=0.3,
    )
    weights, matrix = torch.rand(5), torch.randn(4, 4)
    precision = law.precision()
    torch.testing.assert_close(
        law.weighted_precision(weights), torch.einsum("u,uij->ij", weights, precision)
    )
    traces = torch.stack([torch.trace(each @ (matrix + matrix.T)) for each in precision])
    torch.testing.assert_close(law.precision_traces(matrix + matrix.T), traces)
