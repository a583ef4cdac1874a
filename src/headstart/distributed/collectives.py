"""The processes that work on one model together: one, or as many as Lightning Fabric has been started with.

The mathematics asks for a sum or a mean over all rows and never whether there is a cluster: one process answers with torch's own,
several with what they sum over ranks. Nothing here starts a process, and nothing imports Lightning.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from headstart.distributed.fabric import Fabric, check
from headstart.distributed.rng import Own, Shared, Together
from headstart.errors import HeadstartError

T = TypeVar("T")


class Ranks(ABC):
    """The processes of a run, as one of them sees them."""

    rank: int
    world: int

    @abstractmethod
    def autocast(self) -> AbstractContextManager[Any]:
        """The precision that a net's forward pass was asked to compute in."""

    @abstractmethod
    def sum(self, values: Tensor) -> Tensor:
        """The sum over ranks, the same bits on each."""

    @abstractmethod
    def counts(self, count: int) -> list[int]:
        """Every rank's number."""

    @abstractmethod
    def mean(self, values: Tensor) -> Tensor:
        """The mean over the rows of all ranks."""

    @abstractmethod
    def var(self, values: Tensor) -> Tensor:
        """The variance, divided by their number, over the rows of all ranks."""

    @abstractmethod
    def std(self, values: Tensor) -> Tensor:
        """The root of `var`."""

    @abstractmethod
    def average(self, values: Tensor) -> float:
        """The mean of all numbers on all ranks."""

    @abstractmethod
    def agree(self, value: T) -> T:
        """The first rank's value."""

    @abstractmethod
    def same_(self, *modules: nn.Module) -> None:
        """Give every rank the first one's parameters and buffers."""

    @abstractmethod
    def seed(self, given: int | None) -> int | None:
        """A seed for all: the one given, or else one of the first rank's drawing; a process by itself needs none."""

    @abstractmethod
    def align_(self) -> None:
        """Give every rank the first one's random state: from here they draw the same numbers."""

    @abstractmethod
    def part_(self) -> Together:
        """Give every rank random numbers of its own; returns those that they still share."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What a checkpoint must know of them."""

    @abstractmethod
    def places(self, place: dict[str, Any]) -> dict[str, Any]:
        """Every rank's place in its data, for a checkpoint."""

    @abstractmethod
    def place(self, places: dict[str, Any]) -> dict[str, Any]:
        """This rank's own, of those."""

    @abstractmethod
    def random_state(self) -> dict[str, Any]:
        """The random state of every rank, for a checkpoint."""

    @abstractmethod
    def load_random_state_(self, state: dict[str, Any]) -> None:
        """Take up this rank's own."""

    def total(self, count: int) -> int:
        """The sum of every rank's number."""
        return sum(self.counts(count))

    def lead(self, act: Callable[[], T]) -> T:
        """The first rank acts; all return what it returned, or raise what it raised."""
        outcome: tuple[T | None, HeadstartError | None] = (None, None)
        if self.rank == 0:
            try:
                outcome = (act(), None)
            except HeadstartError as error:
                outcome = (None, error)
            except Exception as error:  # the others must not wait for it
                outcome = (
                    None,
                    HeadstartError(f"The first rank failed: {type(error).__name__}: {error}"),
                )
        value, raised = self.agree(outcome)
        if raised is not None:
            raise raised
        return value  # type: ignore[return-value]


class One(Ranks):
    """A process by itself.

    Example:
        >>> One().mean(torch.tensor([1.0, 3.0])), One().total(7)
        (tensor(2.), 7)
    """

    rank, world = 0, 1

    def __init__(self, fabric: Fabric | None = None) -> None:
        self.fabric = fabric

    def autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.fabric is None else self.fabric.autocast()

    def sum(self, values: Tensor) -> Tensor:
        return values

    def counts(self, count: int) -> list[int]:
        return [count]

    def mean(self, values: Tensor) -> Tensor:
        return values.mean(0)

    def var(self, values: Tensor) -> Tensor:
        return values.var(0, correction=0)

    def std(self, values: Tensor) -> Tensor:
        return values.std(0, correction=0)

    def average(self, values: Tensor) -> float:
        return float(values.mean())

    def agree(self, value: T) -> T:
        return value

    def same_(self, *modules: nn.Module) -> None:
        pass

    def seed(self, given: int | None) -> int | None:
        return given

    def align_(self) -> None:
        pass

    def part_(self) -> Together:
        return Own()

    def identity(self) -> dict[str, Any]:
        return {}

    def places(self, place: dict[str, Any]) -> dict[str, Any]:
        return place

    def place(self, places: dict[str, Any]) -> dict[str, Any]:
        return places

    def random_state(self) -> dict[str, Any]:
        devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return {"random": torch.get_rng_state(), "cuda": devices}

    def load_random_state_(self, state: dict[str, Any]) -> None:
        torch.set_rng_state(state["random"])
        if state["cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["cuda"])


class Many(Ranks):
    """One of several processes that Fabric connects."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, self.rank, self.world = fabric, fabric.global_rank, fabric.world_size

    def autocast(self) -> AbstractContextManager[Any]:
        return self.fabric.autocast()

    def sum(self, values: Tensor) -> Tensor:
        """In the process group that Fabric has made; its own all_reduce would wait at a barrier first."""
        total = values.detach().clone().contiguous()
        torch.distributed.all_reduce(total)
        return total

    def counts(self, count: int) -> list[int]:
        mine = torch.zeros(self.world, dtype=torch.int64, device=self.fabric.device)
        mine[self.rank] = count
        return self.sum(mine).tolist()

    def mean(self, values: Tensor) -> Tensor:
        """In double precision, the rows counted in the same message."""
        sums = values.sum(0, dtype=torch.float64)
        found = self.sum(torch.cat([sums.flatten(), sums.new_tensor([len(values)])]))
        return (found[:-1] / found[-1]).reshape(sums.shape).to(values.dtype)

    def var(self, values: Tensor) -> Tensor:
        return self.mean((values - self.mean(values)).square())

    def std(self, values: Tensor) -> Tensor:
        return self.var(values).sqrt()

    def average(self, values: Tensor) -> float:
        return float(self.mean(values.flatten()))

    def agree(self, value: T) -> T:
        return self.fabric.broadcast(value)

    def same_(self, *modules: nn.Module) -> None:
        for kind in self._kinds(modules):
            flat = torch.cat([part.detach().flatten() for part in kind])
            found = self.sum(flat if self.rank == 0 else torch.zeros_like(flat))
            with torch.no_grad():
                for part, values in zip(
                    kind, found.split([part.numel() for part in kind]), strict=True
                ):
                    part.copy_(values.view_as(part))

    @staticmethod
    def _kinds(modules: Iterable[nn.Module]) -> list[list[Tensor]]:
        """Parameters and buffers by type."""
        kinds: dict[torch.dtype, list[Tensor]] = {}
        for module in modules:
            for part in (*module.parameters(), *module.buffers()):
                kinds.setdefault(part.dtype, []).append(part)
        return list(kinds.values())

    def seed(self, given: int | None) -> int | None:
        return self.agree(int(torch.randint(2**62, ())) if given is None else given)

    def align_(self) -> None:
        torch.set_rng_state(self.agree(torch.get_rng_state()))
        if self._on_cuda():
            torch.cuda.set_rng_state(self.agree(torch.cuda.get_rng_state()))

    def _on_cuda(self) -> bool:
        return self.fabric.device.type == "cuda"

    def part_(self) -> Together:
        seed = self.agree(int(torch.randint(2**62, ())))
        torch.manual_seed(seed + 1 + self.rank)
        return Shared(seed)

    def identity(self) -> dict[str, Any]:
        return {"ranks": self.world}

    def places(self, place: dict[str, Any]) -> dict[str, Any]:
        return {
            "began": self._every(place["began"]),
            "taken": self.counts(place["taken"]),
            "passes": self.counts(place["passes"]),
        }

    def place(self, places: dict[str, Any]) -> dict[str, Any]:
        mine = {name: places[name][self.rank] for name in ("began", "taken", "passes")}
        return {**mine, "began": mine["began"].clone()}

    def random_state(self) -> dict[str, Any]:
        """Of the processor, and of the one device that each rank has."""
        devices = self._every(torch.cuda.get_rng_state()).unbind() if self._on_cuda() else ()
        return {"random": self._every(torch.get_rng_state()), "cuda": list(devices)}

    def _every(self, mine: Tensor) -> Tensor:
        every = torch.zeros(self.world, len(mine), dtype=mine.dtype, device=self.fabric.device)
        every[self.rank] = mine.to(every.device)
        return self.sum(every).cpu()

    def load_random_state_(self, state: dict[str, Any]) -> None:
        torch.set_rng_state(state["random"][self.rank].clone())
        if state["cuda"] and self._on_cuda():
            torch.cuda.set_rng_state(state["cuda"][self.rank].clone())


ONE = One()


def ranks_of(fabric: Fabric | None, model: nn.Module) -> Ranks:
    """The processes that `fabric` stands for, if it suits the model; None is this one alone."""
    if fabric is None:
        return ONE
    check(fabric, model)
    return One(fabric) if fabric.world_size == 1 else Many(fabric)
