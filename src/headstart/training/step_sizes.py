"""Step sizes in function space: how fast a net may learn without losing where it starts.

A step that moves every weight by `r` in the worst direction moves the pre-activations of layer l by
`r · E Σ|x_l|`, and layers compound: to first order the output moves by the sum.
So the reach of a net is `G = Σ_l E Σ|x_l|` (the inputs of layer l with the bias's 1, measured on a
batch), and its rate is `C / G`; a bound on the rate itself holds back deep nets of few weights.
The means are averaged as they go, so that the noise of a large rate does not reach the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.initializers.walk import observe_layers
from headstart.linalg.affine import affine, split
from headstart.network.layer import bayesian_layers

CHANGE = 2.5
"""How far all layers together may move the output in a step, at worst and at the full rate."""
MAX_RATE = 1e-2
"""The largest rate of a mean, over the number of hidden layers: small nets would allow more."""
MAX_SPREAD_RATE = 1e-3
"""The largest rate of a log-variance; never larger than that of the means."""
LIKELIHOOD_RATE = 3e-2
"""The rate of the likelihood's few parameters, a log noise variance for instance."""
WARMUP, MIN_WARMUP = 1.75, 50
"""Steps of the warm-up: `WARMUP · √G`, at least `MIN_WARMUP`."""
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


@torch.no_grad()
def input_sums(model: nn.Module, x: Tensor) -> dict[str, float]:
    """`E Σ|x_l|` of every layer that a sampled pass of `x` calls, the bias's 1 counted.

    A layer that is called twice counts twice.

    Example:
        >>> import headstart as hs
        >>> model = hs.bayesianize(nn.Linear(3, 2))
        >>> input_sums(model, torch.tensor([[1.0, -2.0, 0.0]]))
        {'': 4.0}
    """
    layers, sums = bayesian_layers(model), dict[str, float]()

    def see(name: str, inputs: Tensor, output: Tensor) -> None:
        layer = layers[name]
        ones = torch.ones_like(layer.posterior.mean)
        # every unit of a layer sees the same inputs, but a group of units its own
        reached = affine(layer.op, inputs.abs(), *split(layer.op, ones))
        sums[name] = sums.get(name, 0.0) + float(reached.double().mean())

    observe_layers(model, x, see)
    return sums


def choose_rates(sums: Sequence[float]) -> Rates:
    """The rates of a net whose layers have these `E Σ|x|`.

    Example:
        >>> choose_rates([500.0, 250.0, 250.0])
        Rates(mean=0.0025, spread=0.001, likelihood=0.03, warmup=55)
    """
    reach = math.fsum(sums)
    if not (math.isfinite(reach) and reach > 0):
        raise HeadstartError(
            f"The layers' inputs sum to {reach} on the first batch, so no step size follows: "
            "standardize the inputs, or pass lr."
        )
    mean = min(MAX_RATE / max(1, len(sums) - 1), CHANGE / reach)
    warmup = max(MIN_WARMUP, round(WARMUP * math.sqrt(reach)))
    return Rates(mean, min(MAX_SPREAD_RATE, mean), LIKELIHOOD_RATE, warmup)


class Averaged(torch.optim.Optimizer):
    """Schedule-free Adam (Defazio et al. 2024), anchored at its start.

    The parameters are the average of their iterates. With z the iterates, x their average and d
    the gradient at `y = x + look_ahead (z − x)` over the root mean square of gradients so far,

        z ← z − r_t d,   x ← x + c_t (z − x),   c_t = w_t / (1 + Σ_{s≤t} w_s),

    where `r_t = rate · min(1, t/W)` and `w_t = min(1, t/W)² (t/W)^recency`. The 1 is the weight of
    the start: x leaves it only as the iterates gain weight. No horizon need be known: the average
    does what a decaying rate does. Between steps the parameters are x; `ahead_` moves them to y,
    where the next gradient is to be taken, and `step` or `back_` moves them to x again.

    Args:
        params: parameters or groups of them, as for any optimizer.
        lr: the rate at full speed; a scheduler may change that of a group.
        warmup: W, in steps.

    Example:
        >>> p = nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = Averaged([p], lr=0.1, warmup=1)
        >>> for _ in range(200):
        ...     optimizer.ahead_()
        ...     optimizer.zero_grad()
        ...     p.square().sum().backward()
        ...     optimizer.step()
        >>> abs(p.item()) < 0.05
        True
    """

    def __init__(self, params: Any, lr: float, warmup: int) -> None:
        if warmup < 1:
            raise HeadstartError(f"A warm-up takes at least one step, not {warmup}.")
        super().__init__(
            params, {"lr": lr, "warmup": warmup, "count": 0, "weight": 1.0, "ahead": False}
        )

    @torch.no_grad()
    def ahead_(self) -> None:
        """Move the parameters from their average to where the gradient is to be taken."""
        self._shift_(True, LOOK_AHEAD)

    @torch.no_grad()
    def back_(self) -> None:
        """Move the parameters back to their average without a step."""
        self._shift_(False, -LOOK_AHEAD / (1 - LOOK_AHEAD))

    def _shift_(self, ahead: bool, fraction: float) -> None:
        """Go this fraction of the way to the iterates: a from x to y, `−a/(1 − a)` from y to x."""
        for group in self.param_groups:
            if group["ahead"] != ahead:
                for p in group["params"]:
                    if p in self.state:
                        p.lerp_(self.state[p]["iterate"], fraction)
            group["ahead"] = ahead

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Move the iterates along the gradients, and the parameters to their new average."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        self.back_()
        for group in self.param_groups:
            group["count"] += 1
            progress = group["count"] / group["warmup"]
            share = min(1.0, progress)
            weight = share**2 * progress**RECENCY
            group["weight"] += weight
            for p in group["params"]:
                if p.grad is not None:
                    self._move(p, group["lr"] * share, weight / group["weight"], group["count"])
        return loss

    def _move(self, p: nn.Parameter, rate: float, newest: float, count: int) -> None:
        """`z ← z − r g / √v`, then `x ← x + c (z − x)`."""
        state = self.state[p]
        if not state:
            state["iterate"], state["squares"] = p.detach().clone(), torch.zeros_like(p)
        squares = state["squares"].mul_(SQUARES).addcmul_(p.grad, p.grad, value=1 - SQUARES)
        scale = (squares / (1 - SQUARES**count)).sqrt_().add_(EPS)
        state["iterate"].addcdiv_(p.grad, scale, value=-rate)
        p.lerp_(state["iterate"], newest)


# When to stop.
FRACTION = 0.2
"""The last fifth of the steps is compared with the fifth before it."""
MIN_STEPS = 500
"""Before so many steps nobody asks."""
PATIENCE = 3
"""Checks in a row without an improvement beyond the noise that end the training."""
Z = 2.0
"""Standard errors that count as an improvement."""


def improvement(values: Sequence[float], fraction: float = FRACTION) -> tuple[float, float]:
    """By how much the last `fraction` of a record lies below the `fraction` before, on average.

    Returns:
        The difference of the two means, and its standard error.

    Example:
        >>> improvement([3.0] * 80 + [2.0] * 20)
        (1.0, 0.0)
    """
    window = max(2, int(fraction * len(values)))
    if len(values) < 2 * window:
        raise HeadstartError(
            f"A record of {len(values)} steps is too short to be compared by {window} of them."
        )
    recent, before = (
        torch.tensor(part, dtype=torch.float64)
        for part in (values[-window:], values[-2 * window : -window])
    )
    error = math.sqrt(float(recent.var() + before.var()) / window)
    return float(before.mean() - recent.mean()), error


@dataclass
class Plateau:
    """Whether the NELBO has stopped improving by more than its noise.

    It is asked every so often and remembers its misses.

    Example:
        >>> plateau = Plateau(min_steps=10, patience=1)
        >>> plateau.reached([5.0, 4.0] * 20)
        True
    """

    min_steps: int = MIN_STEPS
    patience: int = PATIENCE
    z: float = Z
    misses: int = 0

    def reached(self, values: Sequence[float]) -> bool:
        """Whether `patience` checks in a row saw no improvement of `z` standard errors."""
        if len(values) < max(self.min_steps, 10):
            return False
        gain, error = improvement(values)
        self.misses = 0 if gain > self.z * error else self.misses + 1
        return self.misses >= self.patience
