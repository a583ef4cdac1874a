"""Weights that two modules share: one posterior, and in one draw the same weights for both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.linalg.affine import is_affine
from headstart.network.layer import Bayesian, skeleton
from headstart.network.recomputation import replayed
from headstart.network.shown import ShownMean


class TiedLayer(nn.Module):
    """A module that computes with the weights of a Bayesian layer elsewhere in the net.

    It draws what that layer draws, and has no posterior and no KL of its own. Drawn by weights, the
    two have the same ones in every sample; drawn by outputs, each has the right marginals, as a
    layer has that is called twice. A bias of its own stays deterministic.

    Args:
        stock: the stock module, Linear or Embedding.
        owner: the Bayesian layer with its weights and no bias.
    """

    def __init__(self, stock: nn.Module, owner: Bayesian) -> None:
        super().__init__()
        self.op = skeleton(stock)
        # In a tuple: the layer is a part of the net elsewhere, and counts once.
        self._owner = (owner,)
        self.is_transposed = isinstance(stock, nn.Linear) != isinstance(owner.op, nn.Linear)
        self.bias: nn.Parameter | None = getattr(stock, "bias", None)
        self.train(stock.training)

    def forward(self, input: Tensor) -> Tensor:
        """A draw of the module's output.

        Args:
            input: what the stock module takes.
        """
        owner = self._owner[0]
        again = None if torch.compiler.is_compiling() else replayed(owner)
        sampler: Any = owner.sampler if again is None else again
        posterior: Any = owner.posterior
        if self.is_transposed:
            posterior = posterior.transposed()
        read: Any = getattr(sampler, "for_tied", None)
        if read is not None:
            sampler = read(self.is_transposed)
        found: Tensor = sampler(self.op, posterior, input)
        return found if self.bias is None else found + self.bias

    @property
    def weight(self) -> Tensor:
        """The mean in the stock module's own shape, to look at: that of the other layer."""
        # Both stock modules have the same tensor.
        return self._owner[0].weight.as_subclass(ShownMean)

    def stock(self, weight: nn.Parameter) -> nn.Module:
        """The stock module again.

        Args:
            weight: the parameter that it shares.
        """
        op: Any = self.op
        op.weight, op.bias = weight, self.bias
        return self.op.train(self.training)

    def extra_repr(self) -> str:
        return f"weights of {self._owner[0].op}"


def shared_weights(model: nn.Module) -> list[list[str]]:
    """The names of different modules that have a parameter in common, group by group.

    Args:
        model: a plain net.

    Example:
        >>> net = nn.ModuleDict({"read": nn.Embedding(5, 3), "write": nn.Linear(3, 5, bias=False)})
        >>> net["write"].weight = net["read"].weight
        >>> shared_weights(net)
        [['read', 'write']]
    """
    owners: dict[int, dict[nn.Module, str]] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), {})[module] = name
    return [list(names.values()) for names in owners.values() if len(names) > 1]


def choose_owner(model: nn.Module, names: Sequence[str]) -> str:
    """The module of a group whose layer is to have the posterior: the first without a bias.

    Args:
        model: a plain net.
        names: of modules that share a parameter.

    Raises:
        HeadstartError: they share something else than the weight of Linear and Embedding layers.
    """
    modules = {name: model.get_submodule(name) for name in names}
    weights = [getattr(module, "weight", None) for module in modules.values()]
    free = [name for name, module in modules.items() if getattr(module, "bias", None) is None]
    plain = all(
        type(module) in (nn.Linear, nn.Embedding) and is_affine(module)
        for module in modules.values()
    )
    if not (plain and free and all(weight is weights[0] for weight in weights)):
        one, other = names[:2]
        raise HeadstartError(
            f"Layers {one!r} and {other!r} share one weight tensor; use one module in "
            f"both places, or leave both out with where=['!{one}', '!{other}']. Linear and "
            "Embedding layers may share theirs, where one of them has no bias."
        )
    return free[0]


def tie_(
    model: nn.Module, groups: Mapping[str, Iterable[str]], members: int
) -> dict[str, TiedLayer]:
    """What comes in the place of modules whose weights another layer has.

    Args:
        model: a net whose owners are Bayesian already; they are marked as tied.
        groups: the names of the other modules, by that of the owner.
        members: the number of members of a mixture.

    Raises:
        HeadstartError: the posterior cannot be read both ways, or is a mixture.
    """
    made: dict[str, TiedLayer] = {}
    for name, others in groups.items():
        owner: Any = model.get_submodule(name)
        owner.tied = True
        for other in others:
            made[other] = TiedLayer(model.get_submodule(other), owner)
            if members > 1:
                raise HeadstartError(
                    f"Layers {name!r} and {other!r} share one weight tensor, which the members of "
                    "a mixture cannot: convert with members=1, or leave both out with where=."
                )
            if made[other].is_transposed and owner.posterior.transposed() is None:
                raise HeadstartError(
                    f"Layers {name!r} and {other!r} share one weight tensor, by rows and by "
                    f"columns, which a {owner.posterior.name} posterior cannot; choose mean_field "
                    "for them."
                )
    return made


def tied_to(model: nn.Module, layer: Bayesian) -> list[TiedLayer]:
    """The modules that compute with the weights of a layer.

    Args:
        model: a converted net.
        layer: one of its layers.
    """
    readers = [module for module in model.modules() if isinstance(module, TiedLayer)]
    return [reader for reader in readers if reader._owner[0] is layer]


def refuse_tied(layers: Mapping[str, Bayesian], what: str) -> None:
    """Refuse nets in which layers share their weights.

    Args:
        layers: the Bayesian layers of a net.
        what: what cannot be done, as the beginning of a sentence.

    Raises:
        HeadstartError: a layer is tied.
    """
    for name, layer in layers.items():
        if layer.tied:
            raise HeadstartError(
                f"{what} does not know weights that two layers share, as those of layer {name!r}; "
                "leave both layers out with bayesianize(..., where=)."
            )
