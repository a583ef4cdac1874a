"""Mean-field: every weight on its own, `Cov = diag(exp logvar)`."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any, cast

import torch
from torch import Tensor, nn

from headstart.errors import unknown
from headstart.kernels import private as torch_private
from headstart.kernels.fused import autocasting, dense, drawn, isotropic, positive
from headstart.kernels.noise import Noise, fresh
from headstart.linalg.affine import affine_each, fan_in, is_dense
from headstart.linalg.gaussians import UnitGaussian
from headstart.posteriors.base import Functions, Moments, Posterior, Prior, default_logvar


class MeanField(Posterior):
    """q(w) = Π N(mean, exp(logvar)).

    Example:
        >>> q = MeanField(units=3, size=5)
        >>> q.sample(7).shape
        torch.Size([7, 3, 5])
    """

    name = "mean_field"
    local_is_cheap = True

    def __init__(self, units: int, size: int, **factory: Any) -> None:
        super().__init__(units, size, **factory)
        self.logvar = nn.Parameter(torch.full_like(self.mean, default_logvar(size)))

    def diagonal(self) -> Tensor:
        shared = self._shared_moments()
        return self.logvar.exp() if shared is None else shared.var

    def moments(self) -> Moments:
        """Mean and variance of each weight, the variance larger than zero."""
        return self._shared_moments() or Moments(self.mean, positive(self.logvar))

    def _shared_moments(self) -> Moments | None:
        if self.shared is None:
            return None
        moments, of = self.shared
        now = torch_private.own_parameters(self)
        same = len(of) == len(now) and all(map(is_, now, of))
        return moments if same else None  # torch.func.functional_call replaces them

    def factors(self) -> None:
        return None

    def logdet(self) -> Tensor:
        return self.logvar.sum()

    def local(self, op: nn.Module, x: Tensor, samples: int, noise: Noise = fresh) -> Tensor:
        if not _plainly_dense(op, x):
            return super().local(op, x, samples, noise)
        return dense(x, *self.moments(), noise((samples * x.shape[0], self.units), x), samples)

    def functions(self, samples: int, noise: Noise = fresh) -> Functions:
        moments = self.moments()
        given = noise((samples, self.units, self.size), moments.mean)

        def run(op: nn.Module, x: Tensor, shared: bool) -> Tensor:
            if shared or samples == 1 or not _plainly_dense(op, x):
                return affine_each(op, x, self.sample(samples, lambda shape, like: given), shared)
            return drawn(x, *moments, given, samples)

        return run

    def kl(self, prior: Prior) -> Tensor:
        return self.total_kl([(self, prior)])[0]

    @classmethod
    def total_kl(
        cls, pairs: Sequence[tuple[Posterior, Prior]]
    ) -> tuple[Tensor, dict[Posterior, Moments]]:
        """Layers of one kind under the same fixed prior variance all at once, the others each on its own."""
        parts: list[Tensor] = []
        shared: dict[Posterior, Moments] = {}
        together: dict[tuple[float, torch.dtype, torch.device], list[MeanField]] = {}
        for posterior, prior in pairs:
            if prior.fixed_var is None:
                parts.append(Posterior.kl(posterior, prior))
            else:
                mean = posterior.mean
                together.setdefault((prior.fixed_var, mean.dtype, mean.device), []).append(
                    cast(MeanField, posterior)
                )
        for (prior_var, *_), layers in together.items():
            found = isotropic([q.mean for q in layers], [q.logvar for q in layers], prior_var)
            parts.append(found.kl)
            shared.update(zip(layers, map(Moments, found.means, found.variances), strict=True))
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum(), shared

    @torch.no_grad()
    def project_(self, gaussian: UnitGaussian, match: str = "kl_qp") -> None:
        """`KL(q‖p)` minimised gives `1/P_ii`, `KL(p‖q)` gives `Σ_ii`, which is wider."""
        matches = {
            "kl_qp": lambda: 1 / gaussian.precision_diagonal(),
            "kl_pq": gaussian.covariance_diagonal,
        }
        if match not in matches:
            raise unknown("match", match, matches)
        self.mean.copy_(gaussian.mean)
        self.logvar.copy_(matches[match]().log())


def _plainly_dense(op: nn.Module, x: Tensor) -> bool:
    return is_dense(op) and x.ndim == 2 and x.shape[1] == fan_in(op) and not autocasting(x)
