"""Which stage a layer of a chain is, and those of pooling."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.linalg.activations import by_quadrature, rectified
from headstart.linalg.affine import is_affine
from headstart.network.layer import Bayesian, skeleton, stock_weights
from headstart.network.moment_stages import (
    AffineStage,
    ElementMoments,
    Elementwise,
    Rearranged,
    Scaled,
    Stage,
    all_but,
    along_axis,
)

MONOTONE = nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softplus
SMOOTH = nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.Softplus
MOVING = nn.Flatten, nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d
BATCH_NORMALIZING = nn.BatchNorm1d, nn.BatchNorm2d
AVERAGING = nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d


class AverageStage(Stage):
    """Average pooling: uncorrelated positions, but for a factor per channel that draws set.

    Args:
        module: The layer.
    """

    is_fitted = True
    factor: Tensor

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.register_buffer("factor", torch.ones(1))

    def forward(self, given: ElementMoments) -> ElementMoments:
        """As `Stage.forward`.

        Args:
            given: The moments of the input.
        """
        mean, var = self.module(given.mean), self._independent(given)
        if var is not None:
            var = var * along_axis(self.factor.to(var.dtype), var.ndim, 1)
        return ElementMoments(mean, var)

    def fit_(self, given: ElementMoments, drawn: ElementMoments) -> None:
        """Set the factor of each channel: the ratio of summed variances.

        Args:
            given: The moments of the input.
            drawn: Those of the output over draws.
        """
        var = self._independent(given)
        if var is not None and drawn.var is not None:
            self.factor = ratio(drawn.var, var)

    def _independent(self, given: ElementMoments) -> Tensor | None:
        if given.var is None:
            return None
        pooled: Tensor = self.module(given.var)
        # Windows of the same size: as many inputs as outputs times the size, overlaps apart.
        return pooled * (1 / self._window(given.var.shape, pooled.shape))

    def _window(self, before: torch.Size, after: torch.Size) -> float:
        size = getattr(self.module, "kernel_size", None)
        if own := getattr(self.module, "divisor_override", None):
            return float(own)
        if size is None:
            pairs = zip(before[2:], after[2:], strict=True)
            sizes = [old / new for old, new in pairs]
        else:
            sizes = list(size) if isinstance(size, tuple) else [size] * (len(before) - 2)
        window = 1.0
        for each in sizes:
            window *= each
        return window


class MaximumStage(Stage):
    """Max pooling: the moments of the position with the largest mean.

    Draws set, for each channel, by how many standard deviations the mean of the maximum is above
    it, and the ratio of the variances.

    Args:
        module: The layer.
    """

    is_fitted = True
    rise: Tensor
    factor: Tensor

    def __init__(self, module: nn.MaxPool1d | nn.MaxPool2d) -> None:
        super().__init__()
        self.module = module
        self.pool: Any = F.max_pool1d if isinstance(module, nn.MaxPool1d) else F.max_pool2d
        self.register_buffer("rise", torch.zeros(1))
        self.register_buffer("factor", torch.ones(1))

    def forward(self, given: ElementMoments) -> ElementMoments:
        """As `Stage.forward`.

        Args:
            given: The moments of the input.
        """
        mean, var = self._largest(given)
        if var is None:
            return ElementMoments(mean, None)
        rise, factor = (
            along_axis(each.to(var.dtype), var.ndim, 1) for each in (self.rise, self.factor)
        )
        return ElementMoments(mean + rise * var.sqrt(), var * factor)

    def fit_(self, given: ElementMoments, drawn: ElementMoments) -> None:
        """Set rise and factor of each channel.

        Args:
            given: The moments of the input.
            drawn: Those of the output over draws.
        """
        mean, var = self._largest(given)
        if var is None or drawn.var is None:
            return
        axes = all_but(1, var.ndim)
        sd = var.sqrt()
        energy = var.sum(axes).clamp_min(torch.finfo(var.dtype).tiny)
        self.rise = ((drawn.mean - mean) * sd).sum(axes) / energy
        self.factor = ratio(drawn.var, var)

    def _largest(self, given: ElementMoments) -> ElementMoments:
        m = self.module
        if given.var is None:
            return ElementMoments(m(given.mean), None)
        mean, index = self.pool(
            given.mean, m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode, True
        )
        var = given.var.flatten(2).gather(2, index.flatten(2)).view_as(mean)
        return ElementMoments(mean, var)


def ratio(drawn: Tensor, var: Tensor) -> Tensor:
    """The ratio of variances of each channel, summed over rows and positions."""
    axes = all_but(1, var.ndim)
    total = var.sum(axes)
    return torch.where(total > 0, drawn.sum(axes) / total, 1.0)


def pooled_first(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """The same chain with every max pooling before the rising activation that it follows.

    The two commute. The activation then has fewer elements, and those that are pooled are nearer to
    Gaussian.

    Args:
        modules: The layers of a chain.

    Example:
        >>> pooled_first([nn.ReLU(), nn.MaxPool1d(2)])[1]
        ReLU()
    """
    ordered = list(modules)
    for index, (module, following) in enumerate(pairwise(modules)):
        rises = type(module) in MONOTONE and getattr(module, "negative_slope", 0.0) >= 0
        if rises and isinstance(following, (nn.MaxPool1d, nn.MaxPool2d)):
            ordered[index : index + 2] = following, module
    return ordered


def stage_of(module: nn.Module) -> Stage:
    """How a layer changes moments.

    Args:
        module: A layer of a chain, in evaluation mode.

    Raises:
        HeadstartError: Nothing is known about such a layer.
    """
    kind = type(module)
    if isinstance(module, Bayesian):
        return _bayesian_stage(module)
    if is_affine(module) and kind is not nn.Embedding:
        return AffineStage(skeleton(module), stock_weights(module), None, None)
    if isinstance(module, nn.ReLU):
        return Elementwise(module, rectified)
    if isinstance(module, nn.LeakyReLU):
        slope = module.negative_slope
        return Elementwise(module, lambda mean, var: rectified(mean, var, slope))
    if kind in SMOOTH:
        return Elementwise(module, lambda mean, var: by_quadrature(module, mean, var))
    return _plain_stage(module)


def _plain_stage(module: nn.Module) -> Stage:
    """`stage_of` a layer that neither weighs nor activates."""
    kind = type(module)
    for kinds, stage in (
        (MOVING, Rearranged),
        (BATCH_NORMALIZING, Scaled),
        (AVERAGING, AverageStage),
    ):
        if kind in kinds:
            return stage(module)
    if isinstance(module, (nn.MaxPool1d, nn.MaxPool2d)):
        return MaximumStage(module)
    raise HeadstartError(
        f"The moments of a {kind.__name__} are not known: hs.moment_network takes chains of linear "
        "layers, convolutions, activations, pooling, flattening, dropout and batch normalization; "
        "serve draws with hs.freeze(model) instead."
    )


def _bayesian_stage(layer: Bayesian) -> Stage:
    posterior = layer.posterior
    if not posterior.has_density or isinstance(layer.op, nn.Embedding):
        raise HeadstartError(
            f"hs.moment_network takes Gaussian weights of layers with numbers as inputs, "
            f"not {layer}: serve draws with hs.freeze(model) instead."
        )
    diagonal, factors = posterior.diagonal(), posterior.factors()
    parts = [None if part is None else part.detach().clone() for part in (diagonal, factors)]
    return AffineStage(layer.op, posterior.mean.detach().clone(), *parts)
