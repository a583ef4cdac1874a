"""How the layers of a chain change the mean and the variance of what passes through them.

Variances are those of each element: the covariance of two elements is not followed. What it adds to
the variance of a sum is a factor per unit, which draws of the net set (`fit_`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.linalg.affine import affine, affine_apart, channel_axis, flatten, split
from headstart.linalg.precision import in_double


class ElementMoments(NamedTuple):
    """Mean and variance of each element; a variance of None is zero."""

    mean: Tensor
    var: Tensor | None


class Stage(nn.Module):
    """A layer of a chain, from moments to moments."""

    is_fitted = False
    """Whether draws of the net set something here."""

    def forward(self, given: ElementMoments) -> ElementMoments:
        """The moments of the layer's output.

        Args:
            given: Those of its input.
        """
        raise NotImplementedError

    def fit_(self, given: ElementMoments, drawn: ElementMoments) -> None:
        """Set what the layer cannot know from moments alone.

        Args:
            given: The moments of the input, as the stages before compute them.
            drawn: The moments of the output over draws of the net.
        """


class AffineStage(Stage):
    """An affine layer whose weights have mean W and covariance C, with variances V.

    For inputs of mean m and variance s: `mean = W m`, `variance = mᵀ C m + (V + c W²) s + t mean²`.
    With uncorrelated inputs c = 1 and t = 0 for each unit. Inputs that grow and shrink together, by
    a random factor of variance t, add t mean², but for the bias.

    Args:
        op: The stock layer's settings.
        mean: W, (units, size).
        diagonal: The diagonal of C but for its factors, (units, size), or None.
        factors: Its factors, (R, units, size), or None.
    """

    is_fitted = True
    weight: Tensor
    bias: Tensor | None
    spread: Tensor | None
    bias_spread: Tensor | None
    factors: Tensor | None
    gain: Tensor
    """V + c W², without that of the bias."""
    common: Tensor | None
    """t, along the axis of the units; None for zero."""

    def __init__(
        self, op: nn.Module, mean: Tensor, diagonal: Tensor | None, factors: Tensor | None
    ) -> None:
        super().__init__()
        self.op = op
        weight, bias = split(op, mean)
        spread, bias_spread = (None, None) if diagonal is None else split(op, diagonal)
        for name, value in (
            ("weight", weight),
            ("bias", bias),
            ("spread", spread),
            ("bias_spread", bias_spread),
            ("factors", factors),
            ("common", None),
        ):
            # Parts of a matrix would be slower to multiply.
            self.register_buffer(name, None if value is None else value.contiguous())
        self.register_buffer("gain", self._variances() + self.weight.square())

    def forward(self, given: ElementMoments) -> ElementMoments:
        """As `Stage.forward`.

        Args:
            given: The moments of the input.
        """
        mean = affine(self.op, given.mean, self.weight, self.bias)
        parts = self._from_weights(given.mean)
        if given.var is not None:
            parts.append(affine(self.op, given.var, self.gain, None))
            if self.common is not None:
                parts.append(mean.square().mul_(self.common))
        return ElementMoments(mean, _added(parts) if parts else None)

    def fit_(self, given: ElementMoments, drawn: ElementMoments) -> None:
        """Set c and t of each unit by least squares of the variance's relative errors.

        Args:
            given: The moments of the input.
            drawn: Those of the output over draws.
        """
        if given.var is None or drawn.var is None:
            return
        variances, squares = self._variances(), self.weight.square()
        inputs = affine(self.op, given.var, squares, None)
        own = [affine(self.op, given.var, variances, None), *self._from_weights(given.mean)]
        weights = _added(own)
        mean = affine(self.op, given.mean, self.weight, self.bias)
        scale = (weights + inputs).clamp_min(torch.finfo(inputs.dtype).tiny)
        axis = channel_axis(self.op)
        factor, common = pair_of_factors(
            *(
                (part / scale).movedim(axis, 0).flatten(1)
                for part in (drawn.var - weights, inputs, mean.square())
            )
        )
        scaled = factor.unsqueeze(1) * flatten(self.op, squares, None)
        self.gain = variances + split(self.op, scaled)[0]
        self.common = along_axis(common, inputs.ndim, axis)

    def _variances(self) -> Tensor:
        """V, without that of the bias."""
        total = torch.zeros_like(self.weight) if self.spread is None else self.spread
        if self.factors is None:
            return total
        return total + split(self.op, self.factors.square().sum(0))[0]

    def _from_weights(self, mean: Tensor) -> list[Tensor]:
        """The parts of mᵀ C m."""
        parts = []
        if self.spread is not None:
            parts.append(affine(self.op, mean.square(), self.spread, self.bias_spread))
        if self.factors is not None:
            parts.append(affine_apart(self.op, mean, self.factors, shared=True).square().sum(0))
        return parts


def _added(parts: list[Tensor]) -> Tensor:
    """The sum of new tensors, in the memory of the first."""
    total = parts[0]
    for part in parts[1:]:
        total = total.add_(part)
    return total


class Elementwise(Stage):
    """An activation of Gaussian elements.

    Args:
        module: What maps numbers.
        moments: What maps means and variances.
    """

    def __init__(
        self, module: nn.Module, moments: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    ) -> None:
        super().__init__()
        self.module, self.moments = module, moments

    def forward(self, given: ElementMoments) -> ElementMoments:
        """As `Stage.forward`.

        Args:
            given: The moments of the input.
        """
        if given.var is None:
            return ElementMoments(self.module(given.mean.clone()), None)
        return ElementMoments(*self.moments(given.mean, given.var))


class Rearranged(Stage):
    """A layer that moves elements, and so means and variances alike: flattening, no dropout.

    Args:
        module: The layer, in evaluation mode.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, given: ElementMoments) -> ElementMoments:
        """As `Stage.forward`.

        Args:
            given: The moments of the input.
        """
        var = None if given.var is None else self.module(given.var)
        return ElementMoments(self.module(given.mean), var)


class Scaled(Stage):
    """Batch normalization by running statistics: each channel is scaled and shifted.

    Args:
        module: The layer, in evaluation mode.
    """

    squares: Tensor

    def __init__(self, module: Any) -> None:
        super().__init__()
        if module.running_var is None:
            raise HeadstartError(
                "A batch normalization without running statistics mixes rows, so rows have no "
                "moments of their own: make it with track_running_stats=True."
            )
        self.module = module
        squares = 1 / (module.running_var + module.eps)
        squares = squares if module.weight is None else squares * module.weight.detach().square()
        self.register_buffer("squares", squares)

    def forward(self, given: ElementMoments) -> ElementMoments:
        """As `Stage.forward`.

        Args:
            given: The moments of the input.
        """
        var = given.var
        if var is not None:
            var = var * along_axis(self.squares, var.ndim, 1)
        return ElementMoments(self.module(given.mean), var)


SAME_DIRECTION = 1e-9
"""The squared sine of the angle between two columns below which one is a multiple of the other."""


def pair_of_factors(wanted: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """a, b ≥ 0 that minimize `Σ (wanted − a · first − b · second)²` in each row.

    Where one column is a multiple of the other, as in a single row, one of them is enough.

    Args:
        wanted: (units, elements).
        first: The same shape.
        second: The same shape.

    Example:
        >>> pair_of_factors(torch.tensor([[2.0, -3.0]]), torch.eye(2)[:1], torch.eye(2)[1:])
        (tensor([2.]), tensor([0.]))
    """

    def dot(one: Tensor, other: Tensor) -> Tensor:
        return (in_double(one) * in_double(other)).sum(1)

    tiny = torch.finfo(torch.float64).tiny
    aa, bb, ab = dot(first, first), dot(second, second), dot(first, second)
    wa, wb = dot(wanted, first), dot(wanted, second)
    det = aa * bb - ab.square()
    apart, det = det > SAME_DIRECTION * aa * bb, det.clamp_min(tiny)
    a, b = (wa * bb - wb * ab) / det, (wb * aa - wa * ab) / det
    alone_a, alone_b = ((w / e.clamp_min(tiny)).clamp_min(0.0) for w, e in ((wa, aa), (wb, bb)))
    inside = apart & (a >= 0) & (b >= 0)
    by_first = alone_a * wa >= (1 - SAME_DIRECTION) * alone_b * wb
    a = torch.where(inside, a, torch.where(by_first, alone_a, 0.0))
    b = torch.where(inside, b, torch.where(by_first, 0.0, alone_b))
    return a.to(wanted.dtype), b.to(wanted.dtype)


def all_but(axis: int, ndim: int) -> list[int]:
    """The axes of a tensor but for one."""
    return [each for each in range(ndim) if each != axis % ndim]


def along_axis(values: Tensor, ndim: int, axis: int) -> Tensor:
    """A vector along this axis of a tensor with so many axes."""
    shape = [1] * ndim
    shape[axis] = -1
    return values.view(shape)
