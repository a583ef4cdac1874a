"""The prior of a layer's weights: one variance, fixed or learned, or an earlier posterior.

Every prior N(m, Λ⁻¹) answers two questions: the posterior's, for the KL, and I-BLM's, for the
posterior of a linear model under it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError, unknown
from headstart.linalg.affine import active_inputs
from headstart.linalg.blm import Statistics
from headstart.linalg.gaussians import Primal, UnitGaussian
from headstart.posteriors import Posterior, UnitCovariance


class Prior(nn.Module, ABC):
    """p(w) = N(m, Λ⁻¹) for the (units, size) weights of a layer."""

    name: str
    fixed_var: float | None = None
    """The variance where it is a single number that is not learned, around a mean of zero."""

    @abstractmethod
    def expected_quadratic(self, posterior: Posterior) -> Tensor:
        """`E_q[(w−m)ᵀ Λ (w−m)]`, summed over units."""

    @abstractmethod
    def logdet(self, units: int, size: int) -> Tensor | float:
        """`log|Λ⁻¹|`, summed over units."""

    @abstractmethod
    def mean_precision(self) -> float:
        """The precision of a weight, on average."""

    @abstractmethod
    def condition(self, statistics: Statistics, units: Tensor) -> UnitGaussian:
        """The posterior of these units' linear models, from their statistics."""

    @abstractmethod
    def law(self, units: int, size: int) -> UnitCovariance:
        """This prior written out for the weights of a layer, (units, size)."""

    def with_variance(self, var: float) -> Prior | None:
        """A prior of the same kind with another variance.

        Args:
            var: The variance of every weight.

        Returns:
            The prior; None where it has more than one variance.
        """
        return None

    def update_(self, posterior: Posterior) -> None:
        """Learn from the posterior, where the prior is one that does so in closed form."""

    def part(self, index: int, members: int) -> Prior:
        """The prior of one of the members of a mixture: the same for all, unless units differ.

        Args:
            index: Which member.
            members: Their number.
        """
        return self

    def config(self) -> dict[str, Any]:
        """What rebuilds this prior, its tensors apart."""
        return {}


class SharedVariance(Prior):
    """w ~ N(0, var): the same variance for every weight of the layer, biases included."""

    @abstractmethod
    def logvar(self) -> Tensor | float:
        """log var."""

    @property
    @abstractmethod
    def var(self) -> Tensor | float:
        """The variance."""

    def expected_quadratic(self, posterior: Posterior) -> Tensor:
        """`Σ (μ² + s²) / var`."""
        return posterior.second_moment() / self.var

    def logdet(self, units: int, size: int) -> Tensor | float:
        """`units · size · log var`."""
        return units * size * self.logvar()

    def mean_precision(self) -> float:
        return 1 / self._number()

    def condition(self, statistics: Statistics, units: Tensor) -> UnitGaussian:
        return statistics.solve(self._number())

    def law(self, units: int, size: int) -> UnitCovariance:
        mean = torch.zeros(units, size, dtype=torch.float64)
        return UnitCovariance(mean, var=torch.full_like(mean, self._number()))

    def extra_repr(self) -> str:
        return f"var={self._number():.4g}"

    def _number(self) -> float:
        var = self.var
        return float(var.detach() if isinstance(var, Tensor) else var)


class Isotropic(SharedVariance):
    """A variance given once and for all.

    Args:
        var: The variance of every weight.

    Example:
        >>> Isotropic(0.25).var
        0.25
    """

    name = "fixed"

    def __init__(self, var: float) -> None:
        super().__init__()
        # A number, not a buffer: exact in whatever dtype the model has.
        self.fixed_var: float = _checked_variance(var)

    @property
    def var(self) -> float:
        return self.fixed_var

    def logvar(self) -> float:
        return math.log(self.fixed_var)

    def with_variance(self, var: float) -> Isotropic:
        return Isotropic(var)

    def config(self) -> dict[str, Any]:
        return {"var": self.fixed_var}


class Learned(SharedVariance):
    """A variance that follows the posterior: `var = mean(μ² + s²)` in closed form, or by gradient.

    The closed form (Graves 2011) minimizes the KL in var; `fit(..., prior_every=)` takes it every
    so many steps.

    Args:
        var: The variance to start from.
        by: "closed_form" or "gradient".

    Example:
        >>> from headstart.posteriors import MeanField
        >>> prior, q = Learned(), MeanField(2, 4)  # mean 0, variance 1/4
        >>> prior.update_(q)
        >>> round(float(prior.var.detach()), 6)
        0.25
    """

    name = "learned"

    def __init__(self, var: float = 1.0, *, by: str = "closed_form") -> None:
        super().__init__()
        if by not in ("closed_form", "gradient"):
            raise unknown("way to learn a prior", by, ("closed_form", "gradient"))
        self.by = by
        self.log_variance = nn.Parameter(
            torch.tensor(math.log(_checked_variance(var))), requires_grad=by == "gradient"
        )

    @property
    def var(self) -> Tensor:
        return self.log_variance.exp()

    def logvar(self) -> Tensor:
        return self.log_variance

    @torch.no_grad()
    def update_(self, posterior: Posterior) -> None:
        """`argmin_var KL(q‖N(0, var)) = mean(μ² + s²)`."""
        if self.by == "closed_form":
            self.log_variance.copy_((posterior.mean.square() + posterior.variance()).mean().log())

    def with_variance(self, var: float) -> Learned:
        return Learned(var, by=self.by).to(self.log_variance)

    def config(self) -> dict[str, Any]:
        return {"by": self.by}


class Inherited(Prior):
    """An earlier posterior, held fixed: what was learned so far is the prior for data to come.

    Args:
        units: The number of output units.
        size: The number of weights of a unit.
        dense: Whether the weights of a unit are correlated.
    """

    name = "inherited"
    mean: Tensor
    scale_tril: Tensor
    var: Tensor

    def __init__(self, units: int, size: int, *, dense: bool) -> None:
        super().__init__()
        self.dense = dense
        self.register_buffer("mean", torch.zeros(units, size))
        if dense:
            self.register_buffer("scale_tril", torch.eye(size).repeat(units, 1, 1))
        else:
            self.register_buffer("var", torch.ones(units, size))

    @classmethod
    @torch.no_grad()
    def of(cls, posterior: Posterior) -> Inherited:
        """Take over a posterior.

        Args:
            posterior: The posterior; units must be independent in it.
        """
        law = posterior.as_prior()
        prior = cls(posterior.units, posterior.size, dense=law.scale_tril is not None)
        prior.mean = law.mean
        if law.var is not None:
            prior.var = law.var
        if law.scale_tril is not None:
            prior.scale_tril = law.scale_tril
        return prior

    def expected_quadratic(self, posterior: Posterior) -> Tensor:
        """`Σ_d (…)²/var`, or through the factor: `‖L⁻¹(μ−m)‖² + Σ d_i Λ_ii + Σ_r ‖L⁻¹ v_r‖²`."""
        offset = posterior.mean - self.mean
        if not self.dense:
            return ((offset.square() + posterior.variance()) / self.var).sum()
        total = self._whiten(offset.unsqueeze(0)).square().sum()
        diagonal, factors = posterior.diagonal(), posterior.factors()
        if diagonal is not None:
            total = total + (diagonal * self._precision().diagonal(dim1=-2, dim2=-1)).sum()
        if factors is not None:
            total = total + self._whiten(factors).square().sum()
        return total

    def logdet(self, units: int, size: int) -> Tensor:
        if self.dense:
            return 2 * self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum()
        return self.var.log().sum()

    def law(self, units: int, size: int) -> UnitCovariance:
        if self.dense:
            return UnitCovariance(self.mean, scale_tril=self.scale_tril)
        return UnitCovariance(self.mean, var=self.var)

    def mean_precision(self) -> float:
        return float(self._precision().diagonal(dim1=-2, dim2=-1).mean())

    def condition(self, statistics: Statistics, units: Tensor) -> UnitGaussian:
        """`P = Λ + gram`, `m = P⁻¹ (Λ m0 + moment)`."""
        gram = statistics.gram()
        precision, mean = self._precision()[units].to(gram), self.mean[units].to(gram)
        return Primal(
            precision + gram, torch.einsum("uij,uj->ui", precision, mean) + statistics.moment()
        )

    def part(self, index: int, members: int) -> Inherited:
        """The earlier posterior of one of the members: its units.

        Args:
            index: Which member.
            members: Their number.
        """
        mine = Inherited(len(self.mean) // members, self.mean.shape[1], dense=self.dense)
        for name, buffer in self.named_buffers():
            setattr(mine, name, buffer.chunk(members)[index])
        return mine

    def _whiten(self, vectors: Tensor) -> Tensor:
        """`L⁻¹ v` for vectors (R, units, size)."""
        return torch.linalg.solve_triangular(self.scale_tril, vectors.permute(1, 2, 0), upper=False)

    def _precision(self) -> Tensor:
        return (
            torch.cholesky_inverse(self.scale_tril)
            if self.dense
            else torch.diag_embed(1 / self.var)
        )

    def config(self) -> dict[str, Any]:
        return {"dense": self.dense}


def _checked_variance(var: float) -> float:
    if not (math.isfinite(var) and var > 0):
        raise HeadstartError(f"A prior variance must be a positive number, not {var}.")
    return var


def fan_in_scaled(op: nn.Module, gain: float = 1.0) -> Isotropic:
    """`gain / fan_in`: the prior network's activations neither grow nor shrink with width.

    Args:
        op: The layer.
        gain: The variance of a unit's output for inputs of unit variance.
    """
    return Isotropic(gain / active_inputs(op))


MakePrior = Callable[[nn.Module], Prior]
"""A prior for a layer: what `prior=` takes besides a number or a name."""

PRIORS: dict[str, MakePrior] = {
    "fixed": lambda op: Isotropic(1.0),
    "fan-in": fan_in_scaled,
    "learned": lambda op: Learned(),
    "learned-gradient": lambda op: Learned(by="gradient"),
}


def make_prior(spec: float | str | MakePrior, op: nn.Module) -> Prior:
    """The prior of one layer from what the user said.

    Args:
        spec: A variance, a name of PRIORS, or a function of the layer.
        op: The layer.

    Example:
        >>> make_prior("fan-in", nn.Linear(50, 3))
        Isotropic(var=0.02)
    """
    if isinstance(spec, str):
        if spec not in PRIORS:
            raise unknown("prior", spec, PRIORS)
        return PRIORS[spec](op)
    return spec(op) if callable(spec) else Isotropic(float(spec))
