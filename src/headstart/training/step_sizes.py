"""Step sizes in function space: how fast a net may learn without losing where it starts.

A step that moves every weight by `r` in the worst direction moves the pre-activations of layer l by
`r · E Σ|x_l|`, and layers compound: to first order the output moves by the sum.
So the reach of a net is `G = Σ_l E Σ|x_l| / max(1, sd(h_l))` (x_l the inputs of layer l with the
bias's 1, h_l its pre-activations, both measured on a batch), and its rate is `C / G`; a bound on
the rate itself holds back deep nets of few weights.
The means are averaged as they go, so that the noise of a large rate does not reach the model, and
move in coordinates in which the inputs of a layer have mean zero: what all inputs of a unit have in
common is the bias's to change, or every step would shift all of its outputs at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.initializers.walk import observe_layers
from headstart.kernels import private as torch_private
from headstart.linalg.affine import affine, channel_axis, split
from headstart.network.layer import Bayesian, bayesian_layers

VERSION = 1
"""Of the constants below: a checkpoint of another one is not gone on from."""
CHANGE = 2.5
"""How far all layers together may move the output in a step, at worst and at the full rate."""
MAX_RATE = 1e-2
"""The largest rate of a mean, over the number of hidden layers: small nets would allow more."""
MAX_SPREAD_RATE = 1e-3
"""The largest rate of a log-variance; never larger than that of the means."""
LIKELIHOOD_RATE = 3e-2
"""The rate of the likelihood's few parameters, a log noise variance for instance."""
WARMUP, MIN_WARMUP = 0.05, 50
"""Steps of the warm-up: `WARMUP · G`, at least `MIN_WARMUP`."""
LOOK_AHEAD = 0.1
"""How far from the average towards the newest iterate gradients are taken."""
RECENCY = 1.0
"""After the warm-up, iterate t counts for t to this power in the average."""
SQUARES = 0.999
"""The decay of the average of squared gradients."""
EPS = 1e-8


@dataclass(frozen=True)
class Rates:
    """What training needs to know: the rates at full speed, and the steps until then.

    Args:
        mean: the rate of the means, and of weights that have no posterior.
        spread: the rate of what else a posterior learns: log-variances, factors.
        likelihood: the rate of the likelihood's parameters.
        warmup: the number of steps over which the rate of the means rises in a straight line.
    """

    mean: float
    spread: float
    likelihood: float
    warmup: int


@dataclass(frozen=True)
class LayerInputs:
    """What reaches a layer on a batch, over all rows and positions.

    Args:
        calls: `E Σ|x|` with the bias's 1, `E h` and `E h²` of each call, (calls, 3).
        mean: `E x` at the first call, (1 or units, inputs of a unit); None where there is no bias.

    Example:
        >>> LayerInputs(torch.tensor([[8.0, 0.0, 0.25], [8.0, 0.0, 4.0]]), None).reach
        12.0
    """

    calls: Tensor
    mean: Tensor | None

    @property
    def reach(self) -> float:
        """`E Σ|x| / max(1, sd(h))`, summed over calls.

        It is seen beside what the layer gives, where that is more than 1, so that a net whose
        activations explode from layer to layer can move at all.
        """
        sums, first, second = self.calls.T
        return float((sums / (second - first.square()).clamp_min(1.0).sqrt()).sum())


def measure_inputs(model: nn.Module, x: Tensor) -> dict[str, LayerInputs]:
    """What reaches every layer that a sampled pass of `x` calls.

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
    layers, found = bayesian_layers(model), dict[str, LayerInputs]()

    def see(name: str, inputs: Tensor, output: Tensor) -> None:
        layer, numbers = layers[name], output.double()
        total = _average_inputs(layer, inputs.abs()).double().sum(1).mean()
        call = torch.stack([total, numbers.mean(), numbers.square().mean()]).unsqueeze(0)
        if name in found:
            calls = torch.cat([found[name].calls, call])
            found[name] = LayerInputs(calls, found[name].mean)
            return
        mean = _average_inputs(layer, inputs)
        _, bias = split(layer.op, mean)
        # Without groups every unit has the same inputs.
        units = slice(1 if getattr(layer.op, "groups", 1) == 1 else None)
        found[name] = LayerInputs(call, None if bias is None else mean[units, :-1])

    observe_layers(model, x, see)
    return found


def _average_inputs(layer: Bayesian, inputs: Tensor) -> Tensor:
    """What a unit sees on average, (units, size): the gradient of its mean output by its weights.

    A group of units has its own inputs; the bias, the last of them, has 1.
    """
    weights = torch.zeros_like(layer.posterior.mean).requires_grad_()
    # Under autocast inputs may come in half precision.
    with torch.enable_grad(), torch.autocast(inputs.device.type, enabled=False):
        inputs = inputs.detach().to(weights.dtype)
        outputs = affine(layer.op, inputs, *split(layer.op, weights))
        outputs = outputs.movedim(channel_axis(layer.op), -1)
        means = outputs.reshape(-1, outputs.shape[-1]).mean(0)
        return torch.autograd.grad(means.sum(), weights)[0]


def choose_rates(reaches: Sequence[float]) -> Rates:
    """The rates of a net whose layers have these reaches.

    Args:
        reaches: The reach of each layer.

    Returns:
        `min(C / G, MAX_RATE / hidden layers)` for the means, and what follows from it.

    Raises:
        HeadstartError: The reaches have no finite, positive sum.

    Example:
        >>> choose_rates([500.0, 250.0, 250.0])
        Rates(mean=0.0025, spread=0.001, likelihood=0.03, warmup=50)
    """
    reach = math.fsum(reaches)
    if not (math.isfinite(reach) and reach > 0):
        raise HeadstartError(
            f"The inputs of the layers sum to {reach} on the first batch, so no step size follows: "
            "standardize the inputs, initialize the model, or pass lr."
        )
    return rates_at(min(MAX_RATE / max(1, len(reaches) - 1), CHANGE / reach), reach)


def rates_at(mean: float, reach: float = 0.0) -> Rates:
    """The other rates beside a rate of the means.

    Args:
        mean: The rate of the means.
        reach: G.
    """
    warmup = max(MIN_WARMUP, round(WARMUP * reach))
    return Rates(mean, min(MAX_SPREAD_RATE, mean), LIKELIHOOD_RATE, warmup)


class Averaged(torch.optim.Optimizer):
    """Schedule-free Adam (Defazio et al. 2024), anchored at its start.

    The parameters are the average of their iterates. With z the iterates, x their average and d
    the gradient at `y = x + look_ahead (z − x)` over the root mean square of gradients so far,

        z ← z − r_t d,   x ← x + c_t (z − x),   c_t = w_t / (1 + Σ_{s≤t} w_s),

    where `r_t = rate · min(1, t/W)` and `w_t = min(1, t/W)² (t/W)^recency`. The 1 is the weight of
    the start: x leaves it only as the iterates gain weight. No horizon need be known: the average
    does what a decaying rate does. The parameters are always x, but for the scope of `look_ahead`,
    in which the gradient is to be taken. A group without a warm-up (`warmup=0`) is not averaged:
    its parameters are their iterates.

    Weights [W b] of a layer whose mean input m was given to `center_` move in the coordinates
    `[W  b + W m]`, in which their gradient is `[g_W − g_b mᵀ  g_b]`.

    Args:
        params: Parameters or groups of them, as for any optimizer.
        lr: The rate at full speed; a scheduler may change that of a group.
        warmup: W, in steps; 0: no warm-up and no average.

    Example:
        >>> p = nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = Averaged([p], lr=0.1, warmup=1)
        >>> for _ in range(200):
        ...     optimizer.zero_grad()
        ...     with optimizer.look_ahead():
        ...         p.square().sum().backward()
        ...     optimizer.step()
        >>> abs(p.item()) < 0.05
        True
    """

    def __init__(self, params: Any, lr: float, warmup: int) -> None:
        super().__init__(params, {"lr": lr, "warmup": warmup, "count": 0, "weight": 1.0})
        for group in self.param_groups:
            if group["warmup"] < 0:
                raise HeadstartError(f"A warm-up takes steps, not {group['warmup']}.")

    def center_(self, parameter: nn.Parameter, mean: Tensor) -> None:
        """Let the weights [W b] of a layer move around its mean input.

        Args:
            parameter: The weights, (units, inputs + 1), the bias last.
            mean: The mean input, (parts, inputs): each part of the units, one after the other, has
                its own.

        Raises:
            HeadstartError: The shapes do not fit.
        """
        units, size = parameter.shape
        if mean.ndim != 2 or mean.shape[1] != size - 1 or units % len(mean):
            raise HeadstartError(
                f"The mean input of weights {tuple(parameter.shape)} has {size - 1} columns and a "
                f"number of rows that divides {units}, not the shape {tuple(mean.shape)}."
            )
        # Memory of its own, as a checkpoint gives it back: products depend on where numbers lie.
        self.state[parameter]["center"] = mean.detach().to(parameter, copy=True).contiguous()

    @contextmanager
    def look_ahead(self) -> Iterator[None]:
        """The scope in which the parameters are y; afterwards they are x again."""
        self._shift_(LOOK_AHEAD)
        try:
            yield
        finally:
            self._shift_(-LOOK_AHEAD / (1 - LOOK_AHEAD))

    @torch.no_grad()
    def _shift_(self, fraction: float) -> None:
        """Go this fraction of the way to the iterates: a from x to y, `−a/(1 − a)` from y to x."""
        for group in self.param_groups:
            moving = [p for p in group["params"] if "iterate" in self.state[p]]
            torch_private.lerp_all(moving, [self.state[p]["iterate"] for p in moving], fraction)

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Move the iterates along the gradients, and the parameters to their new average."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            group["count"] += 1
            averaged = group["warmup"] > 0
            progress = group["count"] / group["warmup"] if averaged else 1.0
            full = min(1.0, progress)
            weight = full**2 * progress**RECENCY
            group["weight"] += weight
            moving = [p for p in group["params"] if p.grad is not None]
            iterates = [self._iterate(p, averaged) for p in moving]
            self._move_(moving, iterates, group["lr"] * full)
            if averaged:
                torch_private.lerp_all(moving, iterates, weight / group["weight"])
        return loss

    step.hooked = True  # type: ignore[attr-defined]  # torch would wrap it for its profiler

    def _iterate(self, p: nn.Parameter, averaged: bool) -> Tensor:
        """The iterate of a parameter, which itself is its average, or is that iterate."""
        state = self.state[p]
        if "squares" not in state:
            state["squares"], state["step"] = torch.zeros_like(p), torch.zeros(())
            if averaged:
                state["iterate"] = p.detach().clone()
        return state["iterate"] if averaged else p.detach()

    def _move_(
        self, moving: Sequence[nn.Parameter], iterates: Sequence[Tensor], rate: float
    ) -> None:
        """`z ← z − r g / √v`, in centered coordinates where there are such.

        Gradients are overwritten by those in centered coordinates.
        """
        states, gradients = [self.state[p] for p in moving], [cast(Tensor, p.grad) for p in moving]
        centered = [
            (iterate, gradient, state["center"])
            for iterate, gradient, state in zip(iterates, gradients, states, strict=True)
            if "center" in state
        ]
        for iterate, gradient, center in centered:
            parts = gradient.unflatten(0, (len(center), -1))
            parts[..., :-1].addcmul_(parts[..., -1:], center.unsqueeze(1), value=-1)
            iterate[:, -1] += _product(iterate, center)
        squares, counts = ([state[part] for state in states] for part in ("squares", "step"))
        torch_private.rms_step(iterates, gradients, squares, counts, rate, SQUARES, EPS)
        for iterate, _, center in centered:
            iterate[:, -1] -= _product(iterate, center)


def _product(weights: Tensor, center: Tensor) -> Tensor:
    """W m, of weights [W b]: one number for each unit."""
    if len(center) == 1:
        return weights[:, :-1] @ center[0]
    parts = weights[:, :-1].unflatten(0, (len(center), -1))
    return (parts @ center.unsqueeze(-1)).flatten()
