"""Draws of the layers below a read-out, and nets that are fixed at one of them."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from headstart.network.layer import Bayesian, bayesian_layers
from headstart.posteriors import MeanField

POINT_LOGVAR = -80.0
"""The log-variance of weights that do not vary, within the range of float32."""


class HiddenDraw(NamedTuple):
    """A draw of the layers below, as deviations from the means of a net."""

    net: nn.Module
    deviations: dict[str, Tensor]


@dataclass(frozen=True)
class HiddenLayers:
    """The layers below the read-out, and draws of them.

    Args:
        draws: of one member after another, and again.
        members: how many nets were drawn from.
        kl: of the layers, `KL(q(h)‖p(h))`, the mean over members.
        spread: `E_q (h−μ)ᵀ Λ (h−μ)` with the prior's precision Λ, summed, the mean over members.
        size: how many weights they have.
        can_widen: whether every layer has a density.
    """

    draws: tuple[HiddenDraw, ...]
    members: int
    kl: float
    spread: float
    size: int
    can_widen: bool

    @classmethod
    def of(cls, nets: Sequence[nn.Module], last: str, draws: int) -> HiddenLayers:
        """The layers of each net but the last.

        Args:
            nets: the members of a mixture.
            last: the name of the read-out.
            draws: how many draws there are to be at least, of every net as many.
        """
        every = [_layers_below(net, last) for net in nets]
        drawn = tuple(
            HiddenDraw(net, _deviations(layers))
            for _ in range(-(-draws // len(nets)) if every[0] else 1)
            for net, layers in zip(nets, every, strict=True)
        )
        below, members = [layer for layers in every for layer in layers.values()], len(nets)
        kl = sum(float(layer.kl()) for layer in below) / members
        spread = sum(_prior_spread(layer) for layer in below) / members
        size = sum(layer.posterior.mean.numel() for layer in below) // members
        dense = all(not layer.posterior.law_is_local for layer in below)
        return cls(drawn, members, kl, spread, size, dense and bool(below))

    def kl_at(self, factor: float) -> float:
        """The KL once variances are multiplied: `KL + ½ [(c − 1) spread − size log c]`.

        Args:
            factor: c.
        """
        return self.kl + 0.5 * ((factor - 1) * self.spread - self.size * math.log(factor))


def _layers_below(net: nn.Module, last: str) -> dict[str, Bayesian]:
    return {name: layer for name, layer in bayesian_layers(net).items() if name != last}


def _prior_spread(layer: Bayesian) -> float:
    """`E_q (h−μ)ᵀ Λ (h−μ)`."""
    whole = layer.prior.expected_quadratic(layer.posterior)
    return float(whole) - float(layer.prior.expected_quadratic(_point(layer, 0.0)))


def _deviations(layers: Mapping[str, Bayesian]) -> dict[str, Tensor]:
    """One draw of these layers, from their means."""
    laws = {name: layer.posterior for name, layer in layers.items()}
    return {name: q.sample(1)[0] - q.mean for name, q in laws.items()}


def _point(layer: Bayesian, deviation: Tensor | float) -> MeanField:
    """A posterior without variance, so far from the layer's mean."""
    old = layer.posterior
    made = MeanField(old.units, old.size, dtype=old.mean.dtype, device=old.mean.device)
    made.mean.copy_(old.mean + deviation)
    made.logvar.fill_(POINT_LOGVAR)
    return made.requires_grad_(False)


def fix_hidden(draw: HiddenDraw, size: float) -> nn.Module:
    """A copy of the net in which layers have the weights of one draw, and no variance.

    Args:
        draw: the draw.
        size: what its deviations from the means are multiplied by.
    """
    net = copy.deepcopy(draw.net)
    layers = bayesian_layers(net)
    for name, deviation in draw.deviations.items():
        layers[name].posterior = _point(layers[name], size * deviation)
    return net
