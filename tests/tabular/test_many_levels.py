"""Tables with a category of many levels, from the cells to predictions, files and explanations."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import headstart as hs
from headstart.errors import HeadstartError
from headstart.tabular.explain import dependence, explain_rows, explain_table
from headstart.tabular.fit import fit_table
from headstart.tabular.monitor import monitor
from headstart.tabular.recalibrate import update
from headstart.tabular.run import TABLE_FILE, TableRun, read_part
from headstart.tabular.schema import Schema
from headstart.training.derived import LEVELS_FILE, Derived
from headstart.training.labels import QuantityLabels
from headstart.training.learn import learn
from headstart.training.recipe import Recipe

QUICK = Recipe(model="mlp-1x20", steps=100, samples=2, effort="quick", noise="constant")
LEVELS = 300


def towns(rows: int, seed: int, levels: int = LEVELS) -> pd.DataFrame:
    """A quantity with an effect of each town, the same in every table, and of three numbers."""
    effects = np.random.default_rng(99).normal(size=levels)
    rng = np.random.default_rng(seed)
    town, x = rng.integers(0, levels, rows), rng.normal(size=(rows, 3))
    frame = pd.DataFrame(
        {"town": [f"town {i}" for i in town], **dict(zip("abc", x.T, strict=True))}
    )
    return frame.assign(y=effects[town] + x[:, 0] + 0.5 * rng.normal(size=rows))


def small(seed: int = 0) -> pd.DataFrame:
    return towns(400, seed, levels=60)


@pytest.fixture(scope="module", params=[False, True], ids=["net", "trees"])
def run(request: pytest.FixtureRequest) -> TableRun:
    recipe = Recipe(
        model="mlp-1x8", steps=40, samples=2, effort="quick", noise="constant", trees=request.param
    )
    return fit_table(small(), "y", recipe=recipe, conformal=True)


@pytest.mark.slow
@pytest.mark.parametrize("trees", [False, True])
def test_many_levels_are_worth_their_keys(trees: bool) -> None:
    """By the NLL of new rows, paired."""
    frame, new = towns(2000, 1), towns(1000, 2)
    schema, y = Schema.learn(frame, "y"), torch.tensor(new["y"].to_numpy())
    labels = QuantityLabels(torch.tensor(frame["y"].to_numpy()))
    recipe = Recipe(model="mlp-1x20", steps=200, effort="quick", noise="constant", trees=trees)
    found = []
    for keys in (schema.keys(frame), None):
        outcome = learn(schema.encode(frame), labels, recipe, keys=keys)
        x = torch.from_numpy(outcome.derived.extend(schema.encode(new), schema.keys(new)))
        pred = hs.predict(outcome.model, outcome.likelihood, x, 64, sampler="weights", seed=0)
        found.append(-pred.log_prob(y).double())
        # Held-out rows say what new ones are like.
        assert abs(outcome.scores["mnll"] - float(found[-1].mean())) < 0.2
    gain = found[1] - found[0]
    assert float(gain.mean()) > 0.5
    assert float(gain.mean()) > 10 * float(gain.std()) / math.sqrt(len(gain))


def test_unknown_levels_are_predicted_as_the_mean_of_all(run: TableRun) -> None:
    assert run.derived.levels is not None
    frame = small(1).iloc[:20]
    # Levels beyond the fifty, unknown ones and missing cells differ in nothing but their features.
    unknown, missing = frame.assign(town="elsewhere"), frame.assign(town=None)
    assert (run.schema.keys(unknown) == -1).all()
    assert (run.schema.keys(missing) == -1).all()
    means = run.derived.levels.of_levels(run.schema.keys(unknown))
    np.testing.assert_array_equal(means[:, 0], np.tile(run.derived.levels.overall, (20, 1)))
    at = len(run.schema.feature_names)
    assert not run.inputs(unknown)[:, at].any()
    assert run.inputs(frame)[:, at].abs().min() > 0
    assert run.schema.unseen(unknown) == {}


def test_a_run_with_keys_is_saved_to_the_bit(run: TableRun, tmp_path: Path) -> None:
    run.save(tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {LEVELS_FILE, f"fold-0-{LEVELS_FILE}"} <= names
    again, new = TableRun.load(tmp_path / "run"), small(1)
    assert again.schema == run.schema
    assert torch.equal(again.inputs(new), run.inputs(new))
    first, second = run.predict(new), again.predict(new)
    assert torch.equal(first.draws, second.draws)
    ends = (each.intervals(new, pred, [0.9])[0.9] for each, pred in ((run, first), (again, second)))
    for one, other in zip(*ends, strict=True):
        assert torch.equal(one, other)
    again.save(tmp_path / "run", overwrite=True)
    description = read_part(tmp_path / "run", TABLE_FILE)
    assert description["levels"] == LEVELS_FILE
    # Rows beside a row change nothing in it.
    assert torch.equal(run.inputs(new.iloc[:1]), run.inputs(new)[:1])
    (tmp_path / "run" / LEVELS_FILE).write_bytes(b"damaged")
    with pytest.raises(HeadstartError):
        TableRun.load(tmp_path / "run")


def test_a_run_that_lost_its_levels_is_refused(run: TableRun, tmp_path: Path) -> None:
    replace(run, derived=Derived(trees=run.trees)).save(tmp_path / "run")
    with pytest.raises(HeadstartError, match="not of one run"):
        TableRun.load(tmp_path / "run")


def test_explanations_and_monitoring_know_all_levels(run: TableRun) -> None:
    new = small(1)
    importances = explain_table(run, new)
    assert {each.name for each in importances[:2]} == {"town", "a"}
    assert np.abs(explain_rows(run, new.iloc[:5]).prediction[:, 0]).max() > 0.1
    assert len(dependence(run, new, "town").values) > 5
    assert run.familiarity is not None
    profile = next(each for each in run.familiarity.profiles if each.name == "town")
    assert len(profile.known_bins) == len(run.schema.columns[0].to_json()["keyed"]) + 1
    drifts = {drift.name: drift for drift in monitor(run, new).drifts}
    assert not drifts["town"].drifted
    moved = new.assign(town=np.where(new["a"] > 0, "town 1", new["town"]))
    assert {drift.name: drift for drift in monitor(run, moved).drifts}["town"].drifted
    assert run.compare(new) is not None


def test_an_update_keeps_the_levels(run: TableRun) -> None:
    now = update(run, small(2), steps=5)
    assert now.derived is run.derived
    assert now.predict(small(1)).mean.isfinite().all()


@pytest.mark.parametrize("kind", ["two", "three", "counts"])
def test_classes_and_counts_have_level_means(kind: str) -> None:
    frame = small()
    if kind == "counts":
        frame["y"] = np.random.default_rng(0).poisson(np.exp(0.5 * frame["y"]) + 2)
    else:
        ends = [-np.inf, 0, np.inf] if kind == "two" else [-np.inf, -0.7, 0.7, np.inf]
        frame["y"] = pd.cut(frame["y"], ends, labels=False).map(lambda place: "uvw"[place])
    recipe = Recipe(model="mlp-1x8", steps=40, samples=2, effort="quick", trees=kind == "two")
    task = "regression" if kind == "counts" else "auto"
    found = fit_table(frame, "y", recipe=recipe, task=task)
    assert found.derived.levels is not None
    assert found.derived.levels.outputs == (2 if kind == "three" else 1)
    at = len(found.schema.feature_names)
    x = found.inputs(frame)
    if kind == "counts":
        assert "binomial" in found.found["recipe"]["noise"] or found.likelihood.has_counts
    else:
        last = (frame["y"] == ("v" if kind == "two" else "w")).to_numpy(float)
        assert np.corrcoef(x[:, at + (kind == "three")], last)[0, 1] > 0.3


def test_weights_groups_and_time_reach_the_levels() -> None:
    rng = np.random.default_rng(0)
    frame = small().assign(
        weight=rng.uniform(0, 2, 400), block=rng.integers(0, 20, 400), day=np.arange(400)[::-1] / 7
    )
    means = []
    for options in ({}, {"weights": "weight"}, {"group": "block"}, {"time": "day"}):
        unused = tuple({"weight", "block", "day"} - set(options.values()))
        found = fit_table(frame, "y", recipe=QUICK, test_share=0.0, ignore=unused, **options)
        assert found.derived.levels is not None
        assert found.derived.levels.factors.all()
        means.append(found.derived.levels.means)
    assert np.abs(means[1] - means[0]).max() > 0.01
