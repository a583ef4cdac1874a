"""The one walk over a net's layers: which come when, and what reaches each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headstart.layers import Bayesian, bayesian_layers, drawing


class _Reached(Exception):
    """Thrown out of a forward pass that has come far enough."""


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


@torch.no_grad()
def execution_order(model: nn.Module, x: Tensor) -> dict[str, Bayesian]:
    """The Bayesian layers in the order a forward pass of `x` first calls them; what it never calls is left out."""
    layers = bayesian_layers(model)
    order: list[str] = []
    handles = [
        layer.register_forward_pre_hook(lambda module, args, name=name: order.append(name))
        for name, layer in layers.items()
    ]
    try:
        with _evaluating(model), drawing(model, "mean"):
            model(x)
    finally:
        for handle in handles:
            handle.remove()
    return {name: layers[name] for name in dict.fromkeys(order)}


@torch.no_grad()
def layer_input(model: nn.Module, layer: Bayesian, x: Tensor, sampler: str = "local") -> Tensor:
    """What reaches `layer` (at its first call) from `x` through one draw of the layers before it; the pass stops there."""
    caught: list[Tensor] = []

    def catch(module: nn.Module, args: tuple[Any, ...]) -> None:
        caught.append(args[0])
        raise _Reached

    handle = layer.register_forward_pre_hook(catch)
    try:
        with _evaluating(model), drawing(model, sampler):
            model(x)
    except _Reached:
        pass
    finally:
        handle.remove()
    return caught[0]


@torch.no_grad()
def count_outputs(model: nn.Module, x: Tensor) -> int:
    """The size of the last axis of the net's output."""
    with _evaluating(model), drawing(model, "mean"):
        return int(model(x).shape[-1])


@torch.no_grad()
def observe(model: nn.Module, x: Tensor, see: Callable[[str, Tensor, Tensor], None]) -> Tensor:
    """One sampled forward pass; `see(name, input, output)` is called at each Bayesian layer. Returns the net's output."""
    handles = [
        layer.register_forward_hook(lambda module, args, out, name=name: see(name, args[0], out))
        for name, layer in bayesian_layers(model).items()
    ]
    try:
        with _evaluating(model), drawing(model, "local"):
            output: Tensor = model(x)
    finally:
        for handle in handles:
            handle.remove()
    return output
