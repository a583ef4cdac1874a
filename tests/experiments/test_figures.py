"""Pictures from rows, of today and of version 0.1."""

from __future__ import annotations

import math

import pytest

from headstart.experiments import figures
from headstart.experiments.evaluate import DISTRIBUTIONS
from headstart.experiments.results import results_of
from headstart.experiments.spec import ResultRow
from headstart.reporting.document import Figure


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
