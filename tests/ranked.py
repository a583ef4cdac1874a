"""What two ranks do in the tests.

Each scenario takes a Fabric, or None for one process, and returns tensors and numbers.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
)

import headstart as hs
from headstart.batching import Batches, Sharded
from headstart.distributed.collectives import group_of
from headstart.distributed.fabric import Fabric

Found = dict[str, Any]
ROWS = 701
"""Not a multiple of two, nor of a batch."""


def rows(kind: str = "real") -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, 6, generator=generator, dtype=torch.float64)
    y = x.sin().sum(1, keepdim=True) + 0.1 * torch.randn(
        ROWS, 1, generator=generator, dtype=torch.float64
    )
    if kind == "images":
        return torch.randn(ROWS, 1, 10, 10, generator=generator, dtype=torch.float64), (
            y[:, 0] > 0
        ).long()
    return x, (y[:, 0] > 0).long() + (y[:, 0] > 1).long() if kind == "classes" else y


def dense(outputs: int, width: int = 30, members: int = 1) -> nn.Module:
    torch.manual_seed(3)
    layers = [
        nn.Linear(6, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.Tanh(),
        nn.Linear(width, outputs),
    ]
    return hs.bayesianize(nn.Sequential(*layers).double(), members=members)


class Tied(nn.Module):
    """Two layers with one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6, bias=False), nn.Linear(6, 6)
        self.second.weight, self.last = self.first.weight, nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.second(self.first(x).tanh()).tanh())


def tied() -> nn.Module:
    torch.manual_seed(3)
    with warnings.catch_warnings():
        # Of the bias that is not shared.
        warnings.simplefilter("ignore")
        return hs.bayesianize(Tied().double())


def convolutional() -> nn.Module:
    torch.manual_seed(3)
    layers = [
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, groups=2),
        nn.ReLU(),
        nn.Flatten(),
    ]
    return hs.bayesianize(nn.Sequential(*layers, nn.Linear(24, 2)).double())


class Lines(IterableDataset):  # type: ignore[type-arg]
    """A stream without a length; of its rows every `step`-th from `start` on."""

    def __init__(self, x: Tensor, y: Tensor, start: int = 0, step: int = 1) -> None:
        self.rows = list(zip(x[start::step], y[start::step], strict=True))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.rows)


def state(*modules: nn.Module) -> Found:
    return {f"{i}.{k}": v.clone() for i, m in enumerate(modules) for k, v in m.state_dict().items()}


STARTS: dict[str, tuple[Callable[[], nn.Module], Callable[[], hs.Likelihood], str, str, Found]] = {
    "gaussian": (lambda: dense(1), hs.Gaussian, "real", "iblm", {}),
    "categorical": (lambda: dense(3), lambda: hs.Categorical(3), "classes", "iblm", {"rows": 400}),
    "poisson": (lambda: dense(1), hs.Poisson, "counts", "iblm", {"rows": 400}),
    "heteroscedastic": (lambda: dense(2), hs.Heteroscedastic, "real", "iblm", {"rows": 400}),
    "dual": (
        lambda: dense(1, width=120),
        hs.Gaussian,
        "real",
        "iblm",
        {"rows": 50, "last_rows": 60},
    ),
    "images": (convolutional, lambda: hs.Categorical(2), "images", "iblm", {"patches": 500}),
    "paper": (lambda: dense(1), hs.Gaussian, "real", "iblm-paper", {}),
    "lsuv": (lambda: dense(1), hs.Gaussian, "real", "lsuv", {}),
    "laplace": (lambda: dense(1), hs.Gaussian, "real", "laplace", {"rows": 200}),
    "members": (lambda: dense(1, members=3), hs.Gaussian, "real", "iblm", {"rows": 400}),
    "tied": (tied, hs.Gaussian, "real", "iblm", {"rows": 400}),
}


def start(
    fabric: Fabric | None, name: str, data: Any = None, net: nn.Module | None = None, **more: Any
) -> Found:
    """The posterior that an initializer places."""
    build, likelihood, kind, initializer, options = STARTS[name]
    model, lik = net or build(), likelihood()
    x, y = rows("real" if kind == "counts" else kind)
    y = (3 * y).abs().round() if kind == "counts" else y
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = hs.initialize_(
            model, initializer, lik, data or (x, y), seed=5, fabric=fabric, **options, **more
        )
    return {**state(model, lik), "expected_nll": report.expected_nll}


def start_from_a_sampler(fabric: Fabric | None) -> Found:
    """In order, half of each batch on each rank."""
    data = TensorDataset(*(part[:700] for part in rows()))
    if fabric is None:
        return start(None, "gaussian", DataLoader(data, batch_size=100), rows=400)
    sampler = DistributedSampler(data, fabric.world_size, fabric.global_rank, shuffle=False)
    return start(
        fabric,
        "gaussian",
        DataLoader(data, batch_size=100 // fabric.world_size, sampler=sampler),
        rows=400,
    )


def start_from_a_stream(fabric: Fabric | None) -> Found:
    """Rank by rank its own lines; the last batch of the one is longer than that of the other."""
    if fabric is None:
        return _start_with_length(None, DataLoader(Lines(*rows()), batch_size=100))
    mine = Lines(*rows(), fabric.global_rank, fabric.world_size)
    return _start_with_length(
        fabric, Sharded(DataLoader(mine, batch_size=100 // fabric.world_size))
    )


def _start_with_length(fabric: Fabric | None, data: Any) -> Found:
    model, lik = dense(1), hs.Gaussian()
    hs.initialize_(model, "iblm", lik, data, seed=5, num_data=ROWS, fabric=fabric, rows=400)
    return state(model, lik)


def start_in_float32(fabric: Fabric | None) -> Found:
    x, y = (part.float() for part in rows())
    return start(fabric, "gaussian", (x, y), dense(1).float())


def nearly_certain(members: int) -> nn.Module:
    """A net with next to no noise, so that training is the same wherever noise comes from."""
    model = dense(1, members=members)
    with torch.no_grad():
        for index in range(1, members):
            with hs.member(model, index):
                for layer in hs.bayesian_layers(model).values():
                    layer.posterior.mean.mul_(1 + 0.1 * index)
    for layer in hs.bayesian_layers(model).values():
        torch.nn.init.constant_(layer.posterior.logvar, -60.0)
    return model


def train_without_noise(fabric: Fabric | None, members: int = 1) -> Found:
    """Batches in a given order, of 7 to 20 rows: shards are not equal."""
    x, y = rows()
    batches = [*zip(x[:300].split(20), y[:300].split(20), strict=True), (x[300:307], y[300:307])]
    model, lik = nearly_certain(members), hs.Gaussian()
    history = hs.fit(
        model,
        lik,
        batches,
        steps=40,
        clip=50.0,
        lr_schedule="cosine",
        seed=1,
        progress=False,
        fabric=fabric,
    )
    last = history.steps[-1]
    return {**state(model, lik), "nelbo": last.nelbo, "nll": last.nll, "kl": last.kl}


def train_by_curvature(fabric: Fabric | None) -> Found:
    """Noisy K-FAC through the mean network, with the labels of the data: nothing is drawn."""
    x, y = rows()
    batches = [*zip(x[:300].split(20), y[:300].split(20), strict=True), (x[300:307], y[300:307])]
    model, lik = normal(), hs.Gaussian()
    method = hs.NoisyKFAC(fisher="empirical", sampler="mean", factors_every=3, inverses_every=6)
    history = hs.fit(
        model, lik, batches, steps=20, inference=method, seed=1, progress=False, fabric=fabric
    )
    return {**state(model, lik), "nelbo": history.steps[-1].nelbo}


def normal() -> nn.Module:
    torch.manual_seed(3)
    layers = [nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)]
    return hs.bayesianize(nn.Sequential(*layers).double(), posterior="matrix_normal")


class Normed(nn.Module):
    """A net with a moving average."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)))


def train_with_moving_averages(fabric: Fabric) -> Found:
    torch.manual_seed(3)
    model, lik = hs.bayesianize(Normed().double()), hs.Gaussian()
    hs.fit(model, lik, rows(), steps=3, seed=1, progress=False, fabric=fabric)
    return state(model)


def train(fabric: Fabric | None, seed: int) -> Found:
    """The objective on all rows after training with batches of 32, all ranks together."""
    x, y = rows()
    model, lik = dense(1), hs.Gaussian()
    hs.initialize_(model, "xavier")
    history = hs.fit(
        model,
        lik,
        (x, y),
        steps=80,
        lr=5e-3,
        batch_size=32,
        samples=4,
        seed=seed,
        progress=False,
        fabric=fabric,
    )
    torch.manual_seed(0)
    with torch.no_grad():
        end = hs.nelbo(model, lik, x, y, num_data=ROWS, samples=64)
    return {
        "nelbo": float(end.value),
        "kl": float(end.kl),
        "steps": [step.nelbo for step in history.steps],
    }


def train_from(fabric: Fabric | None, kind: str) -> Found:
    """Batches of 32 from a sampler, a stream that every rank has, a sharded one; other methods."""
    x, y = rows()
    options: Found = {
        "steps": 40,
        "samples": 2,
        "lr": 5e-3,
        "seed": 2,
        "progress": False,
        "fabric": fabric,
    }
    model, lik, data = dense(1), hs.Gaussian(), TensorDataset(x, y)
    rank, world = (0, 1) if fabric is None else (fabric.global_rank, fabric.world_size)
    if kind == "sampler":
        batches: Any = DataLoader(
            data, 32 // world, sampler=DistributedSampler(data, world, rank, seed=4)
        )
    elif kind == "stream":
        batches, options["num_data"] = DataLoader(Lines(x, y), 32), ROWS
    elif kind == "divided stream":
        batches, options["num_data"] = (
            Sharded(DataLoader(Lines(x, y, rank, world), 32 // world)),
            ROWS,
        )
    elif kind == "noisy-kfac":
        batches, options["inference"], model = (x, y), kind, normal()
    elif kind == "tied":
        # By local draws, each rank's of its own rows.
        batches, model = (x, y), tied()
    else:
        batches, options["inference"] = (x, y), kind
        model = hs.MCDropout().convert(
            nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 1)).double()
        )
    if kind != "mc-dropout":
        hs.initialize_(model, "iblm", lik, (x, y))
    history = hs.fit(model, lik, batches, **options)
    return {**state(model, lik), "nelbo": [step.nelbo for step in history.steps]}


def foretell(fabric: Fabric | None) -> Found:
    """Draws of an odd number of rows, of a single one, and metrics."""
    x, y = rows()
    model, lik = dense(1), hs.Gaussian()
    hs.initialize_(model, "iblm", lik, (x, y))
    options: Found = {"samples": 20, "seed": 3, "fabric": fabric}
    # As training leaves ranks behind.
    torch.manual_seed(0 if fabric is None else fabric.global_rank)
    return {
        "weights": hs.predict(model, lik, x[:111], sampler="weights", **options).draws,
        "local": hs.predict(model, lik, x[:111], **{**options, "samples": 400}).draws,
        "one row": hs.predict(model, lik, x[5:6], sampler="weights", **options).draws,
        "unseeded": [
            hs.predict(model, lik, x[:4], samples=3, fabric=fabric).draws for _ in range(2)
        ],
        "scores": hs.evaluate(model, lik, (x, y), sampler="weights", **options),
        "members": hs.predict(dense(1, members=3), lik, x[:31], sampler="weights", **options).draws,
        "loader": hs.evaluate(
            model,
            lik,
            DataLoader(TensorDataset(x, y), 50, shuffle=True),
            sampler="weights",
            **options,
        ),
    }


def train_with_validation(fabric: Fabric | None, folder: Path) -> Found:
    """Training with validation and checkpoints; then again from the first of them."""
    x, y = rows()
    options: Found = {
        "steps": 40,
        "every": 20,
        "validation": (x[600:], y[600:]),
        "seed": 1,
        "progress": False,
    }
    options.update(validation_samples=8, checkpoint=folder, fabric=fabric)

    def go(resume: bool) -> Found:
        model, lik = dense(1), hs.Gaussian()
        history = hs.fit(model, lik, (x[:600], y[:600]), resume=resume, **options)
        return {
            **state(model, lik),
            "scores": history.validation,
            "nelbo": [step.nelbo for step in history.steps],
        }

    whole = go(False)
    written = sorted(path.name for path in folder.iterdir())
    refused = sentence(lambda: go(False))
    group_of(fabric, dense(1)).run_on_first(lambda: (folder / written[-1]).unlink())
    return {"whole": whole, "resumed": go(True), "written": written, "refused": refused}


def uneven(fabric: Fabric | None, folder: Path) -> Found:
    """Shards of different length: counted together, resumed each at its own position.

    And data that leave a rank without rows.
    """
    x, y = rows()
    rank, world = (0, 1) if fabric is None else (fabric.global_rank, fabric.world_size)
    cut = slice(0, 500) if world == 1 else slice(0, 100) if rank == 0 else slice(100, 500)
    shard = Sharded(DataLoader(TensorDataset(x[cut], y[cut]), 20, shuffle=True))
    data = Batches(shard, group=group_of(fabric, dense(1)))
    by_sampler = BatchSampler(
        DistributedSampler(TensorDataset(x, y), world, rank), 10, drop_last=False
    )

    def go(resume: bool) -> Found:
        model, lik = dense(1), hs.Gaussian()
        hs.fit(
            model,
            lik,
            shard,
            steps=21,
            every=7,
            checkpoint=folder,
            resume=resume,
            seed=1,
            progress=False,
            fabric=fabric,
        )
        return state(model, lik)

    whole = go(False)
    group_of(fabric, dense(1)).run_on_first(lambda: sorted(folder.iterdir())[-1].unlink())
    single = DataLoader(TensorDataset(x[:9], y[:9]), 1)
    return {
        "rows": data.num_data,
        "sharded": Batches(
            DataLoader(TensorDataset(x, y), batch_sampler=by_sampler), group=data.group
        ).sharded
        or world == 1,
        "whole": whole,
        "resumed": go(True),
        "single rows": hs.evaluate(
            dense(1), hs.Gaussian(), single, samples=4, sampler="weights", seed=0, fabric=fabric
        ),
    }


def sentence(act: Callable[[], Any]) -> str:
    """What is said where something is refused."""
    try:
        act()
    except hs.HeadstartError as error:
        return str(error)
    return "nothing was refused"


class Alone(hs.SVI):
    """A method of one's own that does not pool."""

    name, pools = "alone", False


def refuse(fabric: Fabric | None) -> Found:
    x, y = rows()
    lik = hs.Gaussian()
    dropped = hs.bayesianize(
        nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 1)).double(), posterior="dropout"
    )
    options: Found = {"steps": 2, "progress": False, "fabric": fabric}
    return {
        "own": sentence(lambda: hs.fit(dense(1), lik, (x, y), inference=Alone(), **options)),
        "few": sentence(lambda: hs.fit(dense(1), lik, (x, y), batch_size=1, **options)),
        "dropout": sentence(lambda: hs.initialize_(dropped, "iblm", lik, (x, y), fabric=fabric)),
        "rows": sentence(lambda: hs.evaluate(dense(1), lik, (x[:1], y[:1]), fabric=fabric)),
    }


def streams(fabric: Fabric) -> Found:
    """Noise of this rank's own, and what ranks still draw alike."""
    group = group_of(fabric, dense(1))
    torch.manual_seed(0)
    common = group.separate_rng_()
    mine = torch.randn(20_000)
    with common.drawing():
        shared = torch.randn(3)
    return {"mine": mine, "shared": shared}


def everything(fabric: Fabric | None, folder: Path) -> Found:
    """All of it, by name."""
    kinds = ("sampler", "stream", "divided stream", "mc-dropout", "noisy-kfac", "tied")
    return {
        **{name: start(fabric, name) for name in STARTS},
        "from a sampler": start_from_a_sampler(fabric),
        "from a stream": start_from_a_stream(fabric),
        "float32": start_in_float32(fabric),
        "without noise": train_without_noise(fabric),
        "members without noise": train_without_noise(fabric, members=3),
        "uneven": uneven(fabric, folder / "uneven"),
        "by curvature": train_by_curvature(fabric),
        "train": [train(fabric, seed) for seed in range(4)],
        **{f"train {kind}": train_from(fabric, kind) for kind in kinds},
        "predict": foretell(fabric),
        "validation": train_with_validation(fabric, folder / ("one" if fabric is None else "two")),
        "refuse": refuse(fabric),
        **(
            {}
            if fabric is None
            else {"streams": streams(fabric), "moving": train_with_moving_averages(fabric)}
        ),
    }


def main(folder: Path) -> None:
    """On every rank that torchrun has started; each writes what it found."""
    from lightning_fabric import Fabric as LightningFabric

    torch.set_num_threads(1)
    fabric = LightningFabric(accelerator="cpu", devices=2)
    fabric.launch()
    torch.save(everything(fabric, folder), folder / f"rank{fabric.global_rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
