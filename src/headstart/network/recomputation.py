"""Activation checkpointing: a layer that is run again in the backward pass draws what it drew.

`torch.utils.checkpoint` runs parts of a net a second time while gradients are computed, with the
random state of the first time. The plan of that pass is gone by then. So the outputs of a pass keep
what its layers did, and say it when gradients come back to them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.kernels.fused import transformed
from headstart.nested import parts_of

_GOING_BACKWARD: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
"""What layers did in the pass whose gradients are being computed."""


def keep_for_backward(output: Any, samplers: Mapping[nn.Module, Any]) -> None:
    """Let the outputs of a pass keep what its layers did, for as long as there is a graph.

    Args:
        output: what the net gave.
        samplers: what each layer did.
    """
    if transformed():
        return

    def say(gradient: Tensor) -> None:
        _GOING_BACKWARD.update(samplers)

    for part in parts_of(output):
        if part.requires_grad:
            part.register_hook(say)


def forget(layer: nn.Module) -> None:
    """The layer is in a pass of its own now.

    Args:
        layer: a Bayesian layer.
    """
    # A compiler would watch what other nets left there, which may vanish meanwhile.
    if not torch.compiler.is_compiling():
        _GOING_BACKWARD.pop(layer, None)


def replayed(layer: nn.Module) -> Any:
    """What the layer did in a pass that is run again; None where none is.

    Args:
        layer: the layer that is called.

    Raises:
        HeadstartError: it cannot be done again.
    """
    sampler: Any = _GOING_BACKWARD.get(layer)
    caller = "" if sampler is None else _recomputing()
    if not caller:
        return None
    if not getattr(sampler, "is_repeatable", False):
        raise HeadstartError(
            "Activation checkpointing repeats draws of layers' outputs: train with sampler='local'."
        )
    # The reentrant variant goes backward in this call, while the graph of the moments is in use.
    return replace(sampler, moments=None) if caller == "backward" else sampler


@contextmanager
def replaying_alone(layers: Sequence[nn.Module]) -> Iterator[dict[nn.Module, Any]]:
    """Within this scope layers that are run again follow their own samplers.

    A module whose layers share their draws over several calls makes these draws again itself.

    Args:
        layers: Bayesian layers.

    Yields:
        What the layers did in the pass that is run again; empty where none is.

    Raises:
        HeadstartError: it cannot be done again.
    """
    if torch.compiler.is_compiling():
        yield {}
        return
    found = {layer: again for layer in layers if (again := replayed(layer)) is not None}
    kept = {layer: _GOING_BACKWARD.pop(layer) for layer in found}
    try:
        yield found
    finally:
        _GOING_BACKWARD.update(kept)


def _recomputing() -> str:
    """The function of torch.utils.checkpoint that runs a part of a net again; empty: none does."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_name
        again = name in ("unpack_hook", "recompute_fn", "backward")
        if again and frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            return str(name)
        frame = frame.f_back
    return ""
