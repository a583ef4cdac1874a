"""The random numbers of the devices in use: kept for a while, or begun from a seed.

`torch.manual_seed` seeds every device of the machine and `torch.random.fork_rng` keeps those it is
told of, so that together they reseed a device that somebody else computes on. Here only the CPU and
the devices of what is named are touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

CPU = torch.device("cpu")
Holder = Any
"""What lies on a device: a tensor or several, a module, or a device itself."""


def devices_of(*holders: Holder) -> list[torch.device]:
    """The CPU, and the other devices that tensors and modules lie on, each once.

    Args:
        holders: Modules, whatever has a `device`, and devices.

    Example:
        >>> devices_of(nn.Linear(3, 2), torch.zeros(1))
        [device(type='cpu')]
    """
    found = {CPU: None}
    for holder in holders:
        found |= dict.fromkeys(_own_devices(holder))
    # Tensors without numbers need none.
    return [device for device in found if device.type != "meta"]


def _own_devices(holder: Holder) -> Iterable[torch.device]:
    if isinstance(holder, torch.device):
        return [holder]
    if isinstance(holder, nn.Module):
        return (each.device for part in (holder.parameters, holder.buffers) for each in part())
    return [holder.device]


def rng_state(device: torch.device) -> Tensor:
    """The random state of one device.

    Args:
        device: Which.
    """
    if device.type == "cpu":
        return torch.get_rng_state()
    return torch.get_device_module(device).get_rng_state(*_argument(device))


def load_rng_state_(device: torch.device, state: Tensor) -> None:
    """Go on from a random state.

    Args:
        device: Whose.
        state: What `rng_state` returned.
    """
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state, *_argument(device))


def _argument(device: torch.device) -> tuple[torch.device, ...]:
    # There is only one such device, and torch.mps does not ask which.
    return () if device.type == "mps" else (device,)


def seed_(seed: int, *holders: Holder) -> None:
    """Begin the random numbers of the CPU and of the devices in use from a seed.

    They are those that `torch.manual_seed` gives; other devices go on as they were.

    Args:
        seed: The seed.
        holders: What lies on the devices in use.

    Example:
        >>> seed_(5)
        >>> a = torch.rand(1)
        >>> _ = torch.manual_seed(5)
        >>> torch.equal(a, torch.rand(1))
        True
    """
    for device in devices_of(*holders):
        load_rng_state_(device, first_state(device, int(seed)))


def first_state(device: torch.device, seed: int) -> Tensor:
    """The random state of a device that has just been seeded.

    Args:
        device: Whose.
        seed: The seed.
    """
    return torch.Generator(device).manual_seed(seed).get_state()


@contextmanager
def kept_random_state(*holders: Holder, enabled: bool = True) -> Iterator[None]:
    """Afterwards the random numbers of the devices in use go on as if nothing had been drawn.

    Args:
        holders: What lies on the devices in use.
        enabled: Whether to keep them; else nothing happens.
    """
    states = [(each, rng_state(each)) for each in devices_of(*holders)] if enabled else []
    try:
        yield
    finally:
        for device, state in states:
            load_rng_state_(device, state)


@contextmanager
def seeded(seed: int | None, *holders: Holder) -> Iterator[None]:
    """Random numbers from a seed within this scope, and the caller's again after it.

    Args:
        seed: The seed; None: the caller's random numbers.
        holders: What lies on the devices in use.

    Example:
        >>> with seeded(0):
        ...     a = torch.rand(1)
        >>> with seeded(0):
        ...     b = torch.rand(1)
        >>> torch.equal(a, b)
        True
    """
    with kept_random_state(*holders, enabled=seed is not None):
        if seed is not None:
            seed_(seed, *holders)
        yield
