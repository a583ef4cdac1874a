"""Two ranks that torchrun starts and gloo connects, beside one process.

They must find the same posterior, the same training and predictions in order.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.distributed.collectives import SINGLE_PROCESS, group_of
from headstart.distributed.rows import LOCAL_ROWS
from tests import ranked
from tests.ranked import STARTS, Found

ROOT = Path(__file__).parents[2]
INITIALIZED = [*STARTS, "from a sampler", "from a stream", "float32"]
TRAINED = [
    "train sampler",
    "train stream",
    "train divided stream",
    "train mc-dropout",
    "train noisy-kfac",
    "train tied",
]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What a single process finds."""
    return ranked.everything(None, tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    """What each of two ranks finds."""
    pytest.importorskip("lightning_fabric")
    folder = tmp_path_factory.mktemp("two")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    done = subprocess.run(
        [*command, "-m", "tests.ranked", str(folder)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


def tensors(found: Found) -> dict[str, Tensor]:
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


@pytest.mark.parametrize("name", STARTS)
def test_the_report_is_that_of_one_process(name: str, one: Found, two: list[Found]) -> None:
    for found in two:
        assert found[name]["expected_nll"] == pytest.approx(one[name]["expected_nll"], rel=1e-5)


@pytest.mark.parametrize("name", INITIALIZED)
def test_the_posterior_does_not_depend_on_the_number_of_ranks(
    name: str, one: Found, two: list[Found]
) -> None:
    """On the same rows; what is left is rounding (projections of inputs are taken in float32)."""
    assert tensors(one[name])
    for key, value in tensors(one[name]).items():
        torch.testing.assert_close(two[0][name][key], value, rtol=1e-6, atol=1e-6)
        assert torch.equal(two[0][name][key], two[1][name][key])


@pytest.mark.parametrize("name", ["without noise", "members without noise"])
def test_training_without_noise_is_the_same(name: str, one: Found, two: list[Found]) -> None:
    """Gradients of shards of different sizes weighted by rows, the KL once, clipping after it."""
    for key, value in tensors(one[name]).items():
        torch.testing.assert_close(two[0][name][key], value, rtol=1e-10, atol=1e-12)
    for part in ("nelbo", "nll", "kl"):
        assert two[0][name][part] == pytest.approx(one[name][part], rel=1e-10)


def test_natural_gradients_without_noise_are_the_same(one: Found, two: list[Found]) -> None:
    """Kronecker factors of all rows, and what follows from them."""
    for key, value in tensors(one["by curvature"]).items():
        torch.testing.assert_close(two[0]["by curvature"][key], value, rtol=1e-8, atol=1e-10)
    assert two[0]["by curvature"]["nelbo"] == pytest.approx(one["by curvature"]["nelbo"], rel=1e-8)


def test_training_with_the_same_global_batch_reaches_the_same_loss(
    one: Found, two: list[Found]
) -> None:
    """Four seeds on one process, four on two ranks: Welch's t of the final NELBO, and its KL."""
    for part in ("nelbo", "kl"):
        a, b = (
            torch.tensor([found[part] for found in runs], dtype=torch.float64)
            for runs in (one["train"], two[0]["train"])
        )
        z = float((a.mean() - b.mean()) / (a.var() / len(a) + b.var() / len(b)).sqrt())
        # Student's t with some five degrees of freedom: one in 150.
        assert abs(z) < 4.5, (
            part,
            a,
            b,
        )


@pytest.mark.parametrize("name", [*TRAINED, "moving"])
def test_ranks_stay_the_same_to_the_last_bit(name: str, two: list[Found]) -> None:
    for key, value in tensors(two[0][name]).items():
        assert torch.equal(two[1][name][key], value)
    assert two[0][name].get("nelbo") == two[1][name].get("nelbo")


def test_shards_of_different_length(one: Found, two: list[Found]) -> None:
    """All rows count, and a resumed fit goes on at each rank's own position.

    Where a rank would have no row, rows are sharded anew.
    """
    for found in (one, *two):
        assert found["uneven"]["rows"] == 500
        assert found["uneven"]["sharded"]
        for key, value in found["uneven"]["whole"].items():
            assert torch.equal(found["uneven"]["resumed"][key], value), key
        assert found["uneven"]["single rows"] == pytest.approx(one["uneven"]["single rows"])


@pytest.mark.parametrize("name", TRAINED)
def test_every_kind_of_data_trains(name: str, one: Found, two: list[Found]) -> None:
    ends = [sum(found[name]["nelbo"][-20:]) / 20 for found in (one, two[0])]
    assert ends[1] == pytest.approx(ends[0], rel=0.05)


def test_noise_differs_by_rank_and_the_order_of_the_data_does_not(two: list[Found]) -> None:
    a, b = (found["streams"]["mine"] for found in two)
    # The z-score of their covariance.
    assert abs(float((a * b).sum())) / math.sqrt(len(a)) < 4
    assert torch.equal(two[0]["streams"]["shared"], two[1]["streams"]["shared"])


def test_predictions_come_in_order(one: Found, two: list[Found]) -> None:
    expected = one["predict"]
    for found in (rank["predict"] for rank in two):
        # Whole functions: the very same draws.
        torch.testing.assert_close(found["weights"], expected["weights"])
        torch.testing.assert_close(found["one row"], expected["one row"])
        torch.testing.assert_close(found["members"], expected["members"])
        assert all(map(torch.equal, found["unseeded"], two[0]["predict"]["unseeded"]))
        assert not torch.equal(*found["unseeded"])
        for scores in ("scores", "loader"):
            assert found[scores] == pytest.approx(expected["scores"])
    # (400, 111, 1) draws, row by row on the rank that has it.
    mine, theirs = (
        expected["local"],
        two[0]["predict"]["local"],
    )
    spread = (mine.var(0) / len(mine) + theirs.var(0) / len(theirs)).sqrt()
    assert float(((mine.mean(0) - theirs.mean(0)) / spread).abs().max()) < 5
    halves = (
        theirs[:, 0::2, 0][:, :55] - theirs[:, 0::2, 0][:, :55].mean(0),
        theirs[:, 1::2, 0] - theirs[:, 1::2, 0].mean(0),
    )
    z = (
        (halves[0] * halves[1]).mean(0)
        / (halves[0].std(0) * halves[1].std(0))
        * math.sqrt(len(theirs))
    )
    # Neighbors, on different ranks, have noise of their own.
    assert float(z.abs().max()) < 5


def test_one_rank_writes_and_all_go_on_from_it(one: Found, two: list[Found]) -> None:
    for found in (rank["validation"] for rank in two):
        assert found["written"] == one["validation"]["written"]
        assert found["resumed"]["nelbo"] == found["whole"]["nelbo"]
        assert (
            found["resumed"]["scores"]
            == found["whole"]["scores"]
            == two[0]["validation"]["whole"]["scores"]
        )
        for key, value in tensors(found["whole"]).items():
            assert torch.equal(found["resumed"][key], value)
        assert "holds an unfinished run" in found["refused"]


def test_what_does_not_run_on_ranks_is_refused_on_all_of_them(two: list[Found]) -> None:
    for found in (rank["refuse"] for rank in two):
        assert "alone learns from one process only; on 2 ranks use inference='svi'" in found["own"]
        assert "There are 2 ranks but no batch with as many rows" in found["few"]
        assert "posterior='dropout' on several ranks" in found["dropout"]
        assert "2 ranks but 1 rows to evaluate" in found["rows"]


def fabric(precision: str) -> Any:
    lightning = pytest.importorskip("lightning_fabric")
    return lightning.Fabric(accelerator="cpu", devices=1, precision=precision)


def test_bfloat16_leaves_the_closed_forms_in_full_precision() -> None:
    x, y = (part.float() for part in ranked.rows())
    mixed, full = fabric("bf16-mixed"), fabric("32-true")
    found = {}
    for name, engine in {"mixed": mixed, "full": full, "none": None}.items():
        model, lik = ranked.dense(1).float(), hs.Gaussian()
        hs.initialize_(model, "iblm", lik, (x, y), fabric=engine)
        start = {key: value.clone() for key, value in model.state_dict().items()}
        divergence = float(hs.kl(model).detach())
        steps = hs.fit(model, lik, (x, y), steps=2, seed=0, progress=False, fabric=engine).steps
        assert steps[0].kl == divergence
        found[name] = start, [step.nll for step in steps]
        assert all(p.dtype == torch.float32 for p in model.parameters())
    for key, value in found["none"][0].items():
        assert torch.equal(found["mixed"][0][key], value)
    assert found["full"][1] == found["none"][1]
    # The net did compute in bfloat16.
    assert found["mixed"][1] != found["none"][1]
    assert found["mixed"][1] == pytest.approx(found["none"][1], rel=0.05)


@pytest.mark.parametrize("precision", ["bf16-true", "64-true"])
def test_other_precisions_are_refused(precision: str) -> None:
    with pytest.raises(hs.HeadstartError, match="'32-true' and 'bf16-mixed'"):
        hs.predict(ranked.dense(1), hs.Gaussian(), torch.randn(3, 6), fabric=fabric(precision))


def test_a_model_that_fabric_has_wrapped_is_refused() -> None:
    engine, model = fabric("32-true"), ranked.dense(1)
    with pytest.raises(hs.HeadstartError, match=r"not what fabric\.setup made of it"):
        hs.fit(engine.setup_module(model), hs.Gaussian(), ranked.rows(), steps=1, fabric=engine)


def test_one_process_takes_torch_s_own_path() -> None:
    group = group_of(None, nn.Linear(1, 1))
    assert group is SINGLE_PROCESS
    assert group.is_alone
    assert group.is_first
    assert group.rows is LOCAL_ROWS
    assert group.run_on_first(lambda: 3) == 3
    assert group.any(True)
    assert not group.any(False)
