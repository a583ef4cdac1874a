"""The one walk over a net's layers: which come when, and what reaches each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headstart.layers import Bayesian, bayesian_layers
from headstart.noise import Noise, fresh
from headstart.passes import calls, check_outputs, drawing, evaluating, forward
from headstart.posteriors import Posterior
from headstart.sampling import Mean, Weights


class _Reached(Exception):
    """Thrown out of a forward pass that has come far enough."""


@dataclass(frozen=True)
class _OnDemand:
    """Weights drawn when the layer is first called: a pass that stops early draws none for the layers after."""

    drawn: list[Weights]

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        if not self.drawn:
            self.drawn.append(Weights(posterior.sample(1)))
        return self.drawn[0](op, posterior, x)


def execution_order(model: nn.Module, x: Tensor) -> dict[str, Bayesian]:
    """The Bayesian layers in the order a forward pass of `x` first calls them; what it never calls is left out."""
    layers = bayesian_layers(model)
    return {name: layers[name] for name, _ in calls(model, x)}


@torch.no_grad()
def layer_input(model: nn.Module, layer: Bayesian, x: Tensor, sampler: str = "local", noise: Noise = fresh) -> Tensor:
    """What reaches `layer` (at its first call) from `x` through one draw of the layers before it; the pass stops there."""
    caught: list[Tensor] = []

    def catch(module: nn.Module, args: tuple[Any, ...]) -> None:
        caught.append(args[0])
        raise _Reached

    handle = layer.register_forward_pre_hook(catch)
    by_weights = sampler == "weights"
    try:
        with evaluating(model), drawing(model, "mean" if by_weights else sampler, noise=noise):
            for each in bayesian_layers(model).values() if by_weights else ():
                each.sampler = _OnDemand([])
            model(x)
    except _Reached:
        pass
    finally:
        handle.remove()
    return caught[0]


def count_outputs(model: nn.Module, x: Tensor) -> int:
    """The number of outputs of the net for each row."""
    with evaluating(model), torch.no_grad():
        return check_outputs(forward(model, x, 1, "mean")).shape[-1]


@dataclass(frozen=True)
class _Constant:
    """A layer that gives the same number everywhere, and keeps what it was given."""

    value: float
    caught: list[Tensor]

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        self.caught.append(x)
        return torch.full_like(Mean()(op, posterior, x), self.value)


@torch.no_grad()
def replaced(
    model: nn.Module, layer: Bayesian, x: Tensor, value: float, sampler: str = "local", noise: Noise = fresh
) -> tuple[Tensor, Tensor]:
    """What reaches `layer`, and the net's output if the layer's were `value` everywhere, from one pass."""
    constant = _Constant(value, [])
    with evaluating(model), drawing(model, sampler, noise=noise):
        layer.sampler = constant
        output = model(x)
    return constant.caught[0], output


def adds_up(model: nn.Module, layer: Bayesian, x: Tensor) -> bool:
    """Whether the net's output is the layer's (or its mean over positions) plus something the layer does not change."""
    zero, one = (replaced(model, layer, x, value, "mean")[1] for value in (0.0, 1.0))
    return torch.allclose(one - zero, torch.ones_like(one), atol=1e-3)


@torch.no_grad()
def observe(model: nn.Module, x: Tensor, see: Callable[[str, Tensor, Tensor], None]) -> Tensor:
    """One sampled forward pass; `see(name, input, output)` is called at each Bayesian layer. Returns the net's output."""
    handles = [
        layer.register_forward_hook(lambda module, args, out, name=name: see(name, args[0], out))
        for name, layer in bayesian_layers(model).items()
    ]
    try:
        with evaluating(model), drawing(model, "local"):
            output: Tensor = model(x)
    finally:
        for handle in handles:
            handle.remove()
    return output
