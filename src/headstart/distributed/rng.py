"""Batch after batch without end, and the random numbers that their order is drawn from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from headstart.errors import HeadstartError

T = TypeVar("T")


class Together(ABC):
    """The random numbers that ranks share, for what they must draw alike: the order of the data."""

    @abstractmethod
    def drawing(self) -> AbstractContextManager[None]:
        """Within this scope torch draws from them."""

    @abstractmethod
    def state(self) -> Tensor:
        """Where they are."""

    @abstractmethod
    def load_state_(self, state: Tensor) -> None:
        """Go on from there."""


class Own(Together):
    """Of one process alone: torch's own random state."""

    def drawing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def state(self) -> Tensor:
        return torch.get_rng_state()

    def load_state_(self, state: Tensor) -> None:
        torch.set_rng_state(state)


class Shared(Together):
    """A second random state beside torch's own.

    Example:
        >>> shared = Shared(5)
        >>> with shared.drawing():
        ...     a = torch.rand(1)
        >>> b = torch.rand(1)  # torch's own stream has not moved on, nor does it move the shared one
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


class Stream(Generic[T]):
    """Batch after batch, pass after pass, from a place that can be told and found again.

    A pass is drawn from torch's random state when it begins, so that state and the number of batches taken are the place.
    """

    def __init__(
        self,
        begin: Callable[[], Iterator[T]],
        together: Together | None = None,
        announce: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.begin, self.together, self.announce = begin, together or Own(), announce
        self.taken, self.passes = 0, -1
        self.began: Tensor | None = None
        self._pass: Iterator[T] | None = None

    def __iter__(self) -> Stream[T]:
        return self

    def __next__(self) -> T:
        while True:
            if self._pass is None:
                self.began, self.taken = self.together.state(), 0
                self.passes += 1
                self._pass = self._open()
            with self.together.drawing():
                for batch in self._pass:
                    self.taken += 1
                    return batch
            self._pass = None

    def _open(self) -> Iterator[T]:
        self.announce(self.passes)
        with self.together.drawing():
            return self.begin()

    def place(self) -> dict[str, Any]:
        """Where in the data the next batch is."""
        return {"began": self.began, "taken": self.taken, "passes": self.passes}

    def seek_(self, place: dict[str, Any]) -> None:
        """Go there; the random state is left as the pass leaves it, the caller's to put right."""
        self.began, self._pass, self.passes = place["began"], None, int(place.get("passes", 0))
        if self.began is not None:
            self.together.load_state_(self.began)
            self.taken, self._pass = 0, self._open()
            with self.together.drawing():
                while self.taken < int(place["taken"]):
                    if next(self._pass, None) is None:
                        raise HeadstartError(
                            f"A pass has {self.taken} batches; the state is that after {place['taken']}."
                        )
                    self.taken += 1
