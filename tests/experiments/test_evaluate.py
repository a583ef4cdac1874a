"""What rows keep for pictures, out-of-distribution rows, and how images reach the model."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from headstart import data
from headstart.batching import Batches
from headstart.experiments import figures
from headstart.experiments.evaluate import DISTRIBUTIONS, ENTROPY_BINS
from headstart.experiments.prepare import evenly_spaced, prepare
from headstart.experiments.results import results_of
from headstart.experiments.run import run_experiment
from headstart.experiments.spec import ResultRow, Run
from headstart.reporting.document import Figure

DIGITS = Run("digits", "mlp-1x20", "iblm", steps=0, eval_samples=16, diagrams=True)


def test_the_diagram_of_a_row_gives_its_calibration_error() -> None:
    row = run_experiment(DIGITS)[0]
    bins = row["reliability"]
    rows, confidence, accuracy = (
        torch.tensor(bins[name]) for name in ("rows", "confidence", "accuracy")
    )
    assert rows.sum() == 180
    assert float((rows * (accuracy - confidence).abs()).sum() / 180) == pytest.approx(
        row["ece"], abs=1e-3
    )
    assert float((rows * accuracy).sum() / 180) == pytest.approx(1 - row["error"], abs=1e-3)
    assert "reliability" not in run_experiment(dataclasses.replace(DIGITS, diagrams=False))[0]


def test_a_data_set_is_in_its_own_distribution() -> None:
    row = run_experiment(dataclasses.replace(DIGITS, out_of_distribution="digits"))[0]
    assert row["auroc"] == pytest.approx(0.5, abs=0.08)
    assert row["aupr"] == pytest.approx(0.5, abs=0.1)
    assert row["fpr95"] == pytest.approx(0.95, abs=0.06)
    for part in DISTRIBUTIONS:
        fractions = row["entropies"][part]
        assert len(fractions) == ENTROPY_BINS
        assert sum(fractions) == pytest.approx(1, abs=2e-3)
        center = [(b + 0.5) * row["entropies"]["top"] / ENTROPY_BINS for b in range(ENTROPY_BINS)]
        mean = sum(fraction * place for fraction, place in zip(fractions, center, strict=True))
        assert mean == pytest.approx(
            row[f"entropy_{part}"], abs=row["entropies"]["top"] / ENTROPY_BINS
        )
    assert row["entropies"]["top"] == math.log(10)


def test_letters_are_out_of_distribution_for_a_net_for_digits() -> None:
    """Real images, after a few steps of a convolutional net."""
    start = Run(
        "mnist", "lenet", "iblm", steps=20, checkpoints=(), samples=2, eval_samples=8, test_rows=500
    )
    row = run_experiment(
        dataclasses.replace(
            start, out_of_distribution="notmnist", init_options={"rows": 256, "last_rows": 1024}
        )
    )[-1]
    assert row["error"] < 0.3
    assert row["entropy_out_of_distribution"] > row["entropy_in_distribution"]
    assert row["auroc"] > 0.6


def test_thinned_rows_are_evenly_spaced() -> None:
    chosen = evenly_spaced(10_000, 300)
    assert len(chosen.unique()) == 300
    assert {int(step) for step in chosen.diff()} == {33, 34}


def test_images_stay_bytes_and_give_the_batches_that_floats_would() -> None:
    mnist = data.load("mnist")
    parts = prepare(Run("mnist", "lenet", "iblm"), mnist, targets=False)
    scaled, _ = data.standardize(data.split(mnist, 0), targets=False)
    torch.manual_seed(0)
    x, y = next(iter(Batches(parts.train)))
    torch.manual_seed(0)
    x_float, y_float = next(iter(Batches((scaled.x_train, scaled.y_train))))
    torch.testing.assert_close(x, x_float, rtol=0, atol=0)
    assert torch.equal(y, y_float)
    assert parts.train.x.dtype == torch.uint8
    assert torch.equal(parts.first[0], scaled.x_train[:1024])
    assert torch.equal(parts.x_test, scaled.x_test)


def made_up(label: str, **more: object) -> ResultRow:
    shared = {
        "suite": "lenet-rivals",
        "dataset": "mnist",
        "model": "lenet-20-50",
        "init": label,
        "run": label,
    }
    return {**shared, "split": 0, "seed": 0, "step": 5, "last": True, "error": 0.1, **more}


@pytest.mark.parametrize(
    ("setting", "names"),
    [("out_of_distribution", DISTRIBUTIONS), ("outsiders", ("inside", "outside"))],
    ids=["today", "version 0.1"],
)
def test_both_methods_stand_in_one_picture_of_each_kind(
    setting: str, names: tuple[str, str]
) -> None:
    bins = {"rows": [0.0, 3.0, 7.0], "confidence": [0.0, 0.5, 0.9], "accuracy": [0.0, 0.4, 1.0]}
    more = {
        "reliability": bins,
        "entropies": dict(
            zip((*names, "top"), ([0.9, 0.1], [0.2, 0.8], math.log(10)), strict=True)
        ),
        setting: "notmnist",
        "auroc": 0.96,
    }
    rows = [made_up("iblm", ece=0.01, **more), made_up("mc-dropout", ece=0.03, **more)]
    results = results_of("lenet-rivals", rows)
    for blocks, texts in (
        (
            figures.reliability_figure("page", results),
            ["iblm, ECE 0.010", "mc-dropout, ECE 0.030", "confidence", "accuracy"],
        ),
        (
            figures.entropy_figure("page", results),
            ["iblm, AUROC 0.960", "notmnist", "mnist", "predictive entropy (nats)"],
        ),
    ):
        (figure,) = blocks
        assert isinstance(figure, Figure)
        for text in texts:
            assert f">{text}<" in figure.svg
    plain = results_of("lenet-rivals", [made_up("iblm")])
    assert figures.reliability_figure("page", plain) == figures.entropy_figure("page", plain) == []
