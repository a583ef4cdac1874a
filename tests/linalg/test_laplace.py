"""The prior variance with the largest Laplace evidence."""

from __future__ import annotations

import pytest
import torch

from headstart.linalg.laplace import LARGEST, SMALLEST, best_prior_variance


@pytest.mark.parametrize("square", [1e-3, 2.0, 500.0])
def test_the_variance_is_mackays_fixed_point(square: float) -> None:
    values = torch.logspace(-3, 4, 50, dtype=torch.float64)
    var = best_prior_variance(values, square)
    effective = float((values * var / (1 + values * var)).sum())
    assert var * effective == pytest.approx(square, rel=1e-9)


def test_no_variance_nearby_has_more_evidence() -> None:
    values, square = torch.tensor([3.0, 0.0, 40.0], dtype=torch.float64), 2.5
    var = best_prior_variance(values, square)

    def evidence(var: float) -> float:
        return -0.5 * (square / var + float(torch.log1p(values * var).sum()))

    assert evidence(var) > max(evidence(1.001 * var), evidence(var / 1.001))


def test_weights_of_zero_and_data_that_say_nothing_stay_within_bounds() -> None:
    nothing = torch.zeros(4, dtype=torch.float64)
    assert best_prior_variance(nothing, 1.0) == pytest.approx(LARGEST)
    assert best_prior_variance(nothing + 1, 0.0) == pytest.approx(SMALLEST)
