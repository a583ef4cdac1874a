"""Nets that are chains of dense layers: draws and KL in one pass (`headstart.kernels.chain`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headstart.kernels import private as torch_private
from headstart.kernels.chain import (
    ACTIVATION_PAIRS,
    ActivationPair,
    ChainDraws,
    ChainLayer,
    draw_layers,
)
from headstart.kernels.fused import autocasting, transformed
from headstart.network.branching import branches_of_chain, crossed_layers
from headstart.network.chain import chain_elements
from headstart.network.layer import Bayesian, common_members
from headstart.posteriors import MeanField

DenseStage = tuple[Bayesian, ActivationPair | None]
"""A layer and the activation behind it."""


def draw_dense_chain(
    model: nn.Module, layers: Mapping[str, Bayesian], x: Any, samples: int
) -> ChainDraws | None:
    """Draws for an average over rows and samples, and the KL, of a chain of dense layers.

    They are those of `forward` and `kl_and_moments`, of the same noise.

    Args:
        model: A converted net.
        layers: Its `bayesian_layers`.
        x: The inputs of B rows.
        samples: The number of samples S, rounded up to a multiple of the members'.

    Returns:
        The draws (S, B, ...) and the KL; None where the net is no such chain, or somebody else,
        a hook, a compiler or autocast, has a part in the pass.

    Example:
        >>> import headstart as hs
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> model, x = hs.bayesianize(net), torch.ones(5, 3)
        >>> draw_dense_chain(model, hs.bayesian_layers(model), x, samples=8).outputs.shape
        torch.Size([8, 5, 2])
    """
    stages = _stages(model, x.ndim) if _is_plain_pass(x) else []
    chain = [layer for layer, _ in stages]
    if not chain or not _fits(chain, x) or crossed_layers(layers) != chain:
        return None
    members, rows = common_members(layers), x.shape[0]
    branches = branches_of_chain(len(chain), -(-samples // members), members)
    plan = [
        ChainLayer(branch.draws, branch.noise(rows, members), activation, branch.fold(members))
        for branch, (_, activation) in zip(branches, stages, strict=True)
    ]
    posteriors: list[Any] = [layer.posterior for layer in chain]
    prior: Any = chain[0].prior
    means, logvars = [each.mean for each in posteriors], [each.logvar for each in posteriors]
    found = draw_layers(plan, x.flatten(1), means, logvars, prior.fixed_var)
    return found if members == 1 else ChainDraws(found.outputs, found.kl / members)


def _is_plain_pass(x: Any) -> bool:
    """Whether gradients by parameters alone are asked for, and nobody transforms the pass."""
    if type(x) is not Tensor or x.layout is not torch.strided or x.requires_grad:
        return False
    if x.ndim < 2 or len(x) == 0:
        return False
    return torch.is_grad_enabled() and not transformed() and not autocasting(x)


def _stages(model: nn.Module, ndim: int) -> list[DenseStage]:
    """The layers of a net that is a chain of them, with the activations between; else none.

    Inputs of more axes than two must be flattened by the net, or its layers work along the last.
    """
    found: list[DenseStage] = []
    elements = chain_elements(model)
    if elements and _flattens(elements[0]):
        elements = elements[1:]
    elif ndim > 2:
        return []
    for element in elements:
        if torch_private.has_hooks(element):
            return []
        if type(element) is Bayesian:
            found.append((element, None))
        elif found and found[-1][1] is None and _has_pair(element):
            found[-1] = found[-1][0], ACTIVATION_PAIRS[type(element)]
        else:
            return []
    return found if found and found[-1][1] is None else []


def _flattens(element: nn.Module) -> bool:
    """Whether it makes a row of each input, and nobody sees it."""
    if type(element) is not nn.Flatten or torch_private.has_hooks(element):
        return False
    return element.start_dim == 1 and element.end_dim == -1


def _has_pair(element: nn.Module) -> bool:
    known = type(element) in ACTIVATION_PAIRS
    return known and getattr(element, "approximate", "none") == "none"


def _fits(chain: Sequence[Bayesian], x: Tensor) -> bool:
    """Whether all weights are trained, independent and under one variance, and fit the inputs."""
    sizes = [
        x.shape[1:].numel(),
        *(layer.op.out_features for layer in chain if _is_plain_dense(layer)),
    ]
    if len(sizes) <= len(chain) or chain[0].prior.fixed_var is None:
        return False
    same = all(layer.prior.fixed_var == chain[0].prior.fixed_var for layer in chain)
    fits = all(layer.fan_in == size for layer, size in zip(chain, sizes, strict=False))
    return same and fits and all(_is_trained(layer.posterior, x) for layer in chain)


def _is_plain_dense(layer: Bayesian) -> bool:
    """A subclass may compute anything, so the types of layers and posteriors must match exactly."""
    dense = type(layer.op) is nn.Linear and not layer.tied
    return dense and type(layer.posterior) is MeanField


def _is_trained(posterior: Any, x: Tensor) -> bool:
    """Whether means and variances are of the inputs' kind, and get gradients."""
    mean = posterior.mean
    alike = mean.dtype == x.dtype and mean.device == x.device
    return alike and mean.requires_grad and posterior.logvar.requires_grad
