"""Stock modules that keep several weights, in place of them modules with layers that convert."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from headstart.network.attention import Attention
from headstart.network.decomposed import Decomposed, fill_weights_, linear_layer
from headstart.network.recurrent import CELLS, SEQUENCES, Recurrent, RecurrentCell


class BilinearForm(Decomposed):
    """`nn.Bilinear` as a Linear layer of the products of its inputs.

    Args:
        stock: the stock module, whose weights are copied.

    Example:
        >>> import torch
        >>> net, x, y = nn.Bilinear(3, 4, 2), torch.randn(5, 3), torch.randn(5, 4)
        >>> torch.allclose(BilinearForm(net)(x, y), net(x, y), atol=1e-6)
        True
    """

    def __init__(self, stock: nn.Bilinear) -> None:
        super().__init__()
        self.first, self.second = stock.in1_features, stock.in2_features
        self.products = linear_layer(stock.weight.flatten(1), stock.bias)
        self.train(stock.training)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """`x₁ᵀ A x₂ + b`.

        Args:
            input1: (..., inputs).
            input2: (..., inputs of its own).
        """
        return self.products((input1.unsqueeze(-1) * input2.unsqueeze(-2)).flatten(-2))

    def stock(self) -> nn.Bilinear:
        """The stock module with the weights that the layer has now."""
        weight, bias = self.products.weight, self.products.bias
        made = nn.Bilinear(self.first, self.second, len(weight), bias is not None, device="meta")
        fill_weights_(
            made, {"weight": weight.unflatten(1, (self.first, self.second)), "bias": bias}
        )
        return made.train(self.training)


class TransposedLinear(Decomposed):
    """A Linear layer that keeps its weight as (inputs, units): `Conv1D` of transformers.

    Args:
        stock: the stock module, whose weights are copied.
    """

    def __init__(self, stock: nn.Module) -> None:
        super().__init__()
        self.kind = type(stock)
        weight: Any = stock.weight
        bias: Any = stock.bias
        self.nx, self.nf = weight.shape
        self.linear = linear_layer(weight.T, bias)
        self.train(stock.training)

    def forward(self, x: Tensor) -> Tensor:
        """`x A + b`.

        Args:
            x: (..., inputs).
        """
        return self.linear(x)

    def stock(self) -> nn.Module:
        """The stock module with the weights that the layer has now."""
        made = self.kind(self.nf, self.nx)
        fill_weights_(made, {"weight": self.linear.weight.T, "bias": self.linear.bias})
        return made.train(self.training)


_BY_TYPE: dict[type[nn.Module], Callable[..., Decomposed]] = {
    nn.MultiheadAttention: Attention,
    nn.Bilinear: BilinearForm,
    **dict.fromkeys(SEQUENCES, Recurrent),
    **dict.fromkeys(CELLS, RecurrentCell),
}


def _maker(module: nn.Module) -> Callable[..., Decomposed] | None:
    """What takes such a module apart. A subclass may compute anything: the type must be exact."""
    kind = type(module)
    # Known by its name: transformers need not be installed.
    if kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils":
        return TransposedLinear
    if isinstance(module, nn.MultiheadAttention) and not Attention.accepts(module):
        return None
    return _BY_TYPE.get(kind)


def can_decompose(module: nn.Module) -> bool:
    """Whether `decompose_` takes this module apart.

    Args:
        module: A stock module.
    """
    return _maker(module) is not None


def decompose_(model: nn.Module) -> tuple[nn.Module, dict[str, nn.Module]]:
    """Put modules with layers in the place of stock ones that keep several weights.

    Args:
        model: A plain net, overwritten.

    Returns:
        The net, another module where it was such a one itself; and the stock modules by name.

    Example:
        >>> net, stock = decompose_(nn.Sequential(nn.GRU(3, 4)))
        >>> list(stock), [name for name, _ in net.named_parameters()][0]
        (['0'], '0.input_l0.weight')
    """
    made: dict[nn.Module, Decomposed] = {}
    stock: dict[str, nn.Module] = {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        maker = _maker(module)
        if maker is not None:
            stock[name] = module
            made.setdefault(module, maker(module))
    for name, module in stock.items():
        model = replaced(model, name, made[module])
    return model, stock


def decompose_as_(net: nn.Module, names: Iterable[str]) -> nn.Module:
    """`decompose_` of those modules that are to have layers of these names.

    Args:
        net: A plain net, overwritten.
        names: The names of layers, whole modules among them.

    Returns:
        The net, another module where it was taken apart itself.
    """
    net, stock = decompose_(net)
    return restore_(net, stock, list(names))


def restore_(model: nn.Module, stock: Mapping[str, nn.Module], names: Sequence[str]) -> nn.Module:
    """Put stock modules back in which there is no layer of these names.

    Args:
        model: A net from `decompose_`, overwritten.
        stock: Its stock modules.
        names: The names of layers.

    Returns:
        The net, another module where it was taken apart itself.
    """
    for name, module in stock.items():
        if not any(is_within(layer, name) for layer in names):
            model = replaced(model, name, module)
    return model


def is_within(layer: str, name: str) -> bool:
    """Whether the layer of this name is the module of that name, or in it.

    Args:
        layer: The name of the layer.
        name: The name of the module.
    """
    return not name or layer == name or layer.startswith(f"{name}.")


def recompose_(model: nn.Module) -> nn.Module:
    """The inverse of `decompose_`: stock modules again, with the weights of today.

    Args:
        model: A plain net, overwritten.
    """
    made: dict[nn.Module, nn.Module] = {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if isinstance(module, Decomposed):
            if module not in made:
                made[module] = module.stock()
            model = replaced(model, name, made[module])
    return model


def replaced(model: nn.Module, name: str, module: nn.Module) -> nn.Module:
    """The model with another module in the place of that name; the module itself for the root.

    Args:
        model: The model, overwritten.
        name: Of the module that goes.
        module: What comes in its place.
    """
    if not name:
        return module
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)
    return model
