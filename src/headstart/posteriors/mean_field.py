"""Mean-field: every weight on its own, `Cov = diag(exp logvar)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, cast

import torch
from torch import Tensor, nn

from headstart.errors import unknown
from headstart.kernels import private as torch_private
from headstart.kernels.fused import autocasting, dense, dense_by_weights, isotropic_kl, perturb
from headstart.kernels.members import Fold, dense_each, member_noise
from headstart.kernels.noise import Noise, fresh
from headstart.kernels.plain import positive
from headstart.linalg.affine import affine, affine_each, fan_in, is_dense, split, squared
from headstart.linalg.gaussians import UnitGaussian
from headstart.posteriors.base import (
    Functions,
    GaussianPrior,
    KnownMoments,
    Posterior,
    WeightMoments,
    default_logvar,
)


class MeanField(Posterior):
    """q(w) = Π N(mean, exp(logvar)).

    Args:
        units: The number of output units.
        size: The number of weights of a unit, its bias included.
        factory: The `dtype` and `device` of the parameters.

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

    def transposed(self) -> MeanField:
        """The same law of the transposed matrix, with the same parameters."""
        return _ByColumns(self)

    def diagonal(self) -> Tensor:
        return self.logvar.exp()

    def moments(self) -> WeightMoments:
        """Mean and variance of each weight, the variance larger than zero."""
        return WeightMoments(self.mean, positive(self.logvar))

    def factors(self) -> None:
        return None

    def logdet(self) -> Tensor:
        return self.logvar.sum()

    def sample(
        self, samples: int, noise: Noise = fresh, moments: WeightMoments | None = None
    ) -> Tensor:
        """Draws of all the weights, as `Posterior.sample`.

        Args:
            samples: How many.
            noise: Where the noise comes from.
            moments: The moments of the weights, where they are known already.
        """
        diagonal = self.diagonal() if moments is None else moments.var
        drawn = noise((samples, self.units, self.size), self.mean)
        # Fresh noise is nobody else's.
        spread = perturb(self.mean, diagonal, drawn.flatten(-3, -2), samples, noise is fresh)
        return spread.unflatten(0, (samples, -1))

    def local(
        self,
        op: nn.Module,
        x: Tensor,
        samples: int,
        noise: Noise = fresh,
        moments: WeightMoments | None = None,
    ) -> Tensor:
        """Draws of the layer's output, as `Posterior.local`.

        Args:
            op: The layer.
            x: Its input.
            samples: How many draws from each row.
            noise: Where the noise comes from.
            moments: The moments of the weights, where they are known already.
        """
        if _plainly_dense(op, x):
            mean, var = self.moments() if moments is None else moments
            return dense(x, mean, var, noise((samples * x.shape[0], self.units), x), samples)
        if moments is None:
            return super().local(op, x, samples, noise)
        mean = affine(op, x, *split(op, self.mean))
        var = affine(op, squared(op, x), *split(op, moments.var))
        return self._spread_outputs(op, mean, var, samples, noise)

    def local_each(
        self,
        op: nn.Module,
        x: Tensor,
        fold: Fold,
        noise: Noise = fresh,
        moments: WeightMoments | None = None,
    ) -> Tensor:
        """Draws of the outputs of K posteriors, as `Posterior.local_each`.

        Args:
            op: The layer of one of them.
            x: Its input.
            fold: How the samples lie along axis 0.
            noise: Where the noise comes from.
            moments: The moments of the weights, where they are known already.
        """
        if _plainly_dense(op, x):
            mean, var = self.moments() if moments is None else moments
            shape = fold.rows(x), self.units // fold.members
            return dense_each(x, mean, var, member_noise(noise, fold, shape, x), fold)
        diagonal = self.diagonal() if moments is None else moments.var
        return self._spread_each(op, x, diagonal, fold, noise)

    def functions(
        self, samples: int, noise: Noise = fresh, moments: WeightMoments | None = None
    ) -> Functions:
        """What draws of the weights make of any input, as `Posterior.functions`.

        Args:
            samples: How many draws.
            noise: Where the noise comes from.
            moments: The moments of the weights, where they are known already.
        """
        mean, var = self.moments() if moments is None else moments
        given = noise((samples, self.units, self.size), mean)

        def run(op: nn.Module, x: Tensor, shared: bool) -> Tensor:
            if shared or samples == 1 or not _plainly_dense(op, x):
                draws = self.sample(samples, lambda shape, like: given, moments)
                return affine_each(op, x, draws, shared)
            return dense_by_weights(x, mean, var, given, samples)

        return run

    def kl(self, prior: GaussianPrior) -> Tensor:
        """KL(q‖p), summed over every weight.

        Args:
            prior: p.
        """
        return self.total_kl([(self, prior)])[0]

    @classmethod
    def total_kl(
        cls, pairs: Sequence[tuple[Posterior, GaussianPrior]]
    ) -> tuple[Tensor, dict[Posterior, KnownMoments]]:
        """The sum of `kl`: layers under the same fixed prior variance at once, others one by one.

        Args:
            pairs: The posterior and the prior of each layer.

        Returns:
            The sum, and what to draw with where the KL has computed a posterior's moments.
        """
        parts: list[Tensor] = []
        known: dict[Posterior, KnownMoments] = {}
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
            found = isotropic_kl([q.mean for q in layers], [q.logvar for q in layers], prior_var)
            parts.append(found.kl)
            moments = map(WeightMoments, found.means, found.variances)
            for layer, each in zip(layers, moments, strict=True):
                known[layer] = _DrawsFromKL(layer, each, torch_private.own_parameters(layer))
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum(), known

    @torch.no_grad()
    def project_(self, gaussian: UnitGaussian, match: str = "kl_qp") -> None:
        """`KL(q‖p)` minimized gives `1/P_ii`, `KL(p‖q)` gives `Σ_ii`, which is wider.

        Args:
            gaussian: A Gaussian over the weights of each unit.
            match: The KL to minimize: "kl_qp" or "kl_pq".
        """
        matches = {
            "kl_qp": lambda: 1 / gaussian.precision_diagonal(),
            "kl_pq": gaussian.covariance_diagonal,
        }
        if match not in matches:
            raise unknown("match", match, matches)
        self.mean.copy_(gaussian.mean)
        self.logvar.copy_(matches[match]().log())


class _ByColumns(MeanField):
    """A mean-field posterior of the transposed matrix, without parameters of its own."""

    def __init__(self, posterior: MeanField) -> None:
        nn.Module.__init__(self)
        self.units, self.size = posterior.size, posterior.units
        self._of = (posterior,)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self._of[0].mean.T

    @property
    def logvar(self) -> Tensor:  # type: ignore[override]
        return self._of[0].logvar.T


@dataclass(eq=False)
class _DrawsFromKL:
    """Draws of a mean-field posterior with the moments that its KL has computed."""

    posterior: MeanField
    moments: WeightMoments
    parameters: Sequence[Tensor | None]
    """The parameters that the moments are of."""

    def sample(self, samples: int, noise: Noise = fresh) -> Tensor:
        return self.posterior.sample(samples, noise, self._valid())

    def local(self, op: nn.Module, x: Tensor, samples: int, noise: Noise = fresh) -> Tensor:
        return self.posterior.local(op, x, samples, noise, self._valid())

    def local_each(self, op: nn.Module, x: Tensor, fold: Fold, noise: Noise = fresh) -> Tensor:
        return self.posterior.local_each(op, x, fold, noise, self._valid())

    def functions(self, samples: int, noise: Noise = fresh) -> Functions:
        return self.posterior.functions(samples, noise, self._valid())

    def _valid(self) -> WeightMoments | None:
        """The moments, unless torch.func.functional_call has put other parameters in place."""
        now = torch_private.own_parameters(self.posterior)
        same = len(self.parameters) == len(now) and all(map(is_, now, self.parameters))
        return self.moments if same else None


def _plainly_dense(op: nn.Module, x: Tensor) -> bool:
    return is_dense(op) and x.ndim == 2 and x.shape[1] == fan_in(op) and not autocasting(x)
