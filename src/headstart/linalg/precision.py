"""Double precision, also where a device has none.

Closed forms are solved in float64. A device without it (Apple's MPS) hands the numbers to the CPU,
where what is solved stays until it is copied into the parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor

WITHOUT_FLOAT64 = {"mps"}
"""Kinds of devices that know no float64."""


def exact_device(device: torch.device) -> torch.device:
    """Where numbers of a device are computed with in double precision: there, or on the CPU.

    Args:
        device: Where the numbers are.

    Example:
        >>> exact_device(torch.device("mps"))
        device(type='cpu')
    """
    return torch.device("cpu") if device.type in WITHOUT_FLOAT64 else device


def in_double(x: Tensor) -> Tensor:
    """The same numbers in double precision, on the CPU where their device has none.

    Args:
        x: Numbers.

    Example:
        >>> in_double(torch.ones(1)).dtype
        torch.float64
    """
    # The CPU gets them as they are: no device converts what it cannot hold.
    return x.to(exact_device(x.device)).double()
