"""Calibration by validation rows: conformal factors, intervals, and rows that are unlike."""

from __future__ import annotations

import pytest
import torch

from headstart.errors import HeadstartError
from headstart.likelihoods import Gaussian
from headstart.predictive import Predictive
from headstart.tabular.calibration import Calibration, conformal_factors
from headstart.tabular.target import Target

QUANTITY = Target("y", "regression")


def standard_normal(rows: int) -> Predictive:
    """The same prediction for every row: mean 0, noise 1, and some epistemic part."""
    draws = torch.linspace(-1, 1, 8, dtype=torch.float64)[:, None, None].expand(8, rows, 1)
    return Predictive(draws, Gaussian(1.0))


def test_conformal_intervals_cover_what_they_promise() -> None:
    y = torch.randn(999, generator=torch.Generator().manual_seed(0)).double() * 3
    pred = standard_normal(len(y))
    calibration = Calibration.fit([(pred, y)], QUANTITY, conformal=True)
    for level in (0.5, 0.95):
        assert calibration.coverage(pred, y, level) == pytest.approx(level, abs=0.002)
    plain = Calibration.fit([(pred, y)], QUANTITY, conformal=False)
    assert plain.factors == {}
    assert plain.coverage(pred, y, 0.95) < 0.7
    low, high = plain.interval(pred, 0.95)
    own_low, own_high = pred.interval(0.95)
    assert torch.equal(low, own_low[:, 0])
    assert torch.equal(high, own_high[:, 0])


def test_the_threshold_is_the_99th_percentile_of_the_epistemic_part() -> None:
    spread = torch.linspace(0.1, 2.0, 200, dtype=torch.float64)
    draws = torch.stack([-spread, spread])[..., None]
    pred = Predictive(draws, Gaussian(1.0))
    held_out = [(pred, torch.zeros(200).double())]
    found = Calibration.fit(held_out, QUANTITY, conformal=False).threshold
    assert int((pred.epistemic_std[:, 0] > found).sum()) == 2


def test_there_and_back_through_json() -> None:
    calibration = Calibration({0.5: 1.25, 0.95: 2.5}, 0.75)
    assert Calibration.from_json(calibration.to_json()) == calibration


def test_too_few_rows_for_an_interval() -> None:
    with pytest.raises(HeadstartError, match=r"at least 19 validation rows .* there are 18"):
        conformal_factors([(standard_normal(18), torch.zeros(18).double())])
