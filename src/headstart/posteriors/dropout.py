"""Dropout: a unit is there with probability 1 − p, at `1/(1−p)` times its weights, or absent."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.kernels.members import Fold
from headstart.kernels.noise import Noise, fresh
from headstart.linalg.affine import affine, affine_apart, split
from headstart.linalg.gaussians import UnitGaussian
from headstart.posteriors.base import GaussianPrior, Posterior, UnitCovariance


class Dropout(Posterior):
    """q(w_u) = mean_u · z_u / (1 − p), z_u ~ Bernoulli(1 − p): the law of MC dropout.

    See Gal and Ghahramani (2016). Its first two moments are those of a Gaussian with the single
    factor `√(p/(1−p)) · mean`. Drawn locally it drops every position of a feature map on its own,
    as `nn.Dropout` does; drawn by weights, whole units.

    Args:
        units: The number of output units.
        size: The number of weights of a unit, its bias included.
        p: The probability that a unit is dropped, in [0, 1).
        factory: The `dtype` and `device` of the parameters.

    Example:
        >>> q = Dropout(units=3, size=5, p=0.2)
        >>> q.sample(7).shape, bool((q.sample(7) == 0).all())  # its mean starts at zero
        (torch.Size([7, 3, 5]), True)
    """

    name = "dropout"
    has_density = False
    law_is_local = True

    def __init__(self, units: int, size: int, p: float = 0.5, **factory: Any) -> None:
        super().__init__(units, size, **factory)
        if not 0 <= p < 1:
            raise HeadstartError(f"A unit is dropped with a probability in [0, 1), not {p}.")
        self.p = p

    def config(self) -> dict[str, Any]:
        return {"p": self.p}

    def diagonal(self) -> None:
        return None

    def factors(self) -> Tensor:
        return math.sqrt(self.p / (1 - self.p)) * self.mean.unsqueeze(0)

    def logdet(self) -> Tensor:
        raise HeadstartError(
            "Dropout has no density, so no log-determinant; its kl() leaves the entropy out."
        )

    def as_prior(self) -> UnitCovariance:
        """Refuse: a law on two points has no density."""
        raise HeadstartError(
            "A dropout posterior has no density and cannot be inherited; choose another family."
        )

    def kl(self, prior: GaussianPrior) -> Tensor:
        """`−E_q log p`, constants apart.

        The entropy of a law on two points has no place in a KL to a density.

        Args:
            prior: p.
        """
        return 0.5 * (prior.expected_quadratic(self) + prior.logdet(self.units, self.size))

    def sample(self, samples: int, noise: Noise = fresh) -> Tensor:
        """Draws of all the weights, (samples, units, size).

        Args:
            samples: How many.
            noise: Not used: units are dropped by torch's own random numbers.
        """
        kept = self.mean.new_ones(samples, self.units, 1)
        return self.mean * F.dropout(kept, self.p)

    def local(self, op: nn.Module, x: Tensor, samples: int, noise: Noise = fresh) -> Tensor:
        """Draws of the layer's output, every unit and position dropped on its own.

        Args:
            op: The layer.
            x: Its input.
            samples: How many draws from each row.
            noise: Not used: units are dropped by torch's own random numbers.
        """
        out = affine(op, x, *split(op, self.mean))
        return F.dropout(out.repeat(samples, *[1] * (out.ndim - 1)), self.p)

    def local_each(self, op: nn.Module, x: Tensor, fold: Fold, noise: Noise = fresh) -> Tensor:
        """`local` where the units are those of K posteriors, one after another.

        Args:
            op: The layer of one of them.
            x: Its input.
            fold: How the samples lie along axis 0.
            noise: Not used: units are dropped by torch's own random numbers.
        """
        out = affine_apart(op, x, self.mean.unflatten(0, (fold.members, -1)), fold.shared)
        repeated = out.unsqueeze(1).expand(-1, fold.branches, *[-1] * (out.ndim - 1))
        return F.dropout(repeated.flatten(0, 2), self.p)

    @torch.no_grad()
    def project_(self, gaussian: UnitGaussian, match: str = "kl_qp") -> None:
        """Take the mean; the spread is dropout's own.

        Args:
            gaussian: A Gaussian over the weights of each unit.
            match: Not used.
        """
        self.mean.copy_(gaussian.mean)
