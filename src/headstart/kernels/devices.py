"""Devices by name."""

from __future__ import annotations

import torch

from headstart.errors import HeadstartError


def usable_device(name: str) -> torch.device:
    """A device that this machine has.

    Args:
        name: As torch names it: `cpu`, `cuda`, `cuda:1`.

    Returns:
        The device.

    Raises:
        HeadstartError: There is none of that name here.

    Example:
        >>> usable_device("cpu")
        device(type='cpu')
    """
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise TypeError("meta has shapes, and no numbers")
        torch.empty(0, device=device)
    # Torch built without a kind of device, and a driver that is missing, say so by their own kinds.
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        # Torch goes on with a page of what it was built with.
        reason = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
        raise HeadstartError(f"There is no device {name!r} here: {reason}.") from error
    return device
