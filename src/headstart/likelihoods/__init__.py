"""Likelihoods by name."""

from __future__ import annotations

from headstart.likelihoods.base import Likelihood
from headstart.likelihoods.bernoulli import Bernoulli
from headstart.likelihoods.categorical import Categorical
from headstart.likelihoods.gaussian import Gaussian
from headstart.likelihoods.heteroscedastic import Heteroscedastic
from headstart.likelihoods.poisson import Poisson

LIKELIHOODS: dict[str, type[Likelihood]] = {
    kind.name: kind for kind in (Gaussian, Heteroscedastic, Categorical, Bernoulli, Poisson)
}

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "Heteroscedastic",
    "Likelihood",
    "Poisson",
]
