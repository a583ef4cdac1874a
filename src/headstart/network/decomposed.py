"""What a module of ours shares that computes what a stock one does, with layers in its inside."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class Decomposed(nn.Module, ABC):
    """A stock module that keeps several weights, taken apart into stock affine layers.

    The layers can be converted one by one; the module is called as the stock one is.
    """

    @abstractmethod
    def stock(self) -> nn.Module:
        """The stock module with the weights that the layers have now."""


def linear_layer(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A Linear layer with copies of these weights.

    Args:
        weight: (units, inputs).
        bias: (units), or None for a layer without.
    """
    units, inputs = weight.shape
    # Without memory at first: nothing is drawn, and the caller's random numbers stay as they are.
    made = nn.Linear(inputs, units, bias=bias is not None, device="meta")
    made.weight = nn.Parameter(weight.detach().clone(), weight.requires_grad)
    if bias is not None:
        made.bias = nn.Parameter(bias.detach().clone(), bias.requires_grad)
    return made


@torch.no_grad()
def fill_weights_(module: nn.Module, weights: dict[str, Tensor | None]) -> None:
    """Give a module on the meta device these weights, copied; None: it has no such.

    Args:
        module: the module, overwritten.
        weights: by the name of the parameter.
    """
    for name, weight in weights.items():
        if weight is not None:
            setattr(module, name, nn.Parameter(weight.detach().clone(), weight.requires_grad))
