"""Plain torch networks by name; nothing Bayesian here."""

from __future__ import annotations

import re
from collections.abc import Callable

from torch import nn

from headstart.errors import HeadstartError, unknown
from headstart.models.alexnet import alexnet
from headstart.models.lenet import lenet
from headstart.models.mlp import ACTIVATIONS, SkipMLP, mlp
from headstart.models.resnet import resnet
from headstart.models.vgg16 import vgg16

MAX_LAYERS = 10_000
_MLP_NAME = re.compile(
    r"mlp-(\d{1,9})x(\d{1,9})(?:-(?!skip\d|periodic\d)(\w+))?"
    r"(?:-periodic(\d{1,4}))?(?:-skip(\d{1,9}))?"
)
MODELS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "lenet": lenet,
    "lenet-20-50": lambda shape, outputs: lenet(shape, outputs, filters=(20, 50), hidden=(500,)),
    "alexnet": alexnet,
    "vgg16": vgg16,
    "resnet": resnet,
    "resnet-batchnorm": lambda shape, outputs: resnet(shape, outputs, batch_norm=True),
}

__all__ = ["MODELS", "create"]


def names_mlp(name: str) -> bool:
    """Whether this is the name of a dense net, `mlp-DEPTHxWIDTH` and what may follow.

    Args:
        name: The name.

    Example:
        >>> names_mlp("mlp-2x100-tanh"), names_mlp("mlp")
        (True, False)
    """
    return _MLP_NAME.fullmatch(name) is not None


def create(name: str, inputs: int | tuple[int, ...], outputs: int) -> nn.Module:
    """A plain torch network by name.

    Args:
        name: `mlp-DEPTHxWIDTH[-ACTIVATION][-periodicN][-skipK]`, or one of MODELS. With
            `periodicN` N waves of every feature are features too; with `skipK` the last K features
            have none, and reach the last layer directly.
        inputs: The number of features, or the shape (C, H, W) of an image.
        outputs: The number of outputs.

    Returns:
        The network, with torch's own initialization.

    Raises:
        HeadstartError: There is no such network, or not for such inputs.

    Example:
        >>> create("mlp-2x50-tanh", 4, 1)[1]
        Linear(in_features=4, out_features=50, bias=True)
    """
    shape = (inputs,) if isinstance(inputs, int) else tuple(inputs)
    if outputs < 1 or not shape or min(shape) < 1:
        raise HeadstartError(
            f"The model {name!r} needs inputs and outputs, not {shape} and {outputs}."
        )
    try:
        net = _make(name, shape, outputs)
    except (RuntimeError, TypeError, OverflowError) as error:
        # Torch's words for too large, or for images too small.
        words = str(error).splitlines()[0]
        raise HeadstartError(
            f"The model {name!r} cannot be made for inputs of shape {shape}: {words}."
        ) from error
    # What rebuilds it: a saved model needs no net then.
    net.recipe = [name, list(shape), outputs]  # type: ignore[assignment]
    return net


def _make(name: str, shape: tuple[int, ...], outputs: int) -> nn.Module:
    found = _MLP_NAME.fullmatch(name)
    if found:
        depth, width, activation = int(found[1]), int(found[2]), found[3] or "relu"
        if depth > MAX_LAYERS or not width:
            raise HeadstartError(
                f"The model {name!r} needs 0 to {MAX_LAYERS} layers of at least one unit."
            )
        if activation not in ACTIVATIONS:
            raise unknown("activation", activation, ACTIVATIONS)
        sizes = {"depth": depth, "width": width, "periodic": int(found[4] or 0)}
        if found[5]:
            return SkipMLP(shape, outputs, activation=activation, skip=int(found[5]), **sizes)
        return mlp(shape, outputs, activation=activation, **sizes)
    if name not in MODELS:
        raise unknown("model", name, [*MODELS, "mlp-1x100", "mlp-5x100", "mlp-3x500-tanh"])
    if len(shape) != 3:
        raise HeadstartError(
            f"The model {name!r} takes images (channels, height, width), "
            f"not inputs of shape {shape}."
        )
    return MODELS[name](shape, outputs)
