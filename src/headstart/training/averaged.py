"""An optimizer whose parameters are the average of their iterates, anchored at their start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.kernels import private as torch_private
from headstart.kernels.adam import DropsGradients

LOOK_AHEAD = 0.1
"""How far from the average towards the newest iterate gradients are taken."""
RECENCY = 1.0
"""After the warm-up, iterate t counts for t to this power in the average."""
SQUARES_DECAY = 0.999
"""The decay of the average of squared gradients."""
EPS = 1e-8


class Averaged(DropsGradients):
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
    Along the stiffest directions of its inputs, given to `damp_`, weights move by steps of their
    own: a gradient is a sum of inputs, so most of its noise lies there, where each step moves the
    outputs furthest.

    Args:
        params: Parameters or groups of them, as for any optimizer.
        lr: The rate at full speed; a scheduler may change that of a group.
        warmup: W, in steps; 0: no warm-up and no average.
        slow_after: T, in steps: from then on the rate is `(T/t)²` of what it was, so that all steps
            after T together go no further than T steps at the full rate; 0: it never falls.

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

    own_shapes = frozenset({"center", "directions", "damping", "stiff_squares"})
    """The parts of its state whose shapes are not those of the parameters."""

    def __init__(self, params: Any, lr: float, warmup: int, slow_after: int = 0) -> None:
        own = {"lr": lr, "warmup": warmup, "slow_after": slow_after, "count": 0, "weight": 1.0}
        super().__init__(params, own)
        for group in self.param_groups:
            if group["warmup"] < 0:
                raise HeadstartError(f"A warm-up takes steps, not {group['warmup']}.")
            if group["slow_after"] < 0:
                raise HeadstartError(f"slow_after is a number of steps, not {group['slow_after']}.")

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

    def damp_(self, parameter: nn.Parameter, directions: Tensor, damping: Tensor) -> None:
        """Let weights move along some directions of their inputs by steps of their own.

        The gradient is split: its coordinates along the directions are divided by their own root
        mean squares, and moved by the rate times their damping; what is left moves as before, at
        right angles to the directions.

        Args:
            parameter: The weights, (units, inputs), or (units, inputs + 1) with the bias last.
            directions: Orthonormal rows, (parts, k, inputs): each part of the units, one after the
                other, has its own.
            damping: What the rate is multiplied by along each, (parts, k).

        Raises:
            HeadstartError: The shapes do not fit.
        """
        units, size = parameter.shape
        if (
            directions.ndim != 3
            or size - directions.shape[2] not in (0, 1)
            or units % len(directions)
            or damping.shape != directions.shape[:2]
        ):
            raise HeadstartError(
                f"Directions of the inputs of weights {tuple(parameter.shape)} are (parts, k, "
                f"inputs) with a damping each, not {tuple(directions.shape)} with "
                f"{tuple(damping.shape)}."
            )
        state = self.state[parameter]
        for name, part in (("directions", directions), ("damping", damping)):
            state[name] = part.detach().to(parameter, copy=True).contiguous()

    def check_state(self) -> None:
        """Refuse a state that was loaded and is not one of this optimizer.

        Raises:
            HeadstartError: A number or a tensor is missing or of another kind.
        """
        for group in self.param_groups:
            numbers = [group.get(name) for name in ("warmup", "slow_after", "count", "weight")]
            if not all(isinstance(number, (int, float)) for number in numbers):
                raise HeadstartError("The optimizer's state lacks a number, or has it wrong.")
            needed = {"squares", "step"} | ({"iterate"} if group["warmup"] else set())
            states = [self.state[p] for p in group["params"] if self.state.get(p)]
            if not all(_has_parts(state, needed) for state in states):
                raise HeadstartError("The optimizer's state lacks a part, or has it wrong.")
        for parameter, state in self.state.items():
            if not _is_sized_for(parameter, state):
                raise HeadstartError(
                    "The optimizer's state is of layers of another size than "
                    f"{tuple(parameter.shape)}."
                )

    @contextmanager
    def look_ahead(self) -> Iterator[None]:
        """The scope in which the parameters are y; afterwards they are x again."""
        self._shift_(LOOK_AHEAD)
        try:
            yield
        finally:
            self._shift_(-LOOK_AHEAD / (1 - LOOK_AHEAD))

    def _shift_(self, fraction: float) -> None:
        """Go this fraction of the way to the iterates: a from x to y, `−a/(1 − a)` from y to x."""
        with torch.no_grad():
            for group in self.param_groups:
                moving = [p for p in group["params"] if "iterate" in self.state[p]]
                torch_private.lerp_all(moving, [self.state[p]["iterate"] for p in moving], fraction)

    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Move the iterates along the gradients, and the parameters to their new average."""
        # Torch's way around a step, with its record and its hooks, takes as long as a small layer.
        step = Averaged._move_all_
        if not torch_private.adam_is_direct(self):
            step = self.profile_hook_step(step)
        return step(self, closure)

    step.hooked = True  # type: ignore[attr-defined]  # torch would wrap it for its profiler

    def _move_all_(self, closure: Callable[[], float] | None = None) -> float | None:
        """`step`, without its hooks."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        with torch.no_grad():
            for group in self.param_groups:
                self._move_group_(group)
        return loss

    def _move_group_(self, group: dict[str, Any]) -> None:
        group["count"] += 1
        averaged = group["warmup"] > 0
        progress = group["count"] / group["warmup"] if averaged else 1.0
        full = min(1.0, progress)
        rate = current_rate(group) * full
        weight = full**2 * progress**RECENCY
        group["weight"] += weight
        moving = [p for p in group["params"] if p.grad is not None]
        states = [self._state(p, averaged) for p in moving]
        iterates = [
            state["iterate"] if averaged else p.detach()
            for p, state in zip(moving, states, strict=True)
        ]
        gradients = [cast(Tensor, p.grad) for p in moving]
        _move_(iterates, gradients, states, rate)
        if averaged:
            torch_private.lerp_all(moving, iterates, weight / group["weight"])

    def _state(self, p: nn.Parameter, averaged: bool) -> dict[str, Any]:
        """The state of a parameter, made at the first step: it is its iterate, or their average."""
        state = self.state[p]
        if "squares" not in state:
            state["squares"], state["step"] = torch.zeros_like(p), torch.zeros(())
            if averaged:
                state["iterate"] = p.detach().clone()
        return state


def current_rate(group: Mapping[str, Any]) -> float:
    """The rate of a group of any optimizer after its warm-up, as far as it has slowed down.

    Args:
        group: One of `param_groups`.
    """
    rate, slow_after = float(group["lr"]), group.get("slow_after", 0)
    return rate * min(1.0, slow_after / max(1, group["count"])) ** 2 if slow_after else rate


def _move_(
    iterates: Sequence[Tensor],
    gradients: Sequence[Tensor],
    states: Sequence[dict[str, Any]],
    rate: float,
) -> None:
    """`z ← z − r g / √v`, in centered coordinates and along directions where there are such.

    Gradients are overwritten by those in centered coordinates without the directions.
    """
    each = list(zip(iterates, gradients, states, strict=True))
    centered = [
        _Centered(iterate, gradient, state["center"])
        for iterate, gradient, state in each
        if "center" in state
    ]
    damped = [_StiffStep(*parts) for parts in each if "directions" in parts[2]]
    squares, counts = ([state[part] for state in states] for part in ("squares", "step"))
    torch_private.rms_step(iterates, gradients, squares, counts, rate, SQUARES_DECAY, EPS)
    for stiff in damped:
        stiff.finish_(rate)
    for layer in centered:
        layer.finish_()


class _Centered:
    """The weights of a layer and their gradient in centered coordinates, until `finish_`."""

    def __init__(self, iterate: Tensor, gradient: Tensor, center: Tensor) -> None:
        self.weights, self.bias, parts = iterate[:, :-1], iterate[:, -1], center.shape[0]
        self.center = center[0] if parts == 1 else center.unsqueeze(-1)
        slopes = gradient if parts == 1 else gradient.unflatten(0, (parts, -1))
        mean = center if parts == 1 else center.unsqueeze(1)
        slopes[..., :-1].addcmul_(slopes[..., -1:], mean, value=-1)
        self.bias.add_(self._product())

    def finish_(self) -> None:
        """Bring the bias back."""
        self.bias.sub_(self._product())

    def _product(self) -> Tensor:
        """W m: one number for each unit."""
        if self.center.ndim == 1:
            return self.weights @ self.center
        parts = self.weights.unflatten(0, (len(self.center), -1))
        return (parts @ self.center).flatten()


def _has_parts(state: dict[str, Any], needed: set[str]) -> bool:
    """Whether all parts that are needed are there."""
    stiff = {"directions", "damping", "stiff_squares"} if "directions" in state else set()
    return all(isinstance(state.get(part), Tensor) for part in needed | stiff)


def _is_sized_for(parameter: Tensor, state: dict[str, Any]) -> bool:
    """Whether mean inputs and directions are those of weights of this shape."""
    sound = True
    if "center" in state:
        center = state["center"]
        sound = center.ndim == 2 and center.shape[1] == parameter.shape[1] - 1
        sound = sound and len(parameter) % len(center) == 0
    if sound and "directions" in state:
        directions, damping, squares = (
            state[name] for name in ("directions", "damping", "stiff_squares")
        )
        sound = directions.ndim == 3 and parameter.shape[1] - directions.shape[2] in (0, 1)
        sound = sound and len(parameter) % len(directions) == 0
        parts, count = directions.shape[:2]
        sound = sound and damping.shape == (parts, count)
        sound = sound and squares.shape == (parts, len(parameter) // parts, count)
    return bool(sound)


class _StiffStep:
    """A step of weights along some directions of their inputs, around one of all the rest.

    Made before that step, it takes the coordinates along the directions out of the gradient.
    """

    def __init__(self, iterate: Tensor, gradient: Tensor, state: dict[str, Any]) -> None:
        self.state, self.directions = state, state["directions"]
        self.weights = self._parts(iterate)
        self.before = self._coordinates(self.weights)
        slopes = self._parts(gradient)
        self.slopes = self._coordinates(slopes)
        slopes -= self.slopes @ self.directions

    def finish_(self, rate: float) -> None:
        """Give the coordinates their own step, in the place of what the rest has moved them by."""
        state = self.state
        if "stiff_squares" not in state:
            state["stiff_squares"] = torch.zeros_like(self.slopes)
        squares = state["stiff_squares"]
        squares.mul_(SQUARES_DECAY).addcmul_(self.slopes, self.slopes, value=1 - SQUARES_DECAY)
        size = (squares / (1 - SQUARES_DECAY ** float(state["step"]))).sqrt_().add_(EPS)
        target = self.before - rate * state["damping"].unsqueeze(1) * self.slopes / size
        self.weights += (target - self._coordinates(self.weights)) @ self.directions

    def _parts(self, weights: Tensor) -> Tensor:
        """The weights without their bias, (parts, units of a part, inputs), as a view."""
        parts, _, inputs = self.directions.shape
        return weights[:, :inputs].unflatten(0, (parts, -1))

    def _coordinates(self, weights: Tensor) -> Tensor:
        return weights @ self.directions.mT
