"""The cases of step_sizes.py: a net, its training rows and its validation rows, no test row."""

from __future__ import annotations

import gzip
import math
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import headstart as hs
from headstart import data, models
from headstart.models.vgg16 import FILTERS


@dataclass(frozen=True)
class Case:
    """A net by name, its data, and how it is trained and scored."""

    net: str
    source: str
    samples: int = 16
    sampler: str = "local"
    rows: int | None = None
    val_rows: int = 1000
    val_samples: int = 16


CASES: dict[str, Case] = {
    "mlp-5x100/mnist": Case("mlp-5x100", "mnist", val_rows=2000),
    "mlp-5x100-tanh/mnist": Case("mlp-5x100-tanh", "mnist", val_rows=2000),
    "mlp-10x1000/mnist": Case("mlp-10x1000", "mnist", samples=4, val_rows=500, val_samples=8),
    "mlp-10x1000-tanh/mnist": Case(
        "mlp-10x1000-tanh", "mnist", samples=4, val_rows=500, val_samples=8
    ),
    "mlp-10x300/mnist": Case("mlp-10x300", "mnist", samples=4, val_rows=1000, val_samples=8),
    "lenet/mnist": Case("lenet", "mnist", samples=4, val_rows=1000),
    "lenet/cifar10": Case("lenet", "cifar10", samples=4, val_rows=1000),
    "lenet-20-50/mnist": Case("lenet-20-50", "mnist", samples=4, val_rows=500),
    "resnet/cifar10": Case("resnet", "cifar10", samples=2, val_rows=400, val_samples=8),
    "vgg-3-8/cifar10": Case(
        "vgg-3-8", "cifar10", samples=1, sampler="weights", val_rows=400, val_samples=8
    ),
    "alexnet/cifar10": Case(
        "alexnet", "cifar10", samples=1, sampler="weights", val_rows=400, val_samples=8
    ),
    "vgg16/cifar10": Case(
        "vgg16", "cifar10", samples=1, sampler="weights", val_rows=300, val_samples=4
    ),
    "mlp-5x100/protein": Case("mlp-5x100", "protein", val_rows=2000),
    "mlp-1x100/powerplant": Case("mlp-1x100", "powerplant", val_rows=900),
    "mlp-5x100/powerplant": Case("mlp-5x100", "powerplant", val_rows=900),
    "mlp-5x100/spam": Case("mlp-5x100", "spam", val_rows=800),
    "mlp-5x100/eeg": Case("mlp-5x100", "eeg", val_rows=2000),
    "mlp-5x100/credit": Case("mlp-5x100", "credit", val_rows=200),
    "mlp-1x50/energy": Case("mlp-1x50", "energy", val_rows=77, val_samples=64),
    "mlp-1x50/concrete": Case("mlp-1x50", "concrete", val_rows=103, val_samples=64),
    "mlp-1x50/diabetes": Case("mlp-1x50", "diabetes", val_rows=88, val_samples=64),
    "mlp-2x100/concrete": Case("mlp-2x100", "concrete", val_rows=103, val_samples=64),
}


@dataclass(frozen=True, eq=False)
class Rows:
    """Standardized training and validation rows, and what turns the NLL into target units."""

    train: Any
    start: Any
    num_data: int
    shape: tuple[int, ...]
    validation: tuple[Tensor, Tensor]
    classes: int | None
    nll_offset: float


@cache
def published(name: str) -> tuple[Tensor, Tensor, set[int]]:
    """Inputs and target of a published table, and the rows that its first five splits test."""
    folder = Path(os.environ["HEADSTART_DATA"]) / name
    with gzip.open(folder / "data.txt.gz", "rt") as file:
        table = torch.tensor(np.loadtxt(file), dtype=torch.float32)
    splits = np.load(folder / "splits.npz")
    tested = {int(row) for index in range(5) for row in splits[f"test_{index}"]}
    return table[:, :-1], table[:, -1:], tested


@cache
def rows_of(source: str, count: int | None, val_rows: int, seed: int) -> Rows:
    """Training and validation rows of a data set; no test row is among them."""
    if source in ("energy", "concrete"):
        x, y, tested = published(source)
    else:
        dataset = data.load(source)
        x, y, tested = dataset.x, dataset.y, set()
        if dataset.test is None:
            parts = data.split(dataset, 0)  # its test rows stay unseen
            x, y = parts.x_train, parts.y_train
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1000 + seed))
    allowed = torch.tensor([int(row) not in tested for row in order])
    held = order[allowed][:val_rows]
    keep = torch.ones(len(x), dtype=torch.bool)
    keep[held] = False
    train = torch.nonzero(keep).flatten()[: count or len(x)]
    part = data.splits.Split(x[train], y[train], x[held], y[held])
    targets = y.is_floating_point()
    scaling = data.fit_scaling(part, targets)
    validation = scaling.inputs(part.x_test), scaling.targets(part.y_test)
    offset = math.log(float(scaling.y_scale)) if targets else 0.0
    classes = None if targets else int(y.max()) + 1
    if x.dtype == torch.uint8:
        fed: Any = data.Images(part.x_train, part.y_train, scaling, batch_size=64)
        start: Any = data.Images(
            part.x_train, part.y_train, scaling, batch_size=4096, channels_last=True
        )
    else:
        fed = start = (scaling.inputs(part.x_train), scaling.targets(part.y_train))
    return Rows(fed, start, len(train), tuple(x.shape[1:]), validation, classes, offset)


def network(name: str, shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A plain net; `vgg-3-8` is VGG16 with three eighths of its filters."""
    if name != "vgg-3-8":
        return models.create(name, shape, outputs)
    layers: list[nn.Module] = []
    channels = shape[0]
    for block in FILTERS:
        for filters in block:
            layers += [nn.Conv2d(channels, filters * 3 // 8, 3, padding=1), nn.ReLU()]
            channels = filters * 3 // 8
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, outputs))


def started(
    starts: Path, name: str, case: Case, rows: Rows, init: str, prior: Any, seed: int
) -> tuple[nn.Module, hs.likelihoods.Likelihood]:
    """The initialized net and likelihood, from a file where an earlier run has left them there."""
    outputs = rows.classes or 1
    torch.manual_seed(seed)
    model = hs.bayesianize(network(case.net, rows.shape, outputs), prior=prior)
    likelihood = hs.Categorical(rows.classes) if rows.classes else hs.Gaussian()
    kept = starts / f"{name.replace('/', '_')}-{init}-{prior}-{seed}.pt"
    both = nn.ModuleList([model, likelihood])
    if kept.exists():
        both.load_state_dict(torch.load(kept))
    else:
        hs.initialize_(model, init, likelihood, rows.start, seed=seed)
        starts.mkdir(parents=True, exist_ok=True)
        torch.save(both.state_dict(), kept)
    return model, likelihood
