"""Bayesian, the one layer; and what one asks of a net made of them: its layers and its KL."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.kernels import private as torch_private
from headstart.kernels.fused import whole_precision
from headstart.linalg.affine import fan_in, flatten, units
from headstart.network.samplers import Local, Sampler
from headstart.posteriors import Moments, Posterior
from headstart.priors import Inherited, Prior


class Bayesian(nn.Module):
    """A stock affine layer whose weights are a posterior; `forward` draws them, one draw unless a scope says otherwise.

    `op` keeps the stock layer's settings (stride, padding, ...) and none of its weights. `entry` is true for the layer through
    which alone the input reaches the rest of the net: it may then see each row once and draw from it S times.

    Example:
        >>> import torch, headstart as hs
        >>> layer = hs.bayesianize(nn.Linear(3, 2))
        >>> layer(torch.randn(5, 3)).shape, layer.kl().ndim
        (torch.Size([5, 2]), 0)
    """

    def __init__(self, op: nn.Module, posterior: Posterior, prior: Prior) -> None:
        super().__init__()
        self.op, self.posterior, self.prior = op, posterior, prior
        self.entry = False
        self.sampler: Sampler = Local()

    def forward(self, input: Tensor) -> Tensor:
        return self.sampler(self.op, self.posterior, input)

    def use(self, sampler: Sampler) -> None:
        """Draw by this from now on."""
        # a Module's own assignment looks for parameters first, and every step does this twice
        self.__dict__["sampler"] = sampler

    def kl(self) -> Tensor:
        """KL(posterior ‖ prior), summed over the layer's weights."""
        return self.posterior.kl(self.prior)

    def __repr__(self) -> str:
        op = (
            f"{self.op}".replace(", bias=False", "") if self.has_bias else f"{self.op}"
        )  # the skeleton has no bias of its own
        return f"Bayesian({op}, {self.posterior}, {self.prior})"

    @property
    def fan_in(self) -> int:
        """Inputs a unit sees, bias not counted."""
        return fan_in(self.op)

    @property
    def has_bias(self) -> bool:
        """Whether the last column of the posterior is a bias."""
        return self.posterior.size > self.fan_in


def bayesian_layers(model: nn.Module) -> dict[str, Bayesian]:
    """The Bayesian layers of a module by name, each once.

    Example:
        >>> import headstart as hs
        >>> list(bayesian_layers(hs.bayesianize(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))))
        ['0', '2']
    """
    layers: dict[str, Bayesian] = {}
    _collect(model, "", layers, set())
    if not layers:
        raise HeadstartError(
            f"This {type(model).__name__} has no Bayesian layer; pass it through headstart.bayesianize first."
        )
    return layers


GATES = "_headstart_gates"
"""Where a converted net keeps its `gates`: in its own dict, since it is somebody else's module."""


def gates(model: nn.Module) -> list[Bayesian]:
    """The first layers of a converted net that all goes through, one after another (`headstart.network.convert`); none for any other module."""
    found: list[Bayesian] = getattr(model, GATES, [])
    return found


def _collect(
    module: nn.Module, name: str, layers: dict[str, Bayesian], seen: set[nn.Module]
) -> None:
    """`named_modules` that does not look inside the layers: every step asks for them, more than once."""
    if module in seen:
        return
    seen.add(module)
    if isinstance(module, Bayesian):
        layers[name] = module
        return
    for child, part in torch_private.children(module):
        if part is not None:
            _collect(part, f"{name}.{child}" if name else child, layers, seen)


def kl(model: nn.Module) -> Tensor:
    """KL(q‖p) of the whole net: the sum over its layers."""
    return _kl(model)[0]


@contextmanager
def sharing(model: nn.Module) -> Iterator[Tensor]:
    """`kl(model)`; within the scope layers draw with what went into it, so that the gradient of both comes in one pass.

    Example:
        >>> import torch, headstart as hs
        >>> model = hs.bayesianize(nn.Linear(3, 2))
        >>> with sharing(model) as divergence:
        ...     loss = model(torch.ones(1, 3)).sum() + divergence
        >>> loss.backward()
    """
    divergence, shared = _kl(model)
    for posterior, moments in shared.items():
        posterior.__dict__["shared"] = moments, torch_private.own_parameters(posterior)
    try:
        yield divergence
    finally:
        for posterior in shared:
            posterior.__dict__["shared"] = None


def _kl(model: nn.Module) -> tuple[Tensor, dict[Posterior, Moments]]:
    families: dict[type[Posterior], list[tuple[Posterior, Prior]]] = {}
    layers = list(bayesian_layers(model).values())
    for layer in layers:
        families.setdefault(type(layer.posterior), []).append((layer.posterior, layer.prior))
    with whole_precision(layers[0].posterior.mean):  # determinants lose too much in half
        (total, shared), *others = [family.total_kl(pairs) for family, pairs in families.items()]
        for part, more in others:
            total, shared = total + part, shared | more
    return total, shared


def inherit_(model: nn.Module) -> None:
    """Make the posterior of every layer its prior: fit the model to new data next, and it remembers the old.

    Example:
        >>> import headstart as hs
        >>> model = hs.bayesianize(nn.Linear(3, 2))
        >>> inherit_(model)
        >>> round(float(hs.kl(model).detach()), 6)
        0.0
    """
    for layer in bayesian_layers(model).values():
        layer.prior = Inherited.of(layer.posterior)


def skeleton(op: nn.Module) -> nn.Module:
    """A copy of a stock layer without its weights."""
    bare = copy.deepcopy(op)
    for name, _ in list(bare.named_parameters(recurse=False)):
        bare.register_parameter(name, None)
    return bare


def stock_weights(op: nn.Module) -> Tensor:
    """The stock layer's own weights as a matrix (units, size)."""
    weight: Any = op.weight
    bias: Any = op.bias
    return flatten(op, weight.detach(), None if bias is None else bias.detach())


def layer_size(op: nn.Module) -> tuple[int, int]:
    """(units, size): the shape of the layer's weight matrix."""
    return units(op), fan_in(op) + (op.bias is not None)
