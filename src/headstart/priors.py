"""The prior of a layer's weights: N(0, var), with one variance per layer."""

from __future__ import annotations

import math
from typing import Any, Protocol

from torch import Tensor, nn

from headstart.affine import fan_in
from headstart.errors import HeadstartError, unknown
from headstart.posteriors import Posterior


class Isotropic(nn.Module):
    """w ~ N(0, var): the same variance for every weight of the layer, biases included.

    Example:
        >>> Isotropic(0.25).var
        0.25
    """

    def __init__(self, var: float) -> None:
        super().__init__()
        if not (math.isfinite(var) and var > 0):
            raise HeadstartError(f"A prior variance must be a positive number, not {var}.")
        self.var = var

    def expected_quadratic(self, posterior: Posterior) -> Tensor:
        """`Σ (μ² + s²) / var`."""
        return (posterior.mean.square() + posterior.variance()).sum() / self.var

    def logdet(self, units: int, size: int) -> float:
        """`units · size · log var`."""
        return units * size * math.log(self.var)

    def extra_repr(self) -> str:
        return f"var={self.var:.4g}"


class MakePrior(Protocol):
    """A prior for a layer: what `prior=` takes besides a number or a name."""

    def __call__(self, op: nn.Module) -> Isotropic: ...


def fixed(op: nn.Module, var: float = 1.0) -> Isotropic:
    """The same variance in every layer."""
    return Isotropic(var)


def fan_in_scaled(op: nn.Module, gain: float = 1.0) -> Isotropic:
    """`gain / fan_in`: the prior network's activations neither grow nor shrink with width."""
    return Isotropic(gain / fan_in(op))


PRIORS: dict[str, Any] = {"fixed": fixed, "fan-in": fan_in_scaled}


def make_prior(spec: float | str | MakePrior, op: nn.Module) -> Isotropic:
    """The prior of one layer from what the user said: a variance, a name, or a function of the layer.

    Example:
        >>> make_prior("fan-in", nn.Linear(50, 3))
        Isotropic(var=0.02)
    """
    if isinstance(spec, str):
        if spec not in PRIORS:
            raise unknown("prior", spec, PRIORS)
        return PRIORS[spec](op)
    if isinstance(spec, (int, float)):
        return fixed(op, float(spec))
    return spec(op)
