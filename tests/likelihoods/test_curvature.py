"""Gradients and curvatures of log p(y | f) by hand are those of autograd."""

from __future__ import annotations

import pytest
import torch

import headstart as hs
from tests.cases import LIKELIHOODS

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_curvature_is_the_second_derivative(kind: str) -> None:
    case = LIKELIHOODS[kind]
    lik, f = case.make(), torch.randn(3, 7, case.outputs)
    y = lik.check(case.labels(7), case.outputs)
    slope, curvature = lik.curvature(f, y)
    expected_slope, expected_curvature = hs.Likelihood.curvature(lik, f, y)
    assert torch.allclose(slope, expected_slope, atol=1e-10)
    assert torch.allclose(curvature, expected_curvature, atol=1e-10)
    assert slope.shape == curvature.shape == f.shape


def test_a_log_variance_beyond_its_limit_has_no_slope() -> None:
    lik, f = hs.Heteroscedastic(), torch.tensor([[0.5, 40.0]])
    slope, curvature = lik.curvature(f, torch.ones(1, 1))
    assert float(slope[0, 1]) == float(curvature[0, 1]) == 0.0
