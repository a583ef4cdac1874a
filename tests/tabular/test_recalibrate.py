"""New labels for an old model: conformal intervals, a temperature, an update."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from headstart.errors import HeadstartError
from headstart.likelihoods import Categorical
from headstart.predictive import Predictive
from headstart.tabular.fit import fit_table
from headstart.tabular.recalibrate import best_temperature, recalibrate, update
from headstart.tabular.run import TableRun
from headstart.training.recipe import Recipe
from tests.tabular.tables import Headstart, houses


def test_the_temperature_undoes_overconfidence() -> None:
    """Labels drawn from probabilities whose logits are a third of those that are given."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4000, 3, generator=generator, dtype=torch.double)
    y = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    pred = Predictive((3 * logits).unsqueeze(0), Categorical(3))
    assert best_temperature(pred, y) == pytest.approx(3, rel=0.1)
    sure = Predictive(logits.unsqueeze(0), Categorical(3))
    assert best_temperature(sure, y) == pytest.approx(1, rel=0.1)


def test_a_quantity_is_covered_again(fitted: Path, headstart: Headstart, tmp_path: Path) -> None:
    """Labels that vary more than before: the intervals hold again, on rows of their own."""
    shutil.copytree(fitted / "run", tmp_path / "run")
    rng = np.random.default_rng(0)

    def noisier(seed: int) -> pd.DataFrame:
        rows = houses(300, seed=seed)
        return rows.assign(price=rows["price"] + 100_000 * rng.normal(size=len(rows)))

    noisier(20).to_csv(tmp_path / "labeled.csv", index=False)
    said = headstart("recalibrate", tmp_path / "run", tmp_path / "labeled.csv")
    assert said.code == 0, said.err
    assert "standard deviations to either side; they held" in said.out
    new = noisier(21)
    y = torch.tensor(new["price"].to_numpy())
    covered = []
    for folder in (fitted / "run", tmp_path / "run"):
        run = TableRun.load(folder)
        low, high = run.intervals(new, run.predict(new), [0.95])[0.95]
        covered.append(float(((y >= low) & (y <= high)).double().mean()))
    assert covered[0] < 0.8
    assert 0.91 < covered[1] < 0.99
    assert (tmp_path / "run" / "report.html").is_file()
    assert "recalibrated" in TableRun.load(tmp_path / "run").found


@pytest.mark.slow
def test_classes_get_a_temperature_that_is_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    frame["y"] = np.where(frame["a"] + 0.3 * rng.normal(size=300) > 0, "up", "down")
    run = fit_table(frame, "y", recipe=Recipe(model="mlp-1x8", steps=60))
    # Half of the new labels are turned round: what was sure is no longer.
    new = frame.assign(y=np.where(rng.random(300) < 0.4, "up", frame["y"]))
    done = recalibrate(run, new)
    assert done.run.temperature > 1
    assert run.temperature == 1
    done.run.save(tmp_path / "run")
    again = TableRun.load(tmp_path / "run")
    assert again.temperature == done.run.temperature
    torch.testing.assert_close(again.predict(new).probs, done.run.predict(new).probs)
    y = torch.tensor(run.schema.target.encode(new["y"]))
    better = [each.predict(new).log_prob(y).mean() for each in (run, again)]
    assert better[1] > better[0]


@pytest.mark.slow
def test_an_update_learns_the_new_and_keeps_the_old(
    fitted: Path, headstart: Headstart, tmp_path: Path
) -> None:
    """New rows with another level of prices pull the predictions there, the run itself stays."""
    run = TableRun.load(fitted / "run")
    new = houses(200, seed=30)
    new["price"] += 50_000
    now = update(run, new, steps=200)
    before, after = (each.predict(new).mean[:, 0] for each in (run, now))
    y = torch.tensor(new["price"].to_numpy())
    assert (after - y).square().mean() < 0.7 * (before - y).square().mean()
    torch.testing.assert_close(TableRun.load(fitted / "run").predict(new).mean[:, 0], before)
    new.to_csv(tmp_path / "new.csv", index=False)
    arguments = ("update", fitted / "run", tmp_path / "new.csv", "--out", tmp_path / "two")
    said = headstart(*arguments, "--steps", "20", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["rows"] == 200
    assert TableRun.load(tmp_path / "two").found["updated"]["rows"] == 200
    said = headstart(*arguments)
    assert said.code == 2
    assert "holds an earlier run: name another one." in said.err
    said = headstart(*arguments[:-1], fitted / "run")
    assert said.code == 2
    assert "name another one, or leave out --out." in said.err


def test_few_labels_are_refused(fitted: Path) -> None:
    run = TableRun.load(fitted / "run")
    with pytest.raises(HeadstartError, match="at least 20"):
        recalibrate(run, houses(10))
    with pytest.raises(HeadstartError, match="0 rows have a known 'price'"):
        update(run, houses(50).drop(columns="price"))


def test_an_update_gives_up_what_calibrated_the_net_as_it_was(
    headstart: Headstart, tmp_path: Path
) -> None:
    quick = Recipe(model="mlp-1x8", steps=5, effort="quick", trees=False, noise="constant")
    run = recalibrate(fit_table(houses(80), "price", recipe=quick), houses(60, seed=5)).run
    run.save(tmp_path / "run")
    rows = houses(80, seed=6)
    rows.loc[:29, "price"] = np.nan
    rows.to_csv(tmp_path / "new.csv", index=False)
    said = headstart("update", tmp_path / "run", tmp_path / "new.csv", "--steps", "5")
    assert said.code == 0, said.err
    assert "Learned from 50 rows more" in said.out
    assert "`headstart recalibrate` makes its intervals fit again" in said.out
    assert not TableRun.load(tmp_path / "run").conformal


def test_an_update_keeps_the_digits_of_a_large_label() -> None:
    """Labels of 1e8 ± 1: in single precision they would be multiples of 8."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=200)})
    frame["y"] = 1e8 + frame.a + 0.1 * rng.normal(size=200)
    recipe = Recipe(model="mlp-1x8", steps=200, effort="quick", trees=False, noise="constant")
    run = fit_table(frame, "y", recipe=recipe)
    now = update(run, frame, steps=50)
    noise = float(now.likelihood.noise_var.detach().sqrt())  # type: ignore[union-attr, operator]
    assert noise < 0.5
    assert next(now.model.parameters()).dtype == torch.float32


def test_a_recalibrated_interval_of_counts_stays_above_zero() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=200)})
    frame["y"] = rng.poisson(np.exp(1 + frame.a))
    recipe = Recipe(model="mlp-1x8", steps=20, effort="quick", trees=False, noise="poisson")
    run = recalibrate(fit_table(frame, "y", task="regression", recipe=recipe), frame).run
    low, _ = run.intervals(frame, run.predict(frame), [0.95])[0.95]
    assert float(low.min()) == 0
