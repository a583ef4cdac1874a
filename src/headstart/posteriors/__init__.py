"""Variational families by name."""

from __future__ import annotations

from typing import TypeVar

from headstart import registration
from headstart.posteriors.base import Functions, KnownMoments, Posterior, UnitCovariance
from headstart.posteriors.dropout import Dropout
from headstart.posteriors.full_covariance import FullCovariance
from headstart.posteriors.low_rank import LowRank
from headstart.posteriors.matrix_normal import MatrixNormal
from headstart.posteriors.mean_field import MeanField

POSTERIORS: dict[str, type[Posterior]] = {
    family.name: family for family in (MeanField, LowRank, FullCovariance, MatrixNormal, Dropout)
}

P = TypeVar("P", bound=type[Posterior])


def register_posterior(kind: P) -> P:
    """A decorator that lets `bayesianize(posterior=name)` and files name a family of your own.

    A process that loads such a file imports the module of the class first.

    Args:
        kind: A subclass of `Posterior` with a `name` of its own; `config()` returns the options
            that rebuild it, tensors apart.

    Returns:
        The class.

    Raises:
        HeadstartError: It has no name, lacks methods, or its name is taken.

    Example:
        >>> @register_posterior
        ... class Independent(MeanField):
        ...     name = "independent"
        >>> POSTERIORS.pop("independent").__name__
        'Independent'
    """
    registration.enter(POSTERIORS, kind, "posterior")
    return kind


__all__ = [
    "POSTERIORS",
    "Dropout",
    "FullCovariance",
    "Functions",
    "KnownMoments",
    "LowRank",
    "MatrixNormal",
    "MeanField",
    "Posterior",
    "UnitCovariance",
    "register_posterior",
]
