"""Likelihoods by name."""

from __future__ import annotations

from headstart.likelihoods.base import Likelihood
from headstart.likelihoods.categorical import Categorical
from headstart.likelihoods.gaussian import Gaussian

LIKELIHOODS: dict[str, type[Likelihood]] = {kind.name: kind for kind in (Gaussian, Categorical)}

__all__ = ["LIKELIHOODS", "Categorical", "Gaussian", "Likelihood"]
