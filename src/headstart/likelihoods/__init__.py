"""Likelihoods by name."""

from __future__ import annotations

from typing import TypeVar

from headstart import registration
from headstart.likelihoods.base import Likelihood
from headstart.likelihoods.bernoulli import Bernoulli
from headstart.likelihoods.categorical import Categorical
from headstart.likelihoods.censored_gaussian import CensoredGaussian
from headstart.likelihoods.gaussian import Gaussian
from headstart.likelihoods.heteroscedastic import Heteroscedastic
from headstart.likelihoods.mixture_density import MixtureDensity
from headstart.likelihoods.multi_label import MultiLabel
from headstart.likelihoods.negative_binomial import NegativeBinomial
from headstart.likelihoods.ordinal import Ordinal
from headstart.likelihoods.poisson import Poisson
from headstart.likelihoods.power import Power
from headstart.likelihoods.student_t import StudentT

LIKELIHOODS: dict[str, type[Likelihood]] = {
    kind.name: kind
    for kind in (
        Gaussian,
        Heteroscedastic,
        StudentT,
        CensoredGaussian,
        MixtureDensity,
        Categorical,
        Bernoulli,
        MultiLabel,
        Ordinal,
        Poisson,
        NegativeBinomial,
        Power,
    )
}

L = TypeVar("L", bound=type[Likelihood])


def register_likelihood(kind: L) -> L:
    """A decorator that lets files name a likelihood of your own, to `save` and `load` it.

    A process that loads such a file imports the module of the class first.

    Args:
        kind: A subclass of `Likelihood` with a `name` of its own; `config()` returns the options
            that rebuild it, tensors apart.

    Returns:
        The class.

    Raises:
        HeadstartError: It has no name, lacks methods, or its name is taken.

    Example:
        >>> @register_likelihood
        ... class Rates(Poisson):
        ...     name = "rates"
        >>> LIKELIHOODS.pop("rates").__name__
        'Rates'
    """
    registration.enter(LIKELIHOODS, kind, "likelihood")
    return kind


__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "CensoredGaussian",
    "Gaussian",
    "Heteroscedastic",
    "Likelihood",
    "MixtureDensity",
    "MultiLabel",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "Power",
    "StudentT",
    "register_likelihood",
]
