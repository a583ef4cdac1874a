"""Layers that data cannot start, and how they start instead."""

from __future__ import annotations

from torch import Tensor, nn

from headstart.initializers.pretrained import RELATIVE_SD, near
from headstart.initializers.walk import feeds_itself
from headstart.linalg.affine import active_inputs
from headstart.network.layer import Bayesian

MAX_TOKENS = 2048
"""Tokens of an embedding beyond which regressions on them cost too much."""
CONSTANT = "has the same inputs for every row"


def why_plain(model: nn.Module, layer: Bayesian, x: Tensor, calls: int) -> str:
    """Why data cannot start a layer, whatever they are; empty where they can.

    A layer that feeds itself would change its own inputs.

    Args:
        model: a net from `bayesianize`, not a mixture.
        layer: one of its layers.
        x: a few rows of inputs.
        calls: how often a pass calls the layer.
    """
    if active_inputs(layer.op) < layer.fan_in and layer.fan_in > MAX_TOKENS:
        return f"has more than {MAX_TOKENS} tokens"
    return "feeds itself" if calls > 1 and feeds_itself(model, layer, x) else ""


def keep_mean_(layer: Bayesian) -> None:
    """A plain start: the mean that the layer has, in a fresh net torch's own, and little noise.

    Args:
        layer: the layer, overwritten.
    """
    layer.posterior.project_(near(layer.posterior.mean.detach().clone(), RELATIVE_SD))
