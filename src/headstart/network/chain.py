"""Nets that are chains of modules, whose parts can be run one after another."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headstart.kernels import private as torch_private
from headstart.linalg.affine import CONVOLUTIONS
from headstart.nested import TensorTree
from headstart.network.layer import Bayesian


def chain_elements(model: nn.Module) -> list[nn.Module]:
    """The modules that a net of `nn.Sequential`s calls one after another; none of other nets.

    Args:
        model: the net.

    Example:
        >>> net = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
        >>> [type(element).__name__ for element in chain_elements(net)]
        ['Flatten', 'Linear', 'ReLU']
        >>> chain_elements(nn.Linear(4, 3))
        []
    """
    if type(model) is not nn.Sequential or torch_private.has_hooks(model):
        return []
    return [each for child in model for each in chain_elements(child) or [child]]


def channels_last(model: nn.Module, x: TensorTree) -> TensorTree:
    """Images as the convolutions of a CPU like them best: the channels of a pixel together.

    Only for chains of torch's own modules. A net of another kind may look at its activations in
    ways that need the order they had.

    Args:
        model: a converted net.
        x: its inputs.

    Returns:
        The same numbers.
    """
    elements = chain_elements(model)
    convolves = any(isinstance(each, Bayesian) and _is_image_layer(each) for each in elements)
    if not isinstance(x, Tensor) or x.ndim != 4 or x.device.type != "cpu" or not convolves:
        return x
    if not all(isinstance(each, Bayesian) or is_torchs(each) for each in elements):
        return x
    # A copy: images of one channel count as lying so already, which convolutions do not see.
    return torch.empty_like(x, memory_format=torch.channels_last).copy_(x)


def _is_image_layer(layer: Bayesian) -> bool:
    return isinstance(layer.op, CONVOLUTIONS) and len(layer.op.kernel_size) == 2


def is_torchs(module: nn.Module) -> bool:
    """Whether a module is one of torch's own, and calls no other."""
    return type(module).__module__.startswith("torch.nn.") and not any(module.children())
