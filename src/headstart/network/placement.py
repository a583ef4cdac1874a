"""Where a net wants its batches: device, dtype, and the arguments of its `forward`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.nested import TensorTree, map_each
from headstart.network.inputs import fitted, takes_tensor
from headstart.network.net_errors import unfitting_inputs


class Placement:
    """Where a net wants its batches, and in which dtype: found once, for many batches.

    Args:
        model: the net.
        move_labels: whether labels leave the device that they are on.

    Example:
        >>> import torch
        >>> placement = Placement(nn.Linear(3, 2).double())
        >>> placement.inputs(torch.ones(1, 3)).dtype, placement.labels(torch.tensor([1])).dtype
        (torch.float64, torch.int64)
    """

    def __init__(self, model: nn.Module, move_labels: bool = True) -> None:
        self.model, self.move_labels = model, move_labels
        self.like = next((p for p in model.parameters() if p.is_floating_point()), None)
        self.embeds = any(
            isinstance(each, (nn.Embedding, nn.EmbeddingBag)) for each in model.modules()
        )
        self.takes_tensor = takes_tensor(model.forward)

    def inputs(self, x: TensorTree) -> Any:
        """Inputs as `place_inputs` returns them.

        Args:
            x: the inputs.

        Raises:
            HeadstartError: `forward` does not take them.
        """
        given, like = x, self.like
        x = fitted(x, self.model)
        if isinstance(x, Tensor) and not self.takes_tensor:
            if not isinstance(given, Tensor):
                said = unfitting_inputs(self.model, len(given.args), list(given.named))
                raise HeadstartError(said)
            raise HeadstartError(
                f"{type(self.model).__name__}.forward takes "
                f"{inspect.signature(self.model.forward)}, and x is a single tensor: pass a "
                "tuple or dictionary of tensors."
            )
        if like is None:
            return x
        if not isinstance(x, Tensor):
            return x.map(lambda part: _to(part, like))
        if self.embeds:
            return _to(x, like)
        return x.to(like.device, like.dtype, non_blocking=like.device.type != "cpu")

    def labels(self, y: TensorTree) -> Any:
        """Labels on the model's device; real numbers in its dtype, classes and counts as they are.

        Args:
            y: the labels.
        """
        like, move = self.like, self.move_labels
        return y if like is None else map_each(lambda part: _to(part, like, move), y)


def placing(
    model: nn.Module | None, move_labels: bool
) -> Callable[[TensorTree, TensorTree], tuple[Any, Any]]:
    """What brings batches of inputs and labels to a net, which is asked once for all of them.

    Args:
        model: the net; None leaves batches as they are.
        move_labels: whether labels leave the device that they are on.
    """
    if model is None:
        return lambda x, y: (x, y)
    to = Placement(model, move_labels)
    return lambda x, y: (to.inputs(x), to.labels(y))


def place_inputs(x: TensorTree, model: nn.Module) -> Any:
    """Inputs on the model's device, real numbers in its dtype, as its `forward` takes them.

    A single tensor of whole numbers becomes one of real numbers, unless an embedding wants it as it
    is; among several tensors whole numbers and truth values stay what they are.

    Args:
        x: the inputs.
        model: the net.

    Raises:
        HeadstartError: `forward` does not take them.
    """
    return Placement(model).inputs(x)


def _to(part: Tensor, like: Tensor, move: bool = True) -> Tensor:
    """On the device; in the dtype too where it holds real numbers.

    A copy from pinned memory to a device need not be waited for; one to the host must be.
    """
    kind = like.dtype if part.is_floating_point() else None
    device = like.device if move else part.device
    return part.to(device, kind, non_blocking=device.type != "cpu")
