"""What is asked of Lightning Fabric, which nothing here imports, and what of it is refused."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import nn

from headstart.errors import HeadstartError


class Fabric(Protocol):
    """What is asked of a `lightning.fabric.Fabric` that has been launched."""

    @property
    def global_rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def device(self) -> torch.device: ...
    def broadcast(self, obj: Any) -> Any: ...
    def autocast(self) -> AbstractContextManager[Any]: ...


def check_fabric(fabric: Fabric, model: nn.Module) -> None:
    """Refuse a Fabric that does not suit the model, or was not launched.

    Args:
        fabric: what the caller passed.
        model: the model to train.

    Raises:
        HeadstartError: with a sentence about what to change.
    """
    if hasattr(model, "_forward_module"):
        raise HeadstartError(
            "Pass the model itself, not what fabric.setup made of it: "
            "headstart reduces the gradients of all ranks on its own."
        )
    parameter = next(model.parameters(), None)
    if parameter is not None and parameter.device != fabric.device:
        raise HeadstartError(
            f"The model is on {parameter.device}, but Fabric's device is {fabric.device}: "
            "call model.to(fabric.device) first."
        )
    if fabric.world_size > 1 and not torch.distributed.is_initialized():
        raise HeadstartError(
            f"Fabric has {fabric.world_size} ranks, but torch.distributed does not connect them: "
            "launch it first, with the strategy 'ddp'."
        )
    _check_precision(fabric)


def _check_precision(fabric: Fabric) -> None:
    kind, usual = fabric.device.type, torch.get_default_dtype()
    with fabric.autocast():
        half = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) != torch.bfloat16
        if half or torch.get_default_dtype() != usual:
            raise HeadstartError(
                "headstart trains under Fabric in the precisions '32-true' and 'bf16-mixed': "
                "float16 would need its loss scaled, and parameters in half precision lose the "
                "variances. For double precision convert the model and the data yourself."
            )
