"""Calibration by validation rows: conformal factors, intervals, and rows that are unlike."""

from __future__ import annotations

import torch

from headstart.likelihoods import Gaussian, Poisson
from headstart.predictive import Predictive
from headstart.tabular.calibration import Calibration
from headstart.tabular.target import Target

QUANTITY = Target("y", "regression")


def standard_normal(rows: int) -> Predictive:
    """The same prediction for every row: mean 0, noise 1, and some epistemic part."""
    draws = torch.linspace(-1, 1, 8, dtype=torch.float64)[:, None, None].expand(8, rows, 1)
    return Predictive(draws, Gaussian(1.0))


def test_factors_of_earlier_runs_widen_intervals() -> None:
    pred = standard_normal(20)
    calibration = Calibration({0.95: 5.0}, 0.75)
    low, high = calibration.interval(pred, 0.95)
    torch.testing.assert_close(high - pred.mean[:, 0], 5 * pred.std[:, 0])
    torch.testing.assert_close(pred.mean[:, 0] - low, 5 * pred.std[:, 0])
    for end, own in zip(calibration.interval(pred, 0.5), pred.interval(0.5), strict=True):
        assert torch.equal(end, own[:, 0])


def test_the_threshold_is_the_99th_percentile_of_the_epistemic_part() -> None:
    spread = torch.linspace(0.1, 2.0, 200, dtype=torch.float64)
    draws = torch.stack([-spread, spread])[..., None]
    pred = Predictive(draws, Gaussian(1.0))
    found = Calibration.fit([pred], QUANTITY).threshold
    assert int((pred.epistemic_std[:, 0] > found).sum()) == 2


def test_there_and_back_through_json() -> None:
    calibration = Calibration({0.5: 1.25, 0.95: 2.5}, 0.75)
    assert Calibration.from_json(calibration.to_json()) == calibration


def test_intervals_of_counts_are_those_of_their_likelihood() -> None:
    """Of the rate .34 [0, 1] holds .954: the quantile at .975 would be 2."""
    pred = Predictive(torch.full((8, 3, 1), 0.34).log(), Poisson())
    low, high = Calibration().interval(pred, 0.95)
    assert (low.tolist(), high.tolist()) == ([0, 0, 0], [1, 1, 1])
