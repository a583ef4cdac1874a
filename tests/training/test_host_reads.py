"""A training step waits for the device once: where the loss is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import headstart as hs

READS = {"_local_scalar_dense", "nonzero", "equal", "masked_select", "_unique2", "allclose"}
"""Operations that a device cannot answer without being waited for."""


class Fetched(TorchFunctionMode):
    """Sees what is copied to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[Tensor] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if func in (Tensor.cpu, Tensor.tolist, Tensor.numpy):
            self.copies.append(found if isinstance(found, Tensor) else torch.empty(0))
        return found


class Waits(TorchDispatchMode):
    """Counts what is asked of tensors that were not copied to the host before."""

    def __init__(self, fetched: Fetched) -> None:
        super().__init__()
        self.fetched, self.count = fetched, 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func.overloadpacket.__name__ in READS:
            here = args[0].untyped_storage().data_ptr()
            known = [copy.untyped_storage().data_ptr() for copy in self.fetched.copies]
            self.count += here not in known
        return func(*args, **(kwargs or {}))


def waits_per_step(lik: hs.Likelihood, y: Tensor, outputs: int, **options: Any) -> float:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, outputs))
    run = iter(
        hs.steps(
            hs.bayesianize(net), lik, (torch.randn(96, 5), y), steps=12, batch_size=32, **options
        )
    )
    # The first measure the inputs and ask what the net does with rows.
    for _ in range(4):
        next(run)
    with Fetched() as fetched, Waits(fetched) as waits:
        for _ in range(4):
            next(run)
    return (waits.count + len(fetched.copies)) / 4


@pytest.mark.parametrize(
    "options",
    [{}, {"optimizer": "adam"}, {"optimizer": "adam", "clip": 1.0}, {"lr_schedule": "cosine"}],
)
def test_a_step_reads_the_loss_and_nothing_else(options: dict[str, Any]) -> None:
    assert waits_per_step(hs.Gaussian(), torch.randn(96), 1, **options) == 1


def test_labels_with_a_range_are_checked_at_every_step() -> None:
    labels = torch.randint(3, (96,))
    assert waits_per_step(hs.Categorical(3), labels, 3) == 2
    assert waits_per_step(hs.Poisson(), labels, 1) == 2
