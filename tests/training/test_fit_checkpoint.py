"""A fit that was stopped goes on to the same bits, for every method, through real kills."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import headstart as hs
from headstart.errors import HeadstartError, Interrupted
from headstart.training.step_sizes import choose_rates, measure_inputs
from tests import processes

METHODS = ["svi", "mc-dropout", "noisy-kfac"]


def problem(
    method: str = "svi",
) -> tuple[nn.Module, hs.Likelihood, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(5)
    x = torch.randn(90, 3)
    net = hs.models.create("mlp-2x8", 3, 1)
    model = hs.inference.make_inference(method).convert(
        net, prior="learned" if method == "svi" else 1.0
    )
    return model, hs.Gaussian(0.3), (x, x.sum(1) + 0.1 * torch.randn(90))


OPTIONS: dict[str, Any] = {
    "steps": 47,
    "batch_size": 16,
    "samples": 3,
    "every": 10,
    "lr": 0.01,
    "lr_schedule": "cosine",
    "kl_schedule": "warmup",
    "prior_every": 7,
    "progress": False,
    "seed": 3,
}


class Stop(Exception):
    pass


def run(
    method: str, folder: Path | None, stop: int | None = None, **more: Any
) -> tuple[dict[str, torch.Tensor], hs.History]:
    """Fit; after `stop` steps the world ends."""
    model, lik, data = problem(method)
    calls = 0
    original = lik.log_prob

    def log_prob(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += model.training
        if stop is not None and calls > stop:
            raise Stop
        return original(f, y)

    lik.log_prob = log_prob  # type: ignore[method-assign]
    history = hs.fit(model, lik, data, inference=method, checkpoint=folder, **{**OPTIONS, **more})
    return {**model.state_dict(), **lik.state_dict()}, history


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


@pytest.mark.parametrize("validated", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_stopped_fit_goes_on_to_the_same_bits(
    tmp_path: Path, method: str, validated: bool
) -> None:
    more = {"validation": problem()[2], "validation_samples": 4} if validated else {}
    expected, whole = run(method, None, **more)
    for stop in (23, 15):  # the second counts from step 20 on
        with pytest.raises(Stop):
            run(method, tmp_path / "c", stop, resume=stop == 15, **more)
    found, history = run(method, tmp_path / "c", resume=True, **more)
    assert_same(found, expected)
    assert [(s.step, s.nelbo) for s in history.steps] == [(s.step, s.nelbo) for s in whole.steps]
    assert history.validation == whole.validation
    assert history.best_step == whole.best_step
    again, _ = run(method, tmp_path / "c", resume=True, **more)  # a finished one is finished
    assert_same(again, expected)


def test_only_the_last_are_kept_and_a_damaged_one_is_passed_over(tmp_path: Path) -> None:
    expected, _ = run("svi", None)
    with pytest.raises(Stop):
        run("svi", tmp_path, 43)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["step-000000030.safetensors", "step-000000040.safetensors"]
    (tmp_path / names[1]).write_bytes((tmp_path / names[1]).read_bytes()[:-10])
    found, _ = run("svi", tmp_path, resume=True)
    assert_same(found, expected)


def test_an_unfinished_run_is_not_written_over_nor_taken_for_another(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        run("svi", tmp_path, 15)
    with pytest.raises(HeadstartError, match="resume=True"):
        run("svi", tmp_path)
    with pytest.raises(HeadstartError, match=r"its lr is 0\.01, here it is 0\.02"):
        run("svi", tmp_path, resume=True, lr=0.02)
    for path in tmp_path.iterdir():
        path.write_bytes(b"not a checkpoint")
    with pytest.raises(HeadstartError, match="not a whole safetensors file"):
        run("svi", tmp_path, resume=True)


def test_nothing_to_resume_begins_anew(tmp_path: Path) -> None:
    assert_same(run("svi", tmp_path / "new", resume=True)[0], run("svi", None)[0])


def test_ctrl_c_waits_for_the_step_and_keeps_it(tmp_path: Path) -> None:
    model, lik, data = problem()
    original, calls = lik.log_prob, 0

    def log_prob(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 13:
            signal.raise_signal(signal.SIGINT)
        return original(f, y)

    lik.log_prob = log_prob  # type: ignore[method-assign]
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match="after step 13 of 47"):
        hs.fit(model, lik, data, checkpoint=tmp_path, **OPTIONS)
    assert signal.getsignal(signal.SIGINT) is before
    assert (tmp_path / "step-000000013.safetensors").is_file()
    found, _ = run("svi", tmp_path, resume=True)
    assert_same(found, run("svi", None)[0])


KILLS = int(os.environ.get("HEADSTART_KILLS", "20"))


def training(folder: Path, out: Path) -> None:
    """What the child process does."""
    torch.set_num_threads(1)
    torch.manual_seed(5)
    x = torch.randn(200, 3)
    model, lik = hs.bayesianize(hs.models.create("mlp-2x16", 3, 1)), hs.Gaussian(0.3)
    options = {
        "steps": 600,
        "batch_size": 32,
        "samples": 2,
        "every": 5,
        "progress": False,
        "seed": 0,
    }
    hs.fit(model, lik, (x, x.sum(1)), checkpoint=folder, resume=True, **options)
    hs.save(out, model, lik)


def test_a_process_killed_again_and_again_ends_with_the_same_bits(tmp_path: Path) -> None:
    """SIGKILL at random moments of real processes, each going on from what the last one left.

    HEADSTART_KILLS says how often.
    """

    def child(folder: str, out: str) -> Any:
        return processes.start(training, tmp_path / folder, tmp_path / out)

    assert processes.finish(child("whole", "expected")) == 0

    def newest() -> int:
        return max((int(path.stem[5:]) for path in (tmp_path / "killed").glob("step-*")), default=0)

    chance, kills, progress = random.Random(0), 0, 0
    while kills < KILLS:
        before, process = newest(), child("killed", "found")
        while process.is_alive() and newest() == before:
            time.sleep(0.005)
        time.sleep(chance.uniform(0.0, 0.03))
        process.kill()
        process.join(60)
        progress += newest() > before
        if process.exitcode == 0:  # it was faster: begin anew
            assert (tmp_path / "found").read_bytes() == (tmp_path / "expected").read_bytes()
            shutil.rmtree(tmp_path / "killed")
        process.close()
        kills += 1
    assert progress > KILLS // 2  # the kills came in the middle of the work
    assert processes.finish(child("killed", "found")) == 0
    assert (tmp_path / "found").read_bytes() == (tmp_path / "expected").read_bytes()


@pytest.mark.parametrize("optimizer", ["averaged", "adam"])
def test_a_noise_with_one_axis_and_one_number_is_resumed(tmp_path: Path, optimizer: str) -> None:
    found = []
    for folder in (tmp_path / "whole", tmp_path / "parts"):
        model, _, data = problem()
        lik = hs.Gaussian([0.3])
        options: dict[str, Any] = {"steps": 20, "every": 5, "progress": False, "seed": 3}
        options |= {"optimizer": optimizer, "checkpoint": folder}
        if folder.name == "parts":
            hs.fit(model, lik, data, time_limit=0.0, **options)
            model, _, _ = problem()
            lik = hs.Gaussian([0.3])
        hs.fit(model, lik, data, resume=True, **options)
        found.append(lik.noise_var.detach())
    torch.testing.assert_close(found[0], found[1], atol=0, rtol=0)


@pytest.mark.parametrize("members", [1, 2])
def test_a_wide_net_is_resumed_to_the_bit(tmp_path: Path, members: int) -> None:
    """Its optimizer keeps directions of the inputs, whose shapes are not those of the weights."""
    x = torch.randn(60, 2500, generator=torch.Generator().manual_seed(0))
    found = []
    for folder in (tmp_path / "whole", tmp_path / "parts"):
        options: dict[str, Any] = {"steps": 12, "every": 4, "progress": False, "seed": 3}
        options |= {"samples": 2, "checkpoint": folder}
        for part in range(2 if folder.name == "parts" else 1):
            torch.manual_seed(5)
            net = nn.Sequential(nn.Linear(2500, 6), nn.ReLU(), nn.Linear(6, 1))
            model, lik = hs.bayesianize(net, members=members), hs.Gaussian()
            limit = {"time_limit": 0.0} if folder.name == "parts" and part == 0 else {}
            hs.fit(model, lik, (x, x[:, :1]), resume=True, **options, **limit)
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        seen = measure_inputs(hs.bayesianize(net), x)
        assert choose_rates([inputs.reach for inputs in seen.values()]).damped
    assert torch.equal(found[0], found[1])
