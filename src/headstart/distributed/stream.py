"""An endless stream of batches, whose position can be saved and found again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from torch import Tensor

from headstart.distributed.rng import RNG, TorchRNG
from headstart.errors import HeadstartError

Item = TypeVar("Item")


class BatchStream(Generic[Item]):
    """Batch after batch, pass after pass.

    A pass takes its order from a random state when it begins.
    So that state and the number of batches taken since are the position.

    Args:
        begin: starts a pass over the data.
        rng: what the order of a pass is drawn from; torch's own state by default.
        announce: called with the number of each pass before it begins.
    """

    def __init__(
        self,
        begin: Callable[[], Iterator[Item]],
        rng: RNG | None = None,
        announce: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.begin, self.rng, self.announce = begin, rng or TorchRNG(), announce
        self.taken, self.passes = 0, -1
        self.began: Tensor | None = None
        self._pass: Iterator[Item] | None = None

    def __iter__(self) -> BatchStream[Item]:
        return self

    def __next__(self) -> Item:
        while True:
            if self._pass is None:
                self.began, self.taken = self.rng.state(), 0
                self.passes += 1
                self._pass = self._open()
            with self.rng.drawing():
                for batch in self._pass:
                    self.taken += 1
                    return batch
            self._pass = None

    def _open(self) -> Iterator[Item]:
        self.announce(self.passes)
        with self.rng.drawing():
            return self.begin()

    def position(self) -> dict[str, Any]:
        """Where in the data the next batch is."""
        return {"began": self.began, "taken": self.taken, "passes": self.passes}

    def seek_(self, position: dict[str, Any]) -> None:
        """Go there; the random state is left as the pass leaves it, the caller's to restore."""
        self.began, self._pass = position["began"], None
        self.passes = int(position.get("passes", 0))
        if self.began is not None:
            self.rng.load_state_(self.began)
            self.taken, self._pass = 0, self._open()
            with self.rng.drawing():
                self._skip(self._pass, int(position["taken"]))

    def _skip(self, batches: Iterator[Item], count: int) -> None:
        while self.taken < count:
            if next(batches, None) is None:
                raise HeadstartError(
                    f"A pass has {self.taken} batches; the state is that after {count}."
                )
            self.taken += 1
