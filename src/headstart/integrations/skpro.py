"""`BayesianRegressor` as a probabilistic regressor of skpro."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import pandas as pd
from scipy.special import ndtr
from sklearn.base import clone
from skpro.distributions.normal_mixture import NormalMixture
from skpro.regression.base import BaseProbaRegressor

from headstart.errors import HeadstartError
from headstart.estimators import BayesianRegressor
from headstart.estimators.base import NumpyArray

__all__ = ["SkproRegressor"]

GAUSSIAN_NOISE = ("constant", "varying")
"""Noise models whose predictive distribution is a mixture of Gaussians, one for each draw."""


@final
class GaussianDraws(NormalMixture):  # type: ignore[misc]
    """A mixture of Gaussians whose self-energy counts the distance of their means.

    `NormalMixture` takes all means for the same there, so that its CRPS is too large. Its
    parameters are those of `NormalMixture`: `pi` (rows, S), `mu` and `sigma` (rows, S, outputs).
    """

    def _energy_self(self) -> Any:
        """`E|X − Y| = Σ_kl π_k π_l E|N(μ_k − μ_l, σ_k² + σ_l²)|`, summed over outputs."""
        apart = self._mu[:, :, None] - self._mu[:, None]
        sd = np.sqrt(self._sigma[:, :, None] ** 2 + self._sigma[:, None] ** 2)
        weight = self._pi[:, :, None, None] * self._pi[:, None, :, None]
        energy = (weight * _mean_distance(apart, sd)).sum((1, 2, 3))
        return float(energy[0]) if self.ndim == 0 else energy[:, None]

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> GaussianDraws:
        return _as_draws(super()._iloc(rowidx, colidx))

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> GaussianDraws:
        return _as_draws(super()._iat(rowidx, colidx))


@final
class SkproRegressor(BaseProbaRegressor):  # type: ignore[misc]
    """A Bayesian net as a probabilistic regressor of skpro, for one target.

    `predict_proba` gives the predictive distribution itself: a mixture with a Gaussian for each
    draw of the weights, so that densities, quantiles and the CRPS are exact.

    Args:
        estimator: The estimator to fit, with `noise` `constant` or `varying`;
            None: `BayesianRegressor(noise="varying")`.

    Attributes:
        estimator_: The fitted estimator.

    Example:
        >>> import numpy as np, pandas as pd
        >>> from headstart.estimators import BayesianRegressor
        >>> from headstart.integrations import SkproRegressor
        >>> X = pd.DataFrame({"a": np.linspace(-2, 2, 100)})
        >>> net = BayesianRegressor(noise="constant", effort="quick", steps=20, random_state=0)
        >>> found = SkproRegressor(net).fit(X, X.rename(columns={"a": "y"})).predict_proba(X[:3])
        >>> found.shape, bool((found.var() > 0).all(axis=None))
        ((3, 1), True)
    """

    _tags = {  # noqa: RUF012
        "authors": ["headstart developers"],
        "capability:multioutput": False,
        "capability:missing": False,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator: BayesianRegressor | None = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> SkproRegressor:
        chosen = self.estimator
        net = BayesianRegressor(noise="varying") if chosen is None else clone(chosen)
        if net.noise not in GAUSSIAN_NOISE:
            raise HeadstartError(
                f"SkproRegressor predicts mixtures of Gaussians, and noise={net.noise!r} may be "
                "another distribution: give BayesianRegressor noise='constant' or 'varying'."
            )
        self.columns_ = y.columns
        self.estimator_ = net.fit(_text_columns(X), y.iloc[:, 0])
        return self

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        mean = self.estimator_.predict(_text_columns(X))
        return pd.DataFrame(mean, index=X.index, columns=self.columns_)

    def _predict_proba(self, X: pd.DataFrame) -> GaussianDraws:
        found = self.estimator_.predictive(_text_columns(X))
        # (S, rows, 1), as (rows, S, 1).
        mu, variance = (
            moment(found.draws).double().movedim(0, 1).numpy()
            for moment in (found.likelihood.mean, found.likelihood.variance)
        )
        sigma = np.broadcast_to(np.sqrt(variance), mu.shape)
        pi = np.full(mu.shape[:2], 1 / mu.shape[1])
        return GaussianDraws(pi, mu, sigma, index=X.index, columns=self.columns_)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Parameters for skpro's interface checks.

        Args:
            parameter_set: The name of the set; there is one.

        Returns:
            Parameters of `__init__`.
        """
        quick: dict[str, Any] = {"model": "mlp-1x10", "steps": 5, "effort": "quick", "trees": False}
        return [
            {"estimator": BayesianRegressor(noise=noise, random_state=0, **quick)}
            for noise in GAUSSIAN_NOISE
        ]


def _text_columns(X: pd.DataFrame) -> pd.DataFrame:
    """A frame whose names are words: scikit-learn takes no others beside each other."""
    return X.rename(columns=str)


def _as_draws(found: NormalMixture) -> GaussianDraws:
    scalar = found.ndim == 0
    index, columns = (None, None) if scalar else (found.index, found.columns)
    return GaussianDraws(found.pi, found.mu, found.sigma, index=index, columns=columns)


def _mean_distance(apart: NumpyArray, sd: NumpyArray) -> NumpyArray:
    """`E|N(apart, sd²)|`, the mean of a folded Gaussian."""
    z = apart / sd
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return apart * (2 * ndtr(z) - 1) + 2 * sd * density
