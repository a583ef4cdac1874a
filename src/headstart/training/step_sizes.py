"""Step sizes in function space: how fast a net may learn without losing where it starts.

A step that moves every weight by `r` in the worst direction moves the pre-activations of layer l by
`r · E Σ|x_l|`, and layers compound.
So the scale of a net is `G = Σ_l E Σ|x_l| / max(1, sd(h_l))` (x_l the inputs of layer l with the
bias's 1, h_l its pre-activations, both measured on a batch), and its rate is `C / G`; a bound on
the rate itself holds back deep nets of few weights.
The means are averaged as they go, so that the noise of a large rate does not reach the model, and
move in coordinates in which the inputs of a layer have mean zero: what all inputs of a unit have in
common is the bias's to change, or every step would shift all of its outputs at once.
In wide nets steps along the directions in which the inputs of a layer vary most are shorter: those
move its outputs furthest, and the noise of a gradient, itself a sum of inputs, lies mostly there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.linalg.affine import affine, channel_axis, fan_in, flatten, groups, is_affine, split
from headstart.linalg.precision import in_double
from headstart.nested import TensorTree, feed
from headstart.network.forward import drawing
from headstart.network.layer import bayesian_layers
from headstart.network.probe import check_rows

VERSION = 3
"""Of the constants below: a checkpoint of another one is not gone on from."""
MAX_CHANGE = 2.5
"""How far the pre-activations of all layers together may move in a step, at the full rate."""
MAX_MEAN_RATE = 1e-2
"""The largest rate of a mean, over the number of hidden layers: small nets would allow more."""
MAX_SPREAD_RATE = 1e-3
"""The largest rate of a log-variance; never larger than that of the means."""
SPREAD_STEPS = 2000
"""Steps after which the rate of a log-variance falls, as the inverse square of the steps."""
LIKELIHOOD_RATE = 3e-2
"""The rate of the likelihood's few parameters, a log noise variance for instance."""
WARMUP, MIN_WARMUP = 0.05, 50
"""Steps of the warm-up: `WARMUP · G`, at least `MIN_WARMUP`; a net with more than that is wide."""

MAX_DIRECTIONS, INPUTS_PER_DIRECTION = 64, 16
"""Directions of the inputs of a layer with steps of their own: so many, or one for so many."""
POWER_STEPS, OVERSAMPLED = 4, 4
"""Steps of the power iteration that finds them, with so many more than are kept."""
MIN_VARIANCE = 1e-6
"""The variance along a direction, over the largest, below which it is rounding."""


@dataclass(frozen=True)
class Rates:
    """What training needs to know: the rates at full speed, and the steps until then.

    Args:
        mean: the rate of the means, and of weights that have no posterior.
        spread: the rate of what else a posterior learns: log-variances, factors.
        likelihood: the rate of the likelihood's parameters.
        warmup: the number of steps over which the rate of the means rises in a straight line.
        damped: whether steps along the stiffest directions of the inputs are shorter: in wide nets,
            whose gradients are mostly noise; in others those directions carry what is learned.
    """

    mean: float
    spread: float
    likelihood: float
    warmup: int
    damped: bool = False


@dataclass(frozen=True)
class InputStatistics:
    """What reaches a layer on a batch, over all rows and positions.

    Args:
        calls: `E Σ|x|` with the bias's 1, `E h` and `E h²` of each call, (calls, 3).
        mean: `E x` at the first call, (1 or units, inputs of a unit); None where there is no bias.
        directions: Where the inputs vary most around their mean at the first call, orthonormal
            rows (k, inputs of a unit); None where units have inputs of their own, or few of them,
            or whole numbers.
        variances: Of the inputs along each, (k,), the largest first.

    Example:
        >>> InputStatistics(torch.tensor([[8.0, 0.0, 0.25], [8.0, 0.0, 4.0]])).reach
        12.0
    """

    calls: Tensor
    mean: Tensor | None = None
    directions: Tensor | None = None
    variances: Tensor | None = None

    @property
    def reach(self) -> float:
        """`E Σ|x| / max(1, sd(h))`, summed over calls.

        It is seen beside what the layer gives, where that is more than 1, so that a net whose
        activations explode from layer to layer can move at all.
        """
        sums, first, second = self.calls.T
        return float((sums / (second - first.square()).clamp_min(1.0).sqrt()).sum())

    @property
    def damping(self) -> Tensor | None:
        """The length of steps along `directions`: none moves the outputs more than the last.

        A few rows vary in fewer directions than there are: the last is the last in which they do,
        and steps along the others are not shortened.
        """
        if self.variances is None:
            return None
        tiny = torch.finfo(self.variances.dtype).tiny
        varied = self.variances > MIN_VARIANCE * self.variances[:1].clamp_min(tiny)
        last = self.variances.where(varied, math.inf).amin()
        return (last / self.variances.clamp_min(tiny)).clamp(0, 1).sqrt()


@torch.no_grad()
def measure_inputs(model: nn.Module, x: TensorTree) -> dict[str, InputStatistics]:
    """What reaches every layer that a sampled pass of `x` calls and that training moves.

    Stock layers without a posterior count too. Modules are in the modes that they have, and their
    buffers, the moving averages of BatchNorm, come back as they were.

    Args:
        model: A net from `bayesianize`.
        x: The inputs of a batch.

    Returns:
        The inputs of each layer by its name, in the order of the calls.

    Example:
        >>> import headstart as hs
        >>> found = measure_inputs(hs.bayesianize(nn.Linear(3, 1)), torch.tensor([[1.0, -2.0, 0]]))
        >>> found[""].reach, found[""].mean
        (4.0, tensor([[ 1., -2.,  0.]]))
    """
    found = dict[str, InputStatistics]()

    def see(name: str, op: nn.Module, like: Tensor, inputs: Tensor, output: Tensor) -> None:
        numbers = in_double(output)
        total = in_double(_average_inputs(op, like, inputs.abs())).sum(1).mean()
        call = torch.stack([total, numbers.mean(), numbers.square().mean()]).unsqueeze(0)
        if name in found:
            found[name] = replace(found[name], calls=torch.cat([found[name].calls, call]))
            return
        mean = _average_inputs(op, like, inputs)
        _, bias = split(op, mean)
        # Without groups every unit has the same inputs.
        units = slice(1 if groups(op) == 1 else None)
        center = None if bias is None else mean[units, :-1]
        found[name] = InputStatistics(call, center, *_stiff_directions(op, like, inputs))

    # Says in a sentence where the net cannot take these inputs.
    check_rows(model, x)
    handles = []
    for name, module, op, like in _moved_layers(model):

        def hook(
            module: nn.Module,
            args: tuple[Any, ...],
            named: dict[str, Any],
            output: Tensor,
            about: tuple[str, nn.Module, Tensor] = (name, op, like),
        ) -> None:
            see(*about, args[0] if args else next(iter(named.values())), output)

        handles.append(module.register_forward_hook(hook, with_kwargs=True))
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with drawing(model, "local"):
            feed(model, x)
    finally:
        for handle in handles:
            handle.remove()
        for buffer, before in buffers:
            buffer.copy_(before)
    return found


def _moved_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module, nn.Module, Tensor]]:
    """Layers with weights to learn: name, module, the stock layer it is, weights as a matrix."""
    layers = bayesian_layers(model)
    for name, layer in layers.items():
        if layer.posterior.mean.requires_grad:
            yield name, layer, layer.op, layer.posterior.mean
    for name, module in model.named_modules():
        if is_affine(module) and cast(Tensor, module.weight).requires_grad:
            bias = cast("Tensor | None", getattr(module, "bias", None))
            yield name, module, module, flatten(module, cast(Tensor, module.weight), bias)


def _average_inputs(op: nn.Module, like: Tensor, inputs: Tensor) -> Tensor:
    """What a unit sees on average, (units, size): the gradient of its mean output by its weights.

    A group of units has its own inputs; the bias, the last of them, has 1.
    """
    weights = torch.zeros_like(like).requires_grad_()
    # Under autocast inputs may come in half precision; those of an embedding are whole numbers.
    kind = like.dtype if inputs.is_floating_point() else inputs.dtype
    with torch.enable_grad(), torch.autocast(inputs.device.type, enabled=False):
        outputs = affine(op, inputs.detach().to(kind), *split(op, weights))
        outputs = outputs.movedim(channel_axis(op), -1)
        means = outputs.reshape(-1, outputs.shape[-1]).mean(0)
        return torch.autograd.grad(means.sum(), weights)[0]


def _stiff_directions(
    op: nn.Module, like: Tensor, inputs: Tensor
) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """The directions in which inputs vary most, and their variances, by power iteration.

    The layer itself multiplies by its inputs, whatever its kind: with directions V as its weights
    it gives X V, and the gradient of half the square of that is Xᵀ X V.
    """
    count = min(MAX_DIRECTIONS, fan_in(op) // INPUTS_PER_DIRECTION)
    if groups(op) != 1 or not count or not inputs.is_floating_point():
        return None, None
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(count + OVERSAMPLED, fan_in(op), generator=generator, dtype=torch.float64)
    basis = torch.linalg.qr(noise.to(like.device, like.dtype).T)[0]
    for _ in range(POWER_STEPS):
        basis = torch.linalg.qr(_covariance_times(op, inputs, basis))[0]
    small = basis.T @ _covariance_times(op, inputs, basis)
    values, vectors = torch.linalg.eigh((small + small.T) / 2)
    order = values.argsort(descending=True)[:count]
    return (basis @ vectors[:, order]).T.contiguous(), values[order]


def _covariance_times(op: nn.Module, inputs: Tensor, basis: Tensor) -> Tensor:
    """`Cov(x) V`, the covariance over rows and positions."""
    weights = basis.T.clone().requires_grad_()
    # Under autocast inputs may come in half precision.
    with torch.enable_grad(), torch.autocast(inputs.device.type, enabled=False):
        outputs = affine(op, inputs.detach().to(weights.dtype), *split(op, weights))
        outputs = outputs.movedim(channel_axis(op), -1)
        rows = outputs.reshape(-1, outputs.shape[-1])
        half = (rows - rows.mean(0)).square().sum() / (2 * len(rows))
        return torch.autograd.grad(half, weights)[0].T


def choose_rates(reaches: Sequence[float]) -> Rates:
    """The rates of a net whose layers have these reaches.

    Args:
        reaches: The reach of each layer.

    Returns:
        `min(C / G, MAX_MEAN_RATE / hidden layers)` for the means, and what follows from it.

    Raises:
        HeadstartError: The reaches have no finite, positive sum.

    Example:
        >>> choose_rates([500.0, 250.0, 250.0])
        Rates(mean=0.0025, spread=0.001, likelihood=0.03, warmup=50, damped=False)
    """
    reach = math.fsum(reaches)
    if not (math.isfinite(reach) and reach > 0):
        raise HeadstartError(
            f"The inputs of the layers sum to {reach} on the first batch, so no step size follows: "
            "standardize the inputs, initialize the model, or pass lr."
        )
    return rates_at(min(MAX_MEAN_RATE / max(1, len(reaches) - 1), MAX_CHANGE / reach), reach)


def rates_at(mean: float, reach: float = 0.0) -> Rates:
    """The other rates beside a rate of the means.

    Args:
        mean: The rate of the means.
        reach: G.
    """
    warmup = max(MIN_WARMUP, round(WARMUP * reach))
    spread = min(MAX_SPREAD_RATE, mean)
    return Rates(mean, spread, LIKELIHOOD_RATE, warmup, damped=warmup > MIN_WARMUP)
