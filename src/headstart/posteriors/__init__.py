"""Variational families by name."""

from __future__ import annotations

from headstart.posteriors.base import Functions, Moments, Posterior
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
    "LowRank",
    "MatrixNormal",
    "MeanField",
    "Moments",
    "Posterior",
]
