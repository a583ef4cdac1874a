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


def test_predictions_of_a_gaussian_have_a_noise_of_their_own() -> None:
    lik = hs.Gaussian([0.4, 0.2], predictive_ratio=[0.5, 2.0])
    assert torch.allclose(lik.for_prediction().noise_var, torch.tensor([0.2, 0.4]))
    assert torch.allclose(lik.noise_var, torch.tensor([0.4, 0.2]))
    again = hs.Gaussian([0.4, 0.2], **lik.config())
    assert torch.equal(again.predictive_ratio, lik.predictive_ratio)
    assert "predictive_ratio" not in hs.Gaussian().config()


def test_a_ratio_that_is_no_ratio_is_refused() -> None:
    with pytest.raises(hs.HeadstartError, match="predictive_ratio must be positive"):
        hs.Gaussian(predictive_ratio=-1.0)
    with pytest.raises(hs.HeadstartError, match="predictive_ratio has 3 values"):
        hs.Gaussian(predictive_ratio=[1.0, 2.0, 3.0]).check(torch.zeros(4, 2), 2)
