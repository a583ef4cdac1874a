"""Layers that data cannot start, and how they start instead."""

from __future__ import annotations

import torch
from torch import nn

from headstart.initializers.pretrained import RELATIVE_SD, near
from headstart.initializers.walk import with_output
from headstart.linalg.affine import active_inputs
from headstart.nested import TensorTree, is_whole
from headstart.network.layer import Bayesian, bayesian_layers
from headstart.network.probe import calls

MAX_TOKENS = 2048
"""Tokens of an embedding beyond which regressions on them cost too much."""
SAME_INPUTS = "has the same inputs for every row"


def why_plain(model: nn.Module, layer: Bayesian, x: TensorTree, times: int) -> str:
    """Why data cannot start a layer, whatever they are; empty where they can.

    A layer that feeds itself would change its own inputs.

    Args:
        model: a net from `bayesianize`, not a mixture.
        layer: one of its layers.
        x: a few rows of inputs.
        times: how often a pass calls the layer.
    """
    if layer.tied:
        return "shares its weights with another"
    if active_inputs(layer.op) < layer.fan_in and layer.fan_in > MAX_TOKENS:
        return f"has more than {MAX_TOKENS} tokens"
    if active_inputs(layer.op) < layer.fan_in and _ignores_batch(model, layer, x):
        return SAME_INPUTS
    return "feeds itself" if times > 1 and feeds_itself(model, layer, x) else ""


def _ignores_batch(model: nn.Module, layer: Bayesian, x: TensorTree) -> bool:
    """Whether a table is looked up at the same places for one row and for two, as positions are."""
    layers = bayesian_layers(model)
    shapes = [
        [inputs.shape for name, inputs in calls(model, part) if layers[name] is layer]
        for part in (x[:1], x[:2])
    ]
    return shapes[0] == shapes[1] and not is_whole(x)


def feeds_itself(model: nn.Module, layer: Bayesian, x: TensorTree) -> bool:
    """Whether what reaches a layer depends on what it gave at an earlier call, as a state does.

    Args:
        model: a net from `bayesianize`, not a mixture.
        layer: one of its layers.
        x: a few rows of inputs.
    """
    seen, _ = with_output(model, layer, x, lambda output: output)
    for number, (inputs, _) in enumerate(seen):
        if inputs.requires_grad:
            earlier = [given for _, given in seen[:number]]
            with torch.enable_grad():
                total = inputs.sum()
            slopes = torch.autograd.grad(total, earlier, retain_graph=True, allow_unused=True)
            if any(slope is not None for slope in slopes):
                return True
    return False


def keep_mean_(layer: Bayesian) -> None:
    """A plain start: the mean that the layer has, in a fresh net torch's own, and little noise.

    Args:
        layer: the layer, overwritten.
    """
    layer.posterior.project_(near(layer.posterior.mean.detach().clone(), RELATIVE_SD))
