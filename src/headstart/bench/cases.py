"""What is timed: a net, its inputs, rows of a batch and samples."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headstart.errors import unknown
from headstart.kernels.random_state import seeded
from headstart.models import create

NUM_DATA, CLASSES = 60_000, 10


@dataclass(frozen=True)
class Case:
    """One training step: `batch` rows, each through `samples` draws of the net.

    Example:
        >>> case = CASES["lenet"]
        >>> case.data()[0].shape, case.samples
        (torch.Size([64, 1, 28, 28]), 16)
    """

    model: str
    shape: tuple[int, ...]
    samples: int = 16
    batch: int = 64

    @property
    def bytes(self) -> int:
        """Of the batch's inputs."""
        return 4 * self.batch * math.prod(self.shape)

    def net(self) -> nn.Module:
        """The plain net, always the same; the random numbers of others go on as they were."""
        with seeded(0):
            return create(self.model, self.shape, CLASSES)

    def data(self, times: int = 1) -> tuple[Tensor, Tensor]:
        """A batch, or several copies of it one after another."""
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(self.batch, *self.shape, generator=generator)
        y = torch.randint(CLASSES, (self.batch,), generator=generator)
        return x.repeat(times, *[1] * len(self.shape)), y.repeat(times)


CASES = {
    "mlp-5x100": Case("mlp-5x100", (784,)),
    "mlp-1x100": Case("mlp-1x100", (9,)),
    "lenet": Case("lenet", (1, 28, 28)),
    "vgg16": Case("vgg16", (3, 32, 32), samples=1),
}


def make_case(name: str) -> Case:
    """A case by name."""
    if name not in CASES:
        raise unknown("case", name, CASES)
    return CASES[name]
