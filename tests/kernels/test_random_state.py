"""Random numbers of the devices in use: others are never touched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.distributed.collectives import SINGLE_PROCESS
from headstart.kernels import random_state
from headstart.kernels.random_state import devices_of, kept_random_state, rng_state, seed_, seeded

SOURCE = Path(hs.__file__).parent
OTHER = torch.device("xpu", 1)
PROGRAMS = {"cli/experiments.py", "experiments/demo.py", "bench/quality_runs.py"}
"""Files of the command line, whose process has no other user."""


class _FakeModule:
    """The random numbers of a device that this machine does not have."""

    def __init__(self) -> None:
        self.states = {OTHER: torch.zeros(1), torch.device("xpu", 0): torch.zeros(1)}

    def get_rng_state(self, device: torch.device) -> Tensor:
        return self.states[device].clone()

    def set_rng_state(self, state: Tensor, device: torch.device) -> None:
        self.states[device] = state.clone()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> _FakeModule:
    """A machine with two more devices."""
    found, plain = _FakeModule(), random_state.first_state

    def first_state(device: torch.device, seed: int) -> Tensor:
        return plain(device, seed) if device.type == "cpu" else torch.tensor([seed])

    monkeypatch.setattr(torch, "get_device_module", lambda device: found)
    monkeypatch.setattr(random_state, "first_state", first_state)
    return found


def test_a_seed_gives_the_numbers_of_manual_seed() -> None:
    for seed in (0, 5, -1, 2**40):
        seed_(seed)
        mine, initial = torch.randn(3), torch.initial_seed()
        torch.manual_seed(seed)
        assert torch.equal(mine, torch.randn(3))
        assert initial == torch.initial_seed()


def test_only_the_devices_in_use_are_seeded_and_they_come_back(device: _FakeModule) -> None:
    with seeded(7, OTHER):
        assert float(device.states[OTHER]) == 7
        assert float(device.states[torch.device("xpu", 0)]) == 0
    assert float(device.states[OTHER]) == 0


def test_a_device_not_named_is_left_alone(device: _FakeModule) -> None:
    with seeded(7, nn.Linear(2, 1)), kept_random_state(torch.zeros(1)):
        device.states[OTHER] += 3
    assert float(device.states[OTHER]) == 3


def test_the_state_of_a_device_comes_back_after_an_error(device: _FakeModule) -> None:
    before = rng_state(random_state.CPU)

    @kept_random_state(OTHER)
    def fail() -> None:
        device.states[OTHER] += 3
        torch.rand(1)
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert float(device.states[OTHER]) == 0
    assert torch.equal(before, rng_state(random_state.CPU))


def test_meta_tensors_have_no_random_state() -> None:
    assert devices_of(nn.Linear(2, 1, device="meta"), OTHER) == [random_state.CPU, OTHER]


def test_checkpoints_hold_the_state_of_the_devices_of_the_model() -> None:
    model = nn.Linear(2, 1)
    state = SINGLE_PROCESS.random_state(model)
    expected = torch.rand(3)
    SINGLE_PROCESS.load_random_state_(state, model)
    assert state["cuda"] == []
    assert torch.equal(torch.rand(3), expected)


def test_one_file_alone_seeds() -> None:
    """`torch.manual_seed` and `fork_rng` reach devices that are not in use."""
    names = re.compile(r"\bfork_rng\b|\btorch\.manual_seed\b")
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if names.search(path.read_text(encoding="utf-8"))
    }
    assert found - PROGRAMS == {"kernels/random_state.py"}


def test_a_whole_session_seeds_no_device_that_is_not_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("a device that nobody uses was seeded")

    for name in ("manual_seed", "manual_seed_all", "set_rng_state", "get_rng_state_all"):
        monkeypatch.setattr(torch.cuda, name, refuse)
    monkeypatch.setattr(torch, "manual_seed", refuse)
    x = torch.linspace(-1, 1, 40).unsqueeze(1)
    net = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))
    model, likelihood, before = hs.bayesianize(net), hs.Gaussian(), torch.get_rng_state()
    hs.initialize_(model, "iblm", likelihood, (x, x.sin()), seed=0)
    hs.fit(model, likelihood, (x, x.sin()), steps=2, seed=0, refine=True)
    hs.refine_(model, likelihood, (x, x.sin()), seed=0)
    hs.condition(model, likelihood, (x, x.sin()), draws=2, seed=0).predict(x, 4, seed=0)
    hs.predict(model, likelihood, x, 4, seed=0)
    hs.evaluate(model, likelihood, (x, x.sin()), 4, seed=0)
    hs.freeze(model, 4, seed=0)
    assert torch.equal(before, torch.get_rng_state())
