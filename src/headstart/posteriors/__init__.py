"""Variational families by name."""

from __future__ import annotations

from headstart.posteriors.base import Functions, KnownMoments, Posterior, UnitCovariance
from headstart.posteriors.dropout import Dropout
from headstart.posteriors.full_covariance import FullCovariance
from headstart.posteriors.low_rank import LowRank
from headstart.posteriors.matrix_normal import MatrixNormal
from headstart.posteriors.mean_field import MeanField

POSTERIORS: dict[str, type[Posterior]] = {
    family.name: family for family in (MeanField, LowRank, FullCovariance, MatrixNormal, Dropout)
}

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
]
