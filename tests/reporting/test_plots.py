"""Pictures: svg elements of the same bytes for the same data, with text that stays text."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from headstart.reporting import fitted, plots
from headstart.reporting.svg import LETTER, WIDTH, Axes, ticks_of

CURVES = {"iblm": plots.Curve([0, 10, 100], [3.0, 2.0, 1.0], [2.5, 1.5, 0.5], [3.5, 2.5, 1.5])}
PANELS = [[plots.Panel("costs $5", "RMSE", "log", CURVES)]]
LINE = torch.linspace(-1, 1, 20)[:, None]
BAND = plots.Band(LINE, LINE, torch.ones(20, 1), 2 * torch.ones(20, 1))
TRUTH = plots.Truth(LINE, LINE, torch.sin)
RELIABILITY = plots.ReliabilityBins([0.0, 0.4, 0.6], [0.1, 0.5, 0.9], [0.2, 0.5, 0.8], 0.061)
ENTROPY = plots.EntropyBins([0.9, 0.1], [0.3, 0.7], 2.3, 0.914)
POINTS = {"a": plots.Points([1.0, 2.0], [3.0, 4.0], (1.5, 3.5))}

PICTURES: dict[str, tuple[Callable[[], str], tuple[str, ...]]] = {
    "learning curves": (lambda: plots.learning_curves(PANELS), ("costs $5", "RMSE", "iblm")),
    "rows": (lambda: plots.scores_against_rows(PANELS), ("rows of a batch",)),
    "time": (
        lambda: plots.scores_against_time(POINTS, ["a"], "MNLL"),
        ("time of initialization (seconds)", "MNLL"),
    ),
    "validation": (
        lambda: fitted.validation_curve([1, 2], [0.5, 0.4], "RMSE"),
        ("RMSE", "step"),
    ),
    "predictions": (lambda: plots.prediction_bands({"start": {"iblm": BAND}}, TRUTH), ("iblm",)),
    "reliability": (
        lambda: plots.reliability_diagrams({"mnist": {"svi": RELIABILITY}}),
        ("svi, ECE 0.061", "fraction of rows", "mnist"),
    ),
    "entropy": (
        lambda: plots.entropy_histograms({"mnist": {"svi": ENTROPY}}, ("mnist", "notmnist")),
        ("svi, AUROC 0.914", "notmnist"),
    ),
    "coverage": (
        lambda: fitted.coverage_curve([0.5, 0.95], [0.4, 0.9]),
        ("fraction of rows inside",),
    ),
    "truth": (
        lambda: fitted.truth_against_prediction([1.0, 2.0], [1.5, 2.0]),
        ("predicted", "true"),
    ),
    "errors": (lambda: fitted.standardized_errors([0.5, -9.0]), ("(true − predicted) / sd",)),
    "importance": (
        lambda: fitted.importance_bars(["$size$", "a" * 40], [2.0, 1.0], "euros"),
        ("$size$", "a" * 21 + "…", "euros"),
    ),
    "dependence on a number": (
        lambda: fitted.dependence_curve("size", [1.0, 2.0], [3.0, 4.0], [0.1, 0.2], "price"),
        ("size", "price"),
    ),
    "dependence on a level": (
        lambda: fitted.dependence_curve("city", ["Bonn", "Ulm"], [3.0, 4.0], [0.1, 0.2], "price"),
        ("Bonn", "Ulm", "price"),
    ),
    "confidence": (
        lambda: fitted.confidence_curve([0.1, 0.5, 0.9], [0.0, 0.4, 1.0], [0.0, 0.5, 0.5]),
        ("fraction that was right", "50.0% of the rows: predicted 0.500, right 0.400"),
    ),
    "risk": (lambda: fitted.risk_curve([0.5, 1.0], [0.1, 0.2], "error"), ("error",)),
    "intervals": (
        lambda: fitted.interval_bars([1.0], [0.0], [2.0], [1.5]),
        ("predicted 1, 95 % between 0 and 2, truly 1.5", "test rows, by their prediction"),
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_same_data_gives_the_same_bytes_with_text(name: str) -> None:
    draw, words = PICTURES[name]
    picture = draw()
    assert picture.startswith("<svg")
    assert picture == draw()
    for word in words:
        assert f">{word}<" in picture


def test_ticks_are_round_numbers_within_the_range() -> None:
    for span in ((0.0, 1.0), (-3.2e6, 1.7e7), (99.95, 100.05), (1e-7, 3e-7)):
        ticks = ticks_of(span)
        assert 4 <= len(ticks) <= 7
        assert all(span[0] - 1e-12 <= value <= span[1] + 1e-12 * span[1] for value in ticks)
        assert len(set(ticks.values())) == len(ticks)


def test_a_long_number_at_the_right_end_is_not_cut_off() -> None:
    axes = Axes((0.0, 8_000_000.0), (0.0, 1.0), "price")
    (end, label) = max((axes.x_ticks or {}).items())
    assert label == "8,000,000"
    assert axes.across(end) + LETTER * len(label) / 2 <= WIDTH


def test_labels_of_steps_do_not_cover_each_other() -> None:
    steps = [0, 50, 100, 1000, 20_000, 50_000, 78_200]
    curve = plots.Curve(steps, *[[1.0] * len(steps)] * 3)
    drawn = plots.learning_curves([[plots.Panel("net", "RMSE", "linear", {"iblm": curve})]])
    labels = re.findall(r">(\d+)</text>", drawn)
    assert [label for label in labels if int(label) in steps] == [
        str(step) for step in steps if step != 50_000
    ]


def test_values_that_are_no_numbers_or_all_the_same_are_drawn_around() -> None:
    for values in ([1.0, math.nan, 3.0], [5.0, 5.0, 5.0], [math.inf] * 3):
        picture = fitted.validation_curve([1, 2, 3], values, "RMSE")
        assert "nan" not in picture
        assert "inf" not in picture
        assert picture.count("<circle") == sum(map(math.isfinite, values))
    assert "nan" not in fitted.importance_bars(["a"], [0.0], "euros")
    assert "nan" not in fitted.risk_curve([0.5], [math.nan], "error")


def test_a_band_of_probabilities_ends_at_0_and_1() -> None:
    drawn = [
        fitted.dependence_curve("size", [1.0, 2.0], [0.5, 0.5], [sd, sd], "P", (0.0, 1.0))
        for sd in (0.25, 9.0)
    ]
    assert drawn[0] == drawn[1]


def test_names_cannot_break_the_picture() -> None:
    picture = fitted.dependence_curve("<b>", ["<i>", "&"], [1.0, 2.0], [0.1, 0.1], "a < b")
    said = "".join(ElementTree.fromstring(picture).itertext())
    assert all(name in said for name in ("<b>", "<i>", "&", "a < b"))


def test_a_race_is_drawn_to_a_file(tmp_path: Path) -> None:
    class Racer:
        name = "iblm"
        curve = [(1, 0.5, 1.0), (10, 0.4, 0.5)]  # noqa: RUF012
        before: plots.Band | None = BAND
        after: plots.Band | None = None

    plots.draw_race([Racer()], (LINE, LINE), torch.sin, tmp_path / "race.png")
    assert (tmp_path / "race.png").read_bytes().startswith(b"\x89PNG")


def test_intervals_without_an_end_and_nothing_at_all_are_drawn() -> None:
    endless = fitted.interval_bars([1.0, 2.0], [-math.inf, 1.0], [math.inf, 3.0], [1.5, 2.0])
    nothing = fitted.standardized_errors([])
    unknown = fitted.importance_bars(["a", "b"], [math.nan, 1.0], "change")
    for picture in (endless, nothing, unknown):
        # What is said on hover may call an end unknown; no coordinate may.
        assert not re.search(r'="-?(nan|inf)', picture)
