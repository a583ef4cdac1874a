"""Full covariance: the weights of a unit are correlated, units are independent."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headstart.linalg.gaussians import UnitGaussian
from headstart.posteriors.base import Posterior, Triangular, default_logvar


class FullCovariance(Posterior):
    """q(w) = Π_u N(mean_u, L_u L_uᵀ): memory and work grow as units × size².

    Args:
        units: The number of output units.
        size: The number of weights of a unit, its bias included.
        factory: The `dtype` and `device` of the parameters.

    Example:
        >>> q = FullCovariance(units=3, size=5)
        >>> q.factors().shape
        torch.Size([5, 3, 5])
    """

    name = "full_covariance"

    def __init__(self, units: int, size: int, **factory: Any) -> None:
        super().__init__(units, size, **factory)
        self.factor = Triangular(units, size, **factory)
        torch.nn.init.constant_(self.factor.log_diagonal, default_logvar(size) / 2)

    def diagonal(self) -> None:
        return None

    def factors(self) -> Tensor:
        # The columns of L.
        return self.factor.matrix().permute(2, 0, 1)

    def logdet(self) -> Tensor:
        return self.factor.logdet()

    @torch.no_grad()
    def project_(self, gaussian: UnitGaussian, match: str = "kl_qp") -> None:
        """The family holds the Gaussian itself, whichever KL one matches.

        Args:
            gaussian: A Gaussian over the weights of each unit.
            match: Not used.
        """
        self.mean.copy_(gaussian.mean)
        self.factor.set_(gaussian.scale_tril())
