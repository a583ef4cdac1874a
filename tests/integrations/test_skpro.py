"""The regressor for skpro: its own checks, and the exactness of its distribution."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

import headstart as hs
from headstart.estimators import BayesianRegressor

pytest.importorskip("skpro")
# Deprecations of pandas within it.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def quick(noise: str | None = "varying") -> BayesianRegressor:
    return BayesianRegressor(
        noise=noise, model="mlp-1x20", steps=30, effort="quick", trees=False, random_state=0
    )


def table(rows: int = 60) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=rows), 7: rng.normal(size=rows)})
    return X, pd.DataFrame({"price": 100 + 20 * X["a"] + rng.normal(size=rows)})


def test_skpro_s_own_checks_pass() -> None:
    from skpro.utils import check_estimator

    found = check_estimator(hs.integrations.SkproRegressor, verbose=False)
    assert len(found) > 20
    assert {name: said for name, said in found.items() if said != "PASSED"} == {}


@pytest.mark.parametrize("noise", ["constant", "varying"])
def test_the_distribution_is_that_of_the_estimator(noise: str) -> None:
    X, y = table()
    fitted = hs.integrations.SkproRegressor(quick(noise)).fit(X, y)
    found, own = fitted.predict_proba(X), fitted.estimator_.predictive(X.rename(columns=str))
    assert list(found.columns) == ["price"]
    np.testing.assert_allclose(found.mean(), own.mean, rtol=1e-9)
    np.testing.assert_allclose(fitted.predict(X), own.mean, rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(found.var()), own.std, rtol=1e-6)
    wanted = own.log_prob(y["price"].to_numpy())
    np.testing.assert_allclose(found.log_pdf(y)["price"], wanted, rtol=1e-6)
    lower, upper = own.interval(0.9)
    np.testing.assert_allclose(found.quantile(0.05), lower, rtol=1e-5)
    np.testing.assert_allclose(found.quantile(0.95), upper, rtol=1e-5)


def test_the_crps_is_exact() -> None:
    from skpro.metrics import CRPS

    X, y = table()
    fitted = hs.integrations.SkproRegressor(quick("constant")).fit(X, y)
    found = fitted.predict_proba(X).iloc[:5]
    truth = y.iloc[:5]
    grid = np.linspace(0, 220, 20_001)
    for row in range(5):
        d, y_row = found.iat[row, 0], float(truth.iloc[row, 0])
        z = (grid[:, None] - np.ravel(d.mu)) / np.ravel(d.sigma)
        wanted = np.trapezoid((ndtr(z).mean(1) - (grid >= y_row)) ** 2, grid)
        energy = float(d.energy(y_row)) - 0.5 * float(d.energy())
        assert energy == pytest.approx(wanted, rel=1e-2)
    each = CRPS().evaluate_by_index(truth, found)
    assert np.ravel(each)[4] == pytest.approx(energy, rel=1e-6)


def test_noise_that_is_not_gaussian_is_refused() -> None:
    X, y = table(20)
    with pytest.raises(hs.HeadstartError, match="noise='constant' or 'varying'"):
        hs.integrations.SkproRegressor(quick(None)).fit(X, y)


def test_the_default_is_noise_that_varies_and_the_parameter_stays_as_it_was() -> None:
    given = quick()
    X, y = table(20)
    fitted = hs.integrations.SkproRegressor(given).fit(X, y)
    assert fitted.estimator is given
    assert not hasattr(given, "model_")
    assert hs.integrations.SkproRegressor().estimator is None
