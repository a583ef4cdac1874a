"""The processes that train one model: one, or as many as Lightning Fabric was launched with.

Nothing here starts a process, and nothing imports Lightning.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from headstart.distributed.fabric import Fabric, check_fabric
from headstart.distributed.rng import RNG, SynchronizedRNG, TorchRNG
from headstart.distributed.rows import LOCAL_ROWS, AllRows, ShardedRows
from headstart.errors import HeadstartError
from headstart.kernels.random_state import devices_of, load_rng_state_, rng_state, seed_

Value = TypeVar("Value")


class ProcessGroup(ABC):
    """A group of processes, as one of its ranks sees it.

    Attributes:
        rank: the number of this process, from 0.
        size: how many processes there are.
        rows: sums and means over the rows that all ranks hold together.
    """

    rank: int
    size: int
    rows: AllRows

    @property
    def is_alone(self) -> bool:
        """Whether there is one process only."""
        return self.size == 1

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files and draws progress bars."""
        return self.rank == 0

    @abstractmethod
    def autocast(self) -> AbstractContextManager[Any]:
        """The precision that a net's forward pass computes in."""

    @abstractmethod
    def counts(self, count: int) -> list[int]:
        """Every rank's number."""

    @abstractmethod
    def broadcast(self, value: Value) -> Value:
        """The first rank's value."""

    @abstractmethod
    def broadcast_(self, *modules: nn.Module) -> None:
        """Give every rank the first one's parameters and buffers."""

    @abstractmethod
    def common_seed(self, seed: int | None) -> int | None:
        """A seed for all ranks: the one given, or one that the first rank draws.

        A process by itself needs none.
        """

    @abstractmethod
    def synchronize_rng_(self) -> None:
        """Give every rank the first one's random state: from here they draw the same numbers."""

    @abstractmethod
    def separate_rng_(self) -> RNG:
        """Give every rank random numbers of its own.

        Returns:
            Random numbers that they still have in common.
        """

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What a checkpoint must know of the group."""

    @abstractmethod
    def gather_position(self, position: dict[str, Any]) -> dict[str, Any]:
        """Every rank's position in its data, for a checkpoint."""

    @abstractmethod
    def own_position(self, positions: dict[str, Any]) -> dict[str, Any]:
        """This rank's own, of those."""

    @abstractmethod
    def random_state(self, model: nn.Module) -> dict[str, Any]:
        """The random state of every rank and of the devices of its model, for a checkpoint."""

    @abstractmethod
    def load_random_state_(self, state: dict[str, Any], model: nn.Module) -> None:
        """Take up this rank's own."""

    def any(self, flag: bool) -> bool:
        """Whether it holds on any rank."""
        return self.rows.total(int(flag)) > 0

    def run_on_first(self, act: Callable[[], Value]) -> Value:
        """The first rank acts; all return what it returned, or raise what it raised."""
        outcome: tuple[Value | None, HeadstartError | None] = (None, None)
        if self.is_first:
            try:
                outcome = (act(), None)
            except HeadstartError as error:
                outcome = (None, error)
            except Exception as error:
                # The others must not wait for it.
                failure = f"The first rank failed: {type(error).__name__}: {error}"
                outcome = (None, HeadstartError(failure))
        value, raised = self.broadcast(outcome)
        if raised is not None:
            raise raised
        return value  # type: ignore[return-value]


class SingleProcess(ProcessGroup):
    """A process by itself.

    Example:
        >>> SingleProcess().is_alone, SingleProcess().broadcast("mine")
        (True, 'mine')
    """

    rank, size = 0, 1
    rows = LOCAL_ROWS

    def __init__(self, fabric: Fabric | None = None) -> None:
        self.fabric = fabric

    def autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.fabric is None else self.fabric.autocast()

    def counts(self, count: int) -> list[int]:
        return [count]

    def broadcast(self, value: Value) -> Value:
        return value

    def broadcast_(self, *modules: nn.Module) -> None:
        pass

    def common_seed(self, seed: int | None) -> int | None:
        return seed

    def synchronize_rng_(self) -> None:
        pass

    def separate_rng_(self) -> RNG:
        return TorchRNG()

    def identity(self) -> dict[str, Any]:
        return {}

    def gather_position(self, position: dict[str, Any]) -> dict[str, Any]:
        return position

    def own_position(self, positions: dict[str, Any]) -> dict[str, Any]:
        return positions

    def random_state(self, model: nn.Module) -> dict[str, Any]:
        own, *devices = map(rng_state, devices_of(model))
        return {"random": own, "cuda": devices}

    def load_random_state_(self, state: dict[str, Any], model: nn.Module) -> None:
        states = [state["random"], *state["cuda"]]
        # Training may go on with fewer devices than it began with, or more.
        for device, each in zip(devices_of(model), states, strict=False):
            load_rng_state_(device, each)


class FabricGroup(ProcessGroup):
    """One of several processes that Fabric connects."""

    rows: ShardedRows

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, self.rank, self.size = fabric, fabric.global_rank, fabric.world_size
        self.rows = ShardedRows(self.rank, self.size, fabric.device)

    def autocast(self) -> AbstractContextManager[Any]:
        return self.fabric.autocast()

    def counts(self, count: int) -> list[int]:
        return self.rows.counts(count)

    def broadcast(self, value: Value) -> Value:
        return self.fabric.broadcast(value)

    def broadcast_(self, *modules: nn.Module) -> None:
        for kind in self._by_dtype(modules):
            flat = torch.cat([tensor.detach().flatten() for tensor in kind])
            found = self.rows.sum(flat if self.is_first else torch.zeros_like(flat))
            values = found.split([tensor.numel() for tensor in kind])
            with torch.no_grad():
                for tensor, value in zip(kind, values, strict=True):
                    tensor.copy_(value.view_as(tensor))

    @staticmethod
    def _by_dtype(modules: Iterable[nn.Module]) -> list[list[Tensor]]:
        """Parameters and buffers, those of one dtype together."""
        kinds: dict[torch.dtype, list[Tensor]] = {}
        for module in modules:
            for tensor in (*module.parameters(), *module.buffers()):
                kinds.setdefault(tensor.dtype, []).append(tensor)
        return list(kinds.values())

    def common_seed(self, seed: int | None) -> int | None:
        return self.broadcast(int(torch.randint(2**62, ())) if seed is None else seed)

    def synchronize_rng_(self) -> None:
        for device in devices_of(self.fabric.device):
            load_rng_state_(device, self.broadcast(rng_state(device)))

    def separate_rng_(self) -> RNG:
        seed = self.broadcast(int(torch.randint(2**62, ())))
        seed_(seed + 1 + self.rank, self.fabric.device)
        return SynchronizedRNG(seed)

    def identity(self) -> dict[str, Any]:
        return {"ranks": self.size}

    def gather_position(self, position: dict[str, Any]) -> dict[str, Any]:
        return {
            "began": self._stack(position["began"]),
            "taken": self.counts(position["taken"]),
            "passes": self.counts(position["passes"]),
        }

    def own_position(self, positions: dict[str, Any]) -> dict[str, Any]:
        mine = {name: positions[name][self.rank] for name in ("began", "taken", "passes")}
        return {**mine, "began": mine["began"].clone()}

    def random_state(self, model: nn.Module) -> dict[str, Any]:
        """Of the processor, and of the one device that each rank has."""
        own, *device = map(rng_state, devices_of(self.fabric.device))
        every = [state for each in device for state in self._stack(each).unbind()]
        return {"random": self._stack(own), "cuda": every}

    def _stack(self, mine: Tensor) -> Tensor:
        """Every rank's vector, one below the other."""
        every = torch.zeros(self.size, len(mine), dtype=mine.dtype, device=self.fabric.device)
        every[self.rank] = mine.to(every.device)
        return self.rows.sum(every).cpu()

    def load_random_state_(self, state: dict[str, Any], model: nn.Module) -> None:
        for device in devices_of(self.fabric.device):
            every = state["random" if device.type == "cpu" else "cuda"]
            if len(every):
                load_rng_state_(device, every[self.rank].clone())


SINGLE_PROCESS = SingleProcess()


def group_of(fabric: Fabric | None, model: nn.Module) -> ProcessGroup:
    """The processes that `fabric` connects; None is this one alone.

    Args:
        fabric: a `lightning.fabric.Fabric` that has been launched, or None.
        model: the model that they train.

    Raises:
        HeadstartError: where the two do not suit each other.
    """
    if fabric is None:
        return SINGLE_PROCESS
    check_fabric(fabric, model)
    return SingleProcess(fabric) if fabric.world_size == 1 else FabricGroup(fabric)
