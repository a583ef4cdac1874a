"""The random numbers that ranks draw alike, beside those that each draws for itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor


class RNG(ABC):
    """Random numbers that are the same on every rank, for the order of the data."""

    @abstractmethod
    def drawing(self) -> AbstractContextManager[None]:
        """Within this scope torch draws from them."""

    @abstractmethod
    def state(self) -> Tensor:
        """Where they are."""

    @abstractmethod
    def load_state_(self, state: Tensor) -> None:
        """Go on from there."""


class TorchRNG(RNG):
    """Torch's own random state: that of a process by itself."""

    def drawing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def state(self) -> Tensor:
        return torch.get_rng_state()

    def load_state_(self, state: Tensor) -> None:
        torch.set_rng_state(state)


class SynchronizedRNG(RNG):
    """A second random state beside torch's own, begun from the same seed on every rank.

    Example:
        >>> rng = SynchronizedRNG(5)
        >>> with rng.drawing():
        ...     a = torch.rand(1)
        >>> b = torch.rand(1)  # of torch's own state, which has not moved
        >>> torch.equal(a, torch.rand(1, generator=torch.Generator().manual_seed(5)))
        True
    """

    def __init__(self, seed: int) -> None:
        self._state = torch.Generator().manual_seed(seed).get_state()

    @contextmanager
    def drawing(self) -> Iterator[None]:
        before = torch.get_rng_state()
        torch.set_rng_state(self._state)
        try:
            yield
        finally:
            self._state = torch.get_rng_state()
            torch.set_rng_state(before)

    def state(self) -> Tensor:
        return self._state

    def load_state_(self, state: Tensor) -> None:
        self._state = state
