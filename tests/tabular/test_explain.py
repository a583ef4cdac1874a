"""What moves a prediction: exact for a linear model, for numbers, dates, levels and holes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import headstart as hs
from headstart.errors import HeadstartError
from headstart.tabular.calibration import Calibration
from headstart.tabular.explain import (
    dependence,
    evenly,
    explain_rows,
    explain_table,
    explanation,
    most_moving,
)
from headstart.tabular.profile import DateProfile, LevelProfile, NumberProfile
from headstart.tabular.run import TableRun
from headstart.tabular.schema import Schema
from tests.tabular.tables import Headstart, houses


def linear_run(frame: pd.DataFrame, target: str, weights: list[float]) -> TableRun:
    """A linear model of known weights, almost without doubt about them."""
    schema = Schema.learn(frame, target)
    model = hs.bayesianize(nn.Linear(len(schema.feature_names), 1))
    hs.initialize_(model, "uninformative", hs.Gaussian())
    with torch.no_grad():
        model.posterior.mean.copy_(torch.tensor([[*weights, 0.0]]).view_as(model.posterior.mean))
        for name, value in model.posterior.named_parameters():
            if "mean" not in name:
                value.fill_(-30.0)
    run = TableRun(model.eval(), hs.Gaussian(), schema, Calibration(), 0, {})
    run.learn_familiarity_(frame)
    return run


@pytest.fixture
def run_and_frame() -> tuple[TableRun, pd.DataFrame]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    frame["y"] = rng.normal(size=200)
    return linear_run(frame, "y", [3.0, 0.5]), frame


def test_effects_of_a_linear_model_are_its_terms(
    run_and_frame: tuple[TableRun, pd.DataFrame],
) -> None:
    """Each is `w · (z − mean z)`, over the values that stand for the training rows."""
    run, frame = run_and_frame
    effects = explain_rows(run, frame.iloc[:5], draws=8)
    assert run.familiarity is not None
    for place, (column, weight) in enumerate(zip(run.schema.columns, [3.0, 0.5], strict=True)):
        z = column.encode(frame[column.name].iloc[:5])[:, 0]
        others = column.encode(pd.Series(run.familiarity.profiles[place].draws(8)))[:, 0]
        exact = weight * (z - others.mean())
        np.testing.assert_allclose(effects.prediction[:, place], exact, atol=2e-3)
    np.testing.assert_allclose(effects.uncertainty, 0, atol=2e-3)
    first = most_moving(effects, 0)[0]
    assert first[0] == effects.names[int(np.argmax(np.abs(effects.prediction[0])))]


def test_the_column_that_matters_comes_first(
    run_and_frame: tuple[TableRun, pd.DataFrame],
) -> None:
    run, frame = run_and_frame
    y = run.predict(frame).mean[:, 0]
    found = explain_table(run, frame, y)
    assert [each.name for each in found] == ["a", "b"]
    # The mean distance of two draws of a normal law, times the weight.
    assert found[0].prediction == pytest.approx(3 * 2 / np.pi**0.5, rel=0.15)
    assert found[0].nll is not None
    assert found[1].nll is not None
    assert found[0].nll > found[1].nll > 0


def test_a_single_row_is_compared_with_many_values(
    run_and_frame: tuple[TableRun, pd.DataFrame],
) -> None:
    """Of the row at the median a single value in its middle would move nothing."""
    run, frame = run_and_frame
    row = frame.iloc[[int((frame.a - frame.a.median()).abs().argmin())]]
    y = torch.tensor(row.y.to_numpy())
    found = {each.name: each for each in explain_table(run, row, y)}
    scale = run.schema.columns[0].scale  # type: ignore[attr-defined]
    expected = 3 * (frame.a - row.a.iloc[0]).abs().mean() / scale
    assert found["a"].prediction == pytest.approx(expected, rel=0.1)
    assert found["a"].nll is not None


def test_curves_of_a_linear_model_are_lines(run_and_frame: tuple[TableRun, pd.DataFrame]) -> None:
    run, frame = run_and_frame
    curve = dependence(run, frame, "a")
    slopes = np.diff(curve.mean) / np.diff(curve.values)
    np.testing.assert_allclose(slopes, 3 / run.schema.columns[0].scale, rtol=1e-2)
    assert max(curve.sd) < 1e-3


def test_every_kind_of_column_is_explained() -> None:
    frame = houses(150).drop(columns=["id", "currency", "note"])
    run = linear_run(frame, "price", [1.0] * len(Schema.learn(frame, "price").feature_names))
    found = explanation(run, frame, torch.zeros(len(frame)))
    assert {each["name"] for each in found["importances"]} == {
        "size",
        "city",
        "garden",
        "built",
        "rooms",
    }
    curves = {curve["name"]: curve["values"] for curve in found["curves"]}
    assert curves["city"] == ["Bonn", "Köln", "Ulm"]
    assert curves["garden"] == [0.0, 1.0]
    assert curves["built"][0] == "1950-01-01"
    assert explanation(run, frame.iloc[:0], torch.zeros(0)) == {}


def test_values_stand_for_the_training_rows() -> None:
    numbers = np.where(np.arange(100) < 25, np.nan, np.arange(100.0))
    drawn = NumberProfile.learn("a", numbers).draws(8)
    assert np.isnan(drawn).sum() == 2
    assert 25 <= np.nanmin(drawn) < np.nanmax(drawn) <= 99
    levels = LevelProfile.learn("c", np.array(list("uuuuuuvvw"), object))
    assert levels.draws(9).tolist() == ["u"] * 6 + ["v"] * 2 + ["(another)"]
    dates = DateProfile.learn("d", np.arange(50.0))
    assert dates.show(dates.draws(1)[0]) == "1970-01-25"


def test_the_command_says_what_moves_predictions(fitted: Path, headstart: Headstart) -> None:
    rows = houses(30, seed=5)
    rows.loc[0, "size"] *= 1000
    rows.to_csv(fitted / "explain.csv", index=False)
    out = fitted / "effects.csv"
    said = headstart("explain", fitted / "run", fitted / "explain.csv", "--out", out)
    assert said.code == 0, said.err
    assert "moves price" in said.out
    assert "raises MNLL" in said.out
    assert "Row 1: predicted" in said.out
    assert "Unlike the training data: size is" in said.out
    found = pd.read_csv(out)
    assert len(found) == 30
    assert {"value", "epistemic", "effect_size", "doubt_city"} < set(found.columns)
    assert found["effect_size"].abs().mean() > found["effect_built"].abs().mean()
    rows.drop(columns="price").to_csv(fitted / "explain.csv", index=False)
    told = json.loads(headstart("explain", fitted / "run", fitted / "explain.csv", "--json").out)
    assert told["rows"] == 30
    assert [each["nll"] for each in told["columns"]] == [None] * 5


def test_a_run_without_profiles_is_refused(run_and_frame: tuple[TableRun, pd.DataFrame]) -> None:
    run, frame = run_and_frame
    run.familiarity = None
    with pytest.raises(HeadstartError, match="fit it again"):
        explain_rows(run, frame)


def test_rows_of_all_over_the_table_stand_for_it() -> None:
    frame = pd.DataFrame({"a": np.arange(1000)})
    some, y = evenly(frame, torch.arange(1000), 5)
    assert some.a.tolist() == y.tolist() == [0, 250, 500, 749, 999]  # type: ignore[union-attr]


def test_the_table_itself_is_not_written_over(headstart: Headstart, tmp_path: Path) -> None:
    table = tmp_path / "new.csv"
    houses(5).to_csv(table, index=False)
    folder = Path(__file__).parent / "run_0_1"
    said = headstart("explain", folder, table, "--out", table)
    assert said.code == 2
    assert "is the table itself: write the effects to another file" in said.err
