"""Low rank plus diagonal: a few directions of correlation per unit."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.linalg.gaussians import UnitGaussian
from headstart.posteriors.base import Posterior, default_logvar


class LowRank(Posterior):
    """q(w) = Π_u N(mean_u, diag(exp logvar_u) + Σ_r v_ru v_ruᵀ).

    Args:
        units: The number of output units.
        size: The number of weights of a unit, its bias included.
        rank: The number R of directions, at least 1.
        factory: The `dtype` and `device` of the parameters.

    Example:
        >>> q = LowRank(units=3, size=5, rank=2)
        >>> q.factors().shape
        torch.Size([2, 3, 5])
    """

    name = "low_rank"
    unit_axes = MappingProxyType({"directions": 1})

    def __init__(self, units: int, size: int, *, rank: int = 4, **factory: Any) -> None:
        if rank < 1:
            raise HeadstartError(f"low_rank needs a rank of at least 1, not {rank}.")
        super().__init__(units, size, **factory)
        self.rank = min(rank, size)
        self.logvar = nn.Parameter(torch.full_like(self.mean, default_logvar(size)))
        # Small and random: at zero the factors would never receive a gradient.
        spread = 0.1 / size**0.5
        self.directions = nn.Parameter(spread * torch.randn(self.rank, units, size, **factory))

    def config(self) -> dict[str, Any]:
        return {"rank": self.rank}

    def diagonal(self) -> Tensor:
        return self.logvar.exp()

    def factors(self) -> Tensor:
        return self.directions

    def logdet(self) -> Tensor:
        """`log|diag(d) + V Vᵀ| = Σ log d + log|I + Vᵀ diag(1/d) V|`, R×R per unit."""
        v = self.directions
        inner = torch.einsum("rud,ud,qud->urq", v, (-self.logvar).exp(), v)
        inner = inner + torch.eye(self.rank, dtype=v.dtype, device=v.device)
        cholesky = torch.linalg.cholesky(inner)
        return self.logvar.sum() + 2 * cholesky.diagonal(dim1=-2, dim2=-1).log().sum()

    @torch.no_grad()
    def project_(self, gaussian: UnitGaussian, match: str = "kl_qp") -> None:
        """The best member in KL(q‖p) with the leading directions of the scaled covariance.

        Weights are scaled so that P_ii = 1, and `P̃ = Σ_j λ_j u_j u_jᵀ` with λ ascending. The
        variance is 1/λ_j along the first R directions and `δ = 1/mean(λ_rest)` along all others:
        the minimum over δ and those R variances. Mean-field is δ = 1 without a direction, so this
        is never worse; R = size is exact.

        Args:
            gaussian: A Gaussian over the weights of each unit.
            match: Not used.
        """
        scale = gaussian.precision_diagonal().rsqrt()
        eigenvalues, vectors = torch.linalg.eigh(
            gaussian.precision() * scale.unsqueeze(-1) * scale.unsqueeze(-2)
        )
        kept, rest = eigenvalues[:, : self.rank], eigenvalues[:, self.rank :]
        delta = 1 / rest.mean(-1, keepdim=True) if rest.shape[1] else 0.5 / kept[:, -1:]
        # Shapes: scale (U, D), amplitude (U, R), directions (U, D, R).
        amplitude = (1 / kept - delta).clamp_min(0).sqrt()
        directions = vectors[..., : self.rank] * amplitude.unsqueeze(-2) * scale.unsqueeze(-1)
        self.mean.copy_(gaussian.mean)
        self.logvar.copy_((delta * scale.square()).log())
        self.directions.copy_(directions.permute(2, 0, 1))
