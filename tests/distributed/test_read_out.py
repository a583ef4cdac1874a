"""Closed forms of the read-out on two ranks that gloo connects, beside one process."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.batching import Sharded
from headstart.distributed.fabric import Fabric
from tests import processes
from tests.ranked import Found, convolutional, dense, rows, state

SIZE = 2


class TwoRanks:
    """What is asked of Lightning's Fabric, by torch alone."""

    device, world_size = torch.device("cpu"), SIZE

    def __init__(self, rank: int) -> None:
        self.global_rank = rank

    def broadcast(self, obj: Any) -> Any:
        found = [obj]
        torch.distributed.broadcast_object_list(found)
        return found[0]

    def autocast(self) -> AbstractContextManager[Any]:
        return nullcontext()


def gaussian(members: int = 1) -> tuple[nn.Module, hs.Gaussian, tuple[Tensor, Tensor]]:
    data = rows()
    model, lik = dense(1, members=members), hs.Gaussian()
    hs.initialize_(model, "iblm", lik, data, seed=5)
    return model, lik, data


def refine_gaussian(fabric: Fabric | None, members: int, validated: bool) -> Found:
    model, lik, (x, y) = gaussian(members)
    validation = (x[600:], y[600:]) if validated else None
    report = hs.refine_(model, lik, (x[:600], y[:600]), validation=validation, fabric=fabric)
    assert not report.kept
    return {
        **state(model, lik),
        "nelbo": report.nelbo_after,
        "before": report.nelbo_before,
        "noise": report.noise_predictive,
        "rows": report.rows,
        "ratio": float(lik.predictive_ratio),
        "leverage": hs.leverage(model, x[:31], fabric=fabric),
    }


def refine_classes(fabric: Fabric | None, kind: str) -> Found:
    x, y = rows(kind)
    model = convolutional() if kind == "images" else dense(3)
    lik = hs.Categorical(2 if kind == "images" else 3)
    hs.initialize_(model, "iblm", lik, (x, y), seed=5)
    report = hs.refine_(model, lik, (x, y), rows=500, fabric=fabric)
    assert report.steps > 0
    return {**state(model, lik), "nelbo": report.nelbo_after, "steps": report.steps}


def refine_shards(fabric: Fabric | None) -> Found:
    """Each rank has rows of its own, not equally many; a single draw, so that order is nothing."""
    x, y = rows()
    model = hs.bayesianize(nn.Linear(6, 1).double())
    nn.init.zeros_(model.posterior.mean)
    lik = hs.Gaussian()
    data: Any = (x, y)
    if fabric is not None:
        mine = slice(0, 100) if fabric.global_rank == 0 else slice(100, None)
        data = Sharded((x[mine], y[mine]))
    report = hs.refine_(model, lik, data, fabric=fabric)
    return {**state(model), "nelbo": report.nelbo_after, "noise": report.noise_after}


def condition(fabric: Fabric | None, members: int) -> Found:
    model, lik, (x, y) = gaussian(members)
    found = hs.condition(model, lik, (x, y), draws=6, fabric=fabric)
    flag = hs.LeverageFlag.calibrate(found, x, fabric=fabric)
    return {
        **state(*found.nets, found.likelihood),
        "nelbo": found.nelbo,
        "factor": found.factor,
        "leverage": hs.leverage(found, x[:31], fabric=fabric),
        "one row": hs.leverage(found, x[:1], fabric=fabric),
        "threshold": flag.threshold,
        "flagged": flag(5 * x, fabric=fabric),
        "rows": hs.condition(model, lik, (x, y), draws=2, held_out=x[:150], fabric=fabric)
        .predict(8 * x[:31], 12, seed=1, fabric=fabric)
        .unlike_training,
    }


def condition_classes(fabric: Fabric | None) -> Found:
    x, y = rows("classes")
    model, lik = dense(3), hs.Categorical(3)
    hs.initialize_(model, "iblm", lik, (x, y), seed=5)
    found = hs.condition(model, lik, (x[:300], y[:300]), draws=2, fabric=fabric)
    return {**state(*found.nets), "nelbo": found.nelbo, "factor": found.factor}


def evidence(fabric: Fabric | None) -> Found:
    model, lik, data = gaussian()
    found = hs.evidence(model, lik, data, draws=3, fabric=fabric)
    return {"log evidence": found.log_evidence, "noise": found.noise_var, "prior": found.prior_var}


def fit_and_refine(fabric: Fabric | None) -> Found:
    """No step at all: what refine=True adds to a fit."""
    model, lik, (x, y) = gaussian()
    other, other_lik = copy.deepcopy(model), copy.deepcopy(lik)
    validation = x[600:], y[600:]
    options: Found = {"validation": validation, "fabric": fabric}
    report = hs.refine_(other, other_lik, (x[:600], y[:600]), **options)
    history = hs.fit(
        model, lik, (x[:600], y[:600]), steps=0, refine=True, progress=False, **options
    )
    assert history.refined is not None
    assert history.refined.nelbo_after == report.nelbo_after
    return state(model, lik)


def everything(fabric: Fabric | None) -> Found:
    return {
        "one posterior": refine_gaussian(fabric, 1, validated=False),
        "validated": refine_gaussian(fabric, 1, validated=True),
        "members": refine_gaussian(fabric, 3, validated=False),
        "classes": refine_classes(fabric, "classes"),
        "images": refine_classes(fabric, "images"),
        "shards": refine_shards(fabric),
        "conditioned": condition(fabric, 1),
        "conditioned members": condition(fabric, 2),
        "conditioned classes": condition_classes(fabric),
        "evidence": evidence(fabric),
        "fit": fit_and_refine(fabric),
    }


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    # As training leaves ranks behind.
    torch.manual_seed(rank)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=SIZE
    )
    torch.save(everything(TwoRanks(rank)), folder / f"rank{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def one() -> Found:
    return everything(None)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    folder = tmp_path_factory.mktemp("two")
    started = [processes.start(work, rank, folder) for rank in range(SIZE)]
    assert [processes.finish(process) for process in started] == [0] * SIZE
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(SIZE)]


@pytest.mark.parametrize(
    "name",
    [
        "one posterior",
        "validated",
        "members",
        "classes",
        "images",
        "shards",
        "conditioned",
        "conditioned members",
        "conditioned classes",
        "evidence",
        "fit",
    ],
)
def test_two_ranks_find_what_one_process_finds(name: str, one: Found, two: list[Found]) -> None:
    assert one[name].keys() == two[0][name].keys()
    for key, expected in one[name].items():
        wanted = torch.as_tensor(expected, dtype=torch.float64)
        first, second = (torch.as_tensor(found[name][key], dtype=torch.float64) for found in two)
        assert torch.equal(first, second), key
        assert torch.allclose(first, wanted, rtol=1e-9, atol=1e-9), key
