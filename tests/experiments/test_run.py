"""One run: what its rows say, and that they are the same every time."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from headstart import data
from headstart.errors import HeadstartError
from headstart.experiments.code import code_hash
from headstart.experiments.execute import check_runs
from headstart.experiments.plan import comparison
from headstart.experiments.run import run_experiment
from headstart.experiments.spec import Run
from headstart.experiments.tasks import PAPER_NOISE_VAR
from tests.experiments.conftest import timeless

REGRESSION = Run("diabetes", "mlp-1x20", "iblm", steps=20, checkpoints=(10,), eval_samples=16)
CLASSIFICATION = Run("digits", "mlp-1x20", "iblm", steps=20, checkpoints=(10,), eval_samples=16)
COMMON = {
    "run",
    "suite",
    "dataset",
    "model",
    "method",
    "init",
    "seed",
    "split",
    "step",
    "seconds",
    "init_seconds",
}
SCORES = {
    "mnll",
    "expected_nll",
    "paper_nll",
    "kl",
    "nelbo",
    "trivial",
    "nc",
    "versions",
    "code",
    "test_to_train",
    "threads",
}


def test_rows_of_a_regression() -> None:
    rows = run_experiment(REGRESSION)
    units = {"rmse_units", "mnll_units", "expected_nll_units", "coverage_95", "learned_noise_var"}
    assert [row["step"] for row in rows] == [0, 10, 20]
    assert [bool(row.get("last")) for row in rows] == [False, False, True]
    split = data.split(data.load("diabetes"), 0)
    scale = float(split.y_train.double().std(correction=0))
    for row in rows:
        assert row.keys() >= COMMON | SCORES | units | {"rmse"}
        assert row["rmse_units"] == pytest.approx(scale * row["rmse"])
        assert row["mnll_units"] == pytest.approx(row["mnll"] + math.log(scale))
        assert row["expected_nll"] >= row["mnll"]
        assert row["init_seconds"] > 0
        assert row["noise_var"] == PAPER_NOISE_VAR
    # I-BLM has fitted it.
    assert PAPER_NOISE_VAR < rows[0]["learned_noise_var"] < 1
    assert rows[-1]["learned_noise_var"] != rows[0]["learned_noise_var"]
    assert rows[0]["trivial"] == pytest.approx(1, abs=0.2)
    assert not rows[-1]["nc"]


def test_rows_of_a_classification() -> None:
    rows = run_experiment(CLASSIFICATION)
    for row in rows:
        assert row.keys() >= COMMON | SCORES | {"error", "ece"}
        assert row["paper_nll"] == row["expected_nll"]
    assert 0.8 < rows[0]["trivial"] < 0.95
    assert not rows[-1]["nc"]


def test_the_papers_number_is_the_expected_nll_at_its_noise() -> None:
    """−1 + E(y − f)²/(2 e⁻²) = −E log N(y | f, e⁻²) − ½ log 2π."""
    row = run_experiment(dataclasses.replace(REGRESSION, learn_noise=False))[-1]
    assert row["paper_nll"] == pytest.approx(
        row["expected_nll"] - 0.5 * math.log(2 * math.pi), rel=1e-5
    )


def test_the_nelbo_of_a_row_is_the_objective() -> None:
    row = run_experiment(dataclasses.replace(REGRESSION, init="uninformative", steps=0))[0]
    # The posterior is still the prior.
    assert row["kl"] == pytest.approx(0, abs=1e-3)
    assert row["nelbo"] > 0


@pytest.mark.parametrize("one", [REGRESSION, CLASSIFICATION], ids=["regression", "classification"])
def test_the_same_run_gives_the_same_rows_whatever_ran_before(one: Run) -> None:
    first = run_experiment(one)
    torch.manual_seed(77)
    torch.randn(13)
    run_experiment(dataclasses.replace(one, init="xavier", seed=5))
    assert timeless(run_experiment(one)) == timeless(first)
    assert (
        timeless(run_experiment(dataclasses.replace(one, seed=1)))[-1]["mnll"] != first[-1]["mnll"]
    )


def test_a_run_leaves_random_state_and_threads_alone() -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    run_experiment(dataclasses.replace(REGRESSION, threads=threads + 1, steps=2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_evaluating_more_often_changes_nothing() -> None:
    often = run_experiment(dataclasses.replace(REGRESSION, checkpoints=tuple(range(20))))
    assert often[-1]["mnll"] == run_experiment(REGRESSION)[-1]["mnll"]


def test_a_run_that_breaks_down_ends_in_a_row_that_says_so() -> None:
    rows = run_experiment(dataclasses.replace(REGRESSION, lr=1e30, init="orthogonal"))
    assert "loss became" in rows[-1]["failed"]
    assert rows[-1]["last"]
    assert rows[-1]["nc"]
    assert rows[0]["step"] == 0


def test_epochs_are_passes_through_the_training_part() -> None:
    rows = run_experiment(dataclasses.replace(REGRESSION, steps=None, epochs=2))
    assert rows[-1]["step"] == 2 * math.ceil(398 / 64)
    with pytest.raises(HeadstartError, match="steps or epochs"):
        dataclasses.replace(REGRESSION, steps=None)


def test_predictions_along_a_line_are_in_the_units_of_the_data() -> None:
    row = run_experiment(Run("toy", "mlp-3x50-tanh", "iblm", steps=0, line=(-10, 10)))[0]
    band = {name: torch.tensor(values) for name, values in row["band"].items()}
    truth = data.toy_function(band["x"])
    assert float((band["mean"] - truth).square().mean().sqrt()) < 0.6 * float(truth.std())
    assert bool((band["std"] >= band["epistemic_std"]).all())


def test_the_key_hangs_on_every_field() -> None:
    changed = {
        "seed": 1,
        "split": 1,
        "init_options": {"rows": 64},
        "prior": 2.0,
        "lr": 1e-2,
        "label": "mine",
    }
    changed |= {"threads": 2, "steps": 21, "code": "0123456789ab"}
    keys = {dataclasses.replace(REGRESSION, **{name: value}).key for name, value in changed.items()}
    assert len(keys | {REGRESSION.key}) == len(changed) + 1
    assert Run("toy", "mlp-1x50", "iblm").key == Run("toy", "mlp-1x50", "iblm").key


def test_rows_know_the_code_that_made_them_and_no_other_code_makes_them() -> None:
    assert {row["code"] for row in run_experiment(dataclasses.replace(REGRESSION, steps=1))} == {
        code_hash()
    }
    with pytest.raises(HeadstartError, match="planned by code 0123456789ab"):
        run_experiment(dataclasses.replace(REGRESSION, code="0123456789ab"))


def test_rows_say_whether_their_test_set_is_resampled() -> None:
    assert run_experiment(dataclasses.replace(REGRESSION, steps=0))[0]["test_to_train"] == 44 / 398


def test_mc_dropout_runs_like_any_method() -> None:
    (one,) = comparison("digits", "mlp-2x50", [], methods=["mc-dropout"], steps=400)
    assert (one.init, one.label) == ("stock", "mc-dropout")
    rows = run_experiment(one)
    assert rows[-1]["error"] < 0.15 < rows[0]["error"]
    assert rows[-1]["mutual_information"] > 0.01


def test_unknown_names_are_refused() -> None:
    names = (
        ("dataset", "data set"),
        ("model", "model"),
        ("init", "initializer"),
        ("method", "inference method"),
    )
    for field, sentence in names:
        with pytest.raises(HeadstartError, match=f"There is no {sentence}"):
            check_runs([dataclasses.replace(REGRESSION, **{field: "ibml"})])
    with pytest.raises(HeadstartError, match="There is no option of 'iblm' 'row'"):
        check_runs([dataclasses.replace(REGRESSION, init_options={"row": 64})])


def test_a_device_or_precision_that_is_not_there_is_refused_at_the_door() -> None:
    with pytest.raises(HeadstartError, match="Torch cannot compute on the device 'hal'"):
        check_runs([dataclasses.replace(REGRESSION, device="hal")])
    with pytest.raises(HeadstartError, match="There is no precision 'float8'"):
        check_runs([dataclasses.replace(REGRESSION, precision="float8")])
    rows = run_experiment(dataclasses.replace(CLASSIFICATION, precision="bfloat16"))
    full = run_experiment(CLASSIFICATION)
    # The start is computed in full precision.
    assert rows[0]["mnll"] == full[0]["mnll"]
    assert rows[-1]["mnll"] == pytest.approx(full[-1]["mnll"], rel=0.05)
    assert rows[-1]["mnll"] != full[-1]["mnll"]
