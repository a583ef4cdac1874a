"""`headstart bench`: every installed library takes a step, ratios are of turns taken in one run."""

from __future__ import annotations

import io
import json
import math

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from headstart.bench import measure as module
from headstart.bench.cases import CASES, Case
from headstart.bench.command import SHARED_DRAWS, print_tables, run_benchmarks
from headstart.bench.measure import Timing, measure, peak
from headstart.bench.rivals import RIVALS, TORCH_ON_BATCH, TORCH_ON_SAMPLES
from headstart.cli import app
from headstart.errors import HeadstartError

SMALL = {
    "mlp": Case("mlp-2x5", (3,), samples=4, batch=8),
    "net": Case("lenet", (1, 28, 28), samples=2, batch=4),
}


@pytest.mark.parametrize("case", SMALL)
@pytest.mark.parametrize(
    "rival", [r for r in RIVALS if r.installed], ids=lambda r: f"{r.name}-{r.sampler}"
)
# What other libraries warn of is theirs.
@pytest.mark.filterwarnings("default")
def test_every_installed_library_takes_steps(rival, case: str) -> None:
    step = rival.make(SMALL[case])
    losses = [step() for _ in range(5)]
    assert all(math.isfinite(loss) for loss in losses)
    # The loss moves.
    assert len(set(losses)) == 5


def test_the_deterministic_step_is_a_step_of_adam_on_the_repeated_batch() -> None:
    case = SMALL["mlp"]
    x, y = case.data(case.samples)
    assert x.shape == (32, 3)
    torch.testing.assert_close(x[:8], x[24:])
    torch.testing.assert_close(y[:8], y[24:])


def test_ratios_are_taken_turn_by_turn() -> None:
    order: list[str] = []

    def turn(name: str) -> float:
        order.append(name)
        return 0.0

    told: list[str] = []
    found = measure({"a": lambda: turn("a"), "b": lambda: turn("b")}, rounds=2, tell=told.append)
    assert told == ["a", "b", "a", "b"]
    assert [len(timing.seconds) for timing in found.values()] == [2, 2]
    turns = [name for name, before in zip(order, [None, *order], strict=False) if name != before]
    assert turns == ["a", "b"] * (len(turns) // 2)
    assert Timing((2.0, 6.0), 0).ratios(Timing((1.0, 2.0), 0)) == [2.0, 3.0]


def test_peak_memory_is_what_lives_at_once() -> None:
    def step() -> float:
        # This tensor is gone before the next one.
        torch.empty(1000).zero_()
        a, b = torch.empty(2000).zero_(), torch.empty(3000).zero_()
        del a, b
        return 0.0

    assert 20_000 <= peak(step) < 21_000


@pytest.mark.slow
def test_the_command_prints_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUND_SECONDS", 0.01)
    arguments = [
        "bench",
        "--case",
        "mlp-1x100",
        "--library",
        "headstart",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--json",
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["library"] for row in rows] == [
        TORCH_ON_BATCH,
        TORCH_ON_SAMPLES,
        "headstart",
        "headstart",
    ]
    assert {row["sampler"] for row in rows} == {"none", "local", "weights"}
    assert all(
        row["case"] == "mlp-1x100" and row["seconds"] > 0 and row["memory"] > 0 for row in rows
    )
    assert rows[1]["ratio"] == 1.0
    assert (
        CliRunner()
        .invoke(app, ["bench", "--case", "mlp-1x100", "--library", "headstart", "--rounds", "1"])
        .exit_code
        == 0
    )


def test_unknown_names_get_a_sentence() -> None:
    with pytest.raises(HeadstartError, match="lenett"):
        run_benchmarks(["lenett"], rounds=1)
    with pytest.raises(HeadstartError, match="library"):
        run_benchmarks(["lenet"], ["tensorflow"], rounds=1)
    assert set(CASES) == {"mlp-5x100", "mlp-1x100", "lenet", "vgg16"}


@pytest.mark.parametrize(("library", "told"), [("headstart", True), ("pyro", False)])
def test_ratios_of_shared_draws_come_with_a_word(library: str, told: bool) -> None:
    numbers = ("seconds", "ratio", "ratio_low", "ratio_high", "ratio_batch", "memory")
    row = {"case": "mlp-1x100", "samples": 16, "library": library, "sampler": "local"}
    console = Console(record=True, width=300, file=io.StringIO())
    print_tables([{**row, **dict.fromkeys((*numbers, "memory_ratio"), 1.0)}], console)
    assert (SHARED_DRAWS in console.export_text()) is told
