"""What every variational family shares: a mean, a diagonal and factors.

Samples, moments and the KL follow from them: per output unit `Cov = diag(d) + Σ_r v_r v_rᵀ`.
A family file is storage, `logdet` and `project_`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from headstart.kernels.fused import perturb
from headstart.kernels.members import Fold, member_noise, perturb_each
from headstart.kernels.noise import Noise, folded, fresh
from headstart.linalg.affine import affine, affine_apart, affine_each, channel_axis, split, squared
from headstart.linalg.gaussians import UnitGaussian

Functions = Callable[[nn.Module, Tensor, bool], Tensor]
"""A layer with each of several draws of its weights: `run(op, x, shared)`.

Each draw has its own rows of `x`, or all have the same ones where they are `shared`.
"""


class WeightMoments(NamedTuple):
    """Mean and variance of each weight of a layer, (units, size)."""

    mean: Tensor
    var: Tensor


class UnitCovariance(NamedTuple):
    """A Gaussian with independent units, as a prior keeps it: one of `var` and `scale_tril`."""

    mean: Tensor
    """(units, size)."""
    var: Tensor | None = None
    """(units, size), where weights are independent."""
    scale_tril: Tensor | None = None
    """The Cholesky factor of each unit's covariance, (units, size, size)."""


class KnownMoments(Protocol):
    """Draws from a posterior whose moments were computed before, for its KL.

    The gradients of the draws and of the KL then reach the parameters in one pass.
    """

    def sample(self, samples: int, noise: Noise = fresh) -> Tensor:
        """As `Posterior.sample`."""

    def local(self, op: nn.Module, x: Tensor, samples: int, noise: Noise = fresh) -> Tensor:
        """As `Posterior.local`."""

    def local_each(self, op: nn.Module, x: Tensor, fold: Fold, noise: Noise = fresh) -> Tensor:
        """As `Posterior.local_each`."""

    def functions(self, samples: int, noise: Noise = fresh) -> Functions:
        """As `Posterior.functions`."""


class GaussianPrior(Protocol):
    """What a posterior asks of its prior N(m, Λ⁻¹)."""

    fixed_var: float | None
    """The variance where it is a single number that is not learned, around a mean of zero."""

    def expected_quadratic(self, posterior: Posterior) -> Tensor:
        """`E_q[(w−m)ᵀ Λ (w−m)]`, summed over units."""

    def logdet(self, units: int, size: int) -> Tensor | float:
        """`log|Λ⁻¹|`, summed over units."""


class Posterior(nn.Module, ABC):
    """q(w) over the (units, size) weights of a layer.

    Args:
        units: The number of output units.
        size: The number of weights of a unit, its bias included.
        factory: The `dtype` and `device` of the parameters.
    """

    name: str
    has_density = True
    """Whether q has a density, and so an entropy that the KL counts."""
    is_kronecker = False
    """Whether the covariance is `V ⊗ U`, which `precisions` returns and `set_` replaces."""
    law_is_local = False
    """Whether `local` is the law itself where positions share weights, no approximation."""
    local_is_cheap = False
    """Whether the moments of a batch cost less than drawing the weights a few times."""
    unit_axes: Mapping[str, int] | None = MappingProxyType({})
    """The axis that counts the units, of parameters whose first axis does not.

    None: units are not independent, so those of several posteriors cannot be stacked.
    """

    def __init__(self, units: int, size: int, **factory: Any) -> None:
        super().__init__()
        self.units, self.size = units, size
        self.mean = nn.Parameter(torch.zeros(units, size, **factory))

    def transposed(self) -> Posterior | None:
        """The law of the transposed matrix, with the same parameters; None: there is none."""
        return None

    # State: what a family stores, seen as a mean, a diagonal and factors.
    @abstractmethod
    def diagonal(self) -> Tensor | None:
        """d (units, size), or None for zero."""

    @abstractmethod
    def factors(self) -> Tensor | None:
        """v (R, units, size), or None for none."""

    @abstractmethod
    def logdet(self) -> Tensor:
        """`log|Cov|`, summed over units."""

    @abstractmethod
    def project_(self, gaussian: UnitGaussian, match: str = "kl_qp") -> None:
        """Become the member of the family nearest to `gaussian`.

        Args:
            gaussian: A Gaussian over the weights of each unit.
            match: The KL to minimize, "kl_qp" or "kl_pq", in families that know both.
        """

    def supports(self, op: nn.Module) -> bool:
        """Whether the weights of this layer may have such a posterior.

        Args:
            op: A stock affine layer.
        """
        return True

    @torch.no_grad()
    def as_prior(self) -> UnitCovariance:
        """This posterior as the prior for data to come, cut off from its parameters.

        Returns:
            Its mean, and its variances or the Cholesky factors of its units' covariances.

        Raises:
            HeadstartError: The family has no density with independent units.
        """
        mean, diagonal, factors = self.mean.detach().clone(), self.diagonal(), self.factors()
        if factors is None:
            return UnitCovariance(mean, var=self.variance().detach().clone())
        covariance = torch.einsum("rui,ruj->uij", factors, factors)
        covariance = covariance if diagonal is None else covariance + torch.diag_embed(diagonal)
        return UnitCovariance(mean, scale_tril=torch.linalg.cholesky(covariance))

    def config(self) -> dict[str, Any]:
        """The options that rebuild this family: `POSTERIORS[name](units, size, **config)`."""
        return {}

    # What follows from it.
    def variance(self) -> Tensor:
        """The marginal variance of each weight, (units, size)."""
        diagonal, factors = self.diagonal(), self.factors()
        spread = 0.0 if factors is None else factors.square().sum(0)
        return spread if diagonal is None else diagonal + spread  # type: ignore[return-value]

    def second_moment(self) -> Tensor:
        """`E_q Σ w²`."""
        return (self.mean.square() + self.variance()).sum()

    def kl(self, prior: GaussianPrior) -> Tensor:
        """`KL(q‖p) = ½ [E_q (w−m)ᵀΛ(w−m) − D + log|Λ⁻¹| − log|Cov|]`, summed over every weight.

        Args:
            prior: p.
        """
        logdets = prior.logdet(self.units, self.size) - self.logdet()
        return 0.5 * (prior.expected_quadratic(self) - self.units * self.size + logdets)

    @classmethod
    def total_kl(
        cls, pairs: Sequence[tuple[Posterior, GaussianPrior]]
    ) -> tuple[Tensor, dict[Posterior, KnownMoments]]:
        """The sum of `kl` over several layers of this family.

        Args:
            pairs: The posterior and the prior of each layer.

        Returns:
            The sum, and what to draw with where the KL has computed a posterior's moments.
        """
        return torch.stack([posterior.kl(prior) for posterior, prior in pairs]).sum(), {}

    def sample(self, samples: int, noise: Noise = fresh) -> Tensor:
        """Draws of all the weights, (samples, units, size).

        Args:
            samples: How many.
            noise: Where the noise comes from.
        """
        draws = self.mean.expand(samples, -1, -1)
        diagonal, factors = self.diagonal(), self.factors()
        if diagonal is not None:
            drawn = noise((samples, self.units, self.size), draws)
            draws = self._spread_weights(diagonal, drawn, samples)
        if factors is not None:
            along = folded(noise((samples, factors.shape[0], self.units), draws), 3)
            draws = draws + torch.einsum("rud,sru->sud", factors, along)
        return draws

    def _spread_weights(self, diagonal: Tensor, drawn: Tensor, samples: int) -> Tensor:
        """`mean + sqrt(diagonal) · drawn`, (samples, units, size)."""
        spread = perturb(self.mean, diagonal, drawn.flatten(-3, -2), samples)
        return spread.unflatten(0, (samples, -1))

    def local_variance(self, op: nn.Module, x: Tensor) -> Tensor:
        """The variance of the layer's output: `op(x², d) + Σ_r op(x, v_r)²`.

        Args:
            op: The layer.
            x: Its input.
        """
        diagonal, factors = self.diagonal(), self.factors()
        parts = []
        if diagonal is not None:
            parts.append(affine(op, squared(op, x), *split(op, diagonal)))
        if factors is not None:
            parts.append(
                torch.vmap(lambda v: affine(op, x, *split(op, v)))(factors).square().sum(0)
            )
        return sum(parts[1:], start=parts[0])

    def local(self, op: nn.Module, x: Tensor, samples: int, noise: Noise = fresh) -> Tensor:
        """Draws of the layer's output: its moments, and noise for every sample, row and position.

        Args:
            op: The layer.
            x: Its input.
            samples: How many draws from each row, one batch after another along axis 0.
            noise: Where the noise comes from.
        """
        mean = affine(op, x, *split(op, self.mean))
        return self._spread_outputs(op, mean, self.local_variance(op, x), samples, noise)

    def _spread_outputs(
        self, op: nn.Module, mean: Tensor, var: Tensor, samples: int, noise: Noise
    ) -> Tensor:
        """`mean + sqrt(var) · ε` for each of the samples, ε correlated as the units are."""
        # Under autocast their types may differ.
        var = var.to(mean.dtype)
        drawn = noise((samples * mean.shape[0], *mean.shape[1:]), mean)
        return perturb(mean, var, self.correlate(drawn, mean.ndim, channel_axis(op)), samples)

    def local_each(self, op: nn.Module, x: Tensor, fold: Fold, noise: Noise = fresh) -> Tensor:
        """`local` where the units are those of K posteriors, one after another.

        Each has rows of its own, or all have the same ones where they are shared.

        Args:
            op: The layer of one of them.
            x: Its input.
            fold: How the samples lie along axis 0.
            noise: Where the noise comes from.

        Returns:
            The draws of one posterior after those of another, along axis 0.
        """
        return self._spread_each(op, x, self.diagonal(), fold, noise)

    def _spread_each(
        self, op: nn.Module, x: Tensor, diagonal: Tensor | None, fold: Fold, noise: Noise
    ) -> Tensor:
        """`local_each` with this diagonal."""

        def run(x: Tensor, weights: Tensor) -> Tensor:
            apart = affine_apart(op, x, weights.unflatten(0, (fold.members, -1)), fold.shared)
            return apart.unflatten(1, (fold.received, -1))

        mean, factors = run(x, self.mean), self.factors()
        parts = [] if diagonal is None else [run(squared(op, x), diagonal)]
        parts += [] if factors is None else [run(x, factor).square() for factor in factors]
        # Under autocast their types may differ.
        var = sum(parts[1:], start=parts[0]).to(mean.dtype)
        return perturb_each(mean, var, member_noise(noise, fold, tuple(mean.shape[2:]), mean))

    def functions(self, samples: int, noise: Noise = fresh) -> Functions:
        """What draws of the weights make of any input, the same weights at every call.

        Args:
            samples: How many draws.
            noise: Where the noise comes from.
        """
        draws = self.sample(samples, noise)
        return lambda op, x, shared: affine_each(op, x, draws, shared)

    def correlate(self, noise: Tensor, ndim: int, channel_axis: int) -> Tensor:
        """Turn independent noise into the noise of the layer's units.

        Args:
            noise: Of the layer's outputs. Independent units leave it as it is.
            ndim: The number of axes of an output.
            channel_axis: The axis that counts the units.
        """
        return noise

    def extra_repr(self) -> str:
        return ", ".join(
            [
                f"units={self.units}",
                f"size={self.size}",
                *(f"{k}={v}" for k, v in self.config().items()),
            ]
        )


class Triangular(nn.Module):
    """A lower-triangular factor with a positive diagonal, stored unconstrained.

    It is `tril(lower, −1) + diag(exp log_diagonal)`.
    """

    def __init__(self, *shape: int, **factory: Any) -> None:
        super().__init__()
        self.lower = nn.Parameter(torch.zeros(*shape, shape[-1], **factory))
        self.log_diagonal = nn.Parameter(torch.zeros(*shape, **factory))

    def matrix(self) -> Tensor:
        """L, (..., D, D)."""
        return self.lower.tril(-1) + torch.diag_embed(self.log_diagonal.exp())

    def logdet(self) -> Tensor:
        """`log|L Lᵀ|`, summed."""
        return 2 * self.log_diagonal.sum()

    @torch.no_grad()
    def set_(self, tril: Tensor) -> None:
        """Store this factor."""
        self.lower.copy_(tril.tril(-1).expand_as(self.lower))
        self.log_diagonal.copy_(tril.diagonal(dim1=-2, dim2=-1).log().expand_as(self.log_diagonal))


def default_logvar(size: int) -> float:
    """log(1/size): the variance a fresh posterior starts from, before any initializer has run."""
    return -math.log(max(size, 1))
