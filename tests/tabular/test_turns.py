"""Without test rows: a verdict from rows held out in turn, which can fail."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from headstart.tabular.fit import fit_table
from headstart.tabular.words import verdict_in_words
from headstart.training.recipe import Recipe

RECIPE = Recipe(model="mlp-1x8", steps=60, samples=2, trees=False, noise="constant", folds=3)
CLASSES = Recipe(model="mlp-1x8", steps=60, samples=2, trees=False, folds=3)


def rows(count: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(count, 2)), columns=["a", "b"])
    return frame.assign(y=frame.a + 0.3 * rng.normal(size=count), noise=rng.normal(size=count))


@pytest.mark.parametrize("classes", [False, True])
def test_rows_held_out_in_turn_give_a_verdict(classes: bool) -> None:
    frame = rows().drop(columns="noise")
    if classes:
        frame["y"] = np.where(frame.y > 0, "up", "down")
    run = fit_table(frame, "y", recipe=CLASSES if classes else RECIPE, test_share=0)
    checks = {check["name"]: check for check in run.found["checks"]}
    assert checks["rows"]["sentence"] == "120 rows held out in turn"
    assert checks["skill"]["passed"]
    calibration = "probabilities" if classes else "intervals"
    assert set(checks) == {"rows", "skill", "baselines", "leaks", calibration}
    if classes:
        bins = {name: np.array(values) for name, values in run.found["reliability"].items()}
        gaps = np.abs(bins["confidence"] - bins["accuracy"]) * bins["rows"]
        assert run.found["scores"]["ece"] == pytest.approx(gaps.sum() / 120, abs=1e-6)
    (said,) = verdict_in_words(run)
    assert said.startswith("Rely on it for its predictions")
    assert said.endswith("rows kept by --test-share would judge more strictly.")


def test_where_there_is_nothing_to_learn_the_verdict_says_so() -> None:
    frame = rows().drop(columns="y")
    run = fit_table(frame, "noise", recipe=RECIPE, test_share=0)
    (said,) = verdict_in_words(run)
    assert said.startswith("Do not rely on it, because it is not clearly better than always the")
