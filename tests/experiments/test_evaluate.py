"""What rows keep for pictures, and how out-of-distribution rows are told from test rows."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch

from headstart.experiments.evaluate import DISTRIBUTIONS, ENTROPY_BINS
from headstart.experiments.run import run_experiment
from headstart.experiments.spec import Run

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


def test_letters_are_out_of_distribution_for_a_net_for_digits(real_data: Path) -> None:
    """Real images, after a few steps of a convolutional net."""
    start = Run(
        "mnist", "lenet", "iblm", steps=20, checkpoints=(), samples=2, eval_samples=8, test_rows=500
    )
    letters = dataclasses.replace(
        start, out_of_distribution="notmnist", init_options={"rows": 256, "last_rows": 1024}
    )
    row = run_experiment(letters, real_data)[-1]
    assert row["error"] < 0.3
    assert row["entropy_out_of_distribution"] > row["entropy_in_distribution"]
    assert row["auroc"] > 0.6
