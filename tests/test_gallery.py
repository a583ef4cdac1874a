"""Every example of the gallery runs, draws one picture, and shows what its page claims."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from headstart.likelihoods import LIKELIHOODS
from headstart.posteriors import POSTERIORS

FOLDER = Path(__file__).parents[1] / "examples/gallery"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))
NEEDS = {"conformal": "mapie", "lightning_trainer": "lightning"}
"""Examples that need a library which headstart does not."""
OWN_DATA = "# Your own data\n# -------------\n"

Names = dict[str, Any]
CLAIMS: dict[str, Callable[[Names], bool]] = {
    "calibration": lambda n: n["ece"]["Bayesian"] < 0.7 * n["ece"]["plain"],
    "conformal": lambda n: n["covered"]["scaled"] > 0.85 and n["slope"]["scaled"] > 1.5,
    "continual": lambda n: (
        abs(n["misses"]["inherit_"][-1] - n["misses"]["all rows so far"][-1]) < 0.02
        and n["misses"]["inherit_"][-1] < 0.8 * n["misses"]["the last part alone"][-1]
    ),
    "gap": lambda n: n["widening"]["conditioned"] > 3 > n["widening"]["mean-field"],
    "last_layer": lambda n: n["after"].mean() < n["before"].mean() - 0.05,
    "lightning_trainer": lambda n: (
        n["trainer"].current_epoch < 200
        and n["curve"].values[-1] < n["curve"].values[0] - 0.2
        and n["scores"]["rmse"] < 0.3
        and n["covered"] > 0.9
    ),
    "mixture": lambda n: n["doubt"]["mixture"].mean() > 1.3 * n["doubt"]["single"].mean(),
    "noise_and_ignorance": lambda n: (
        n["pred"].aleatoric_std[:20].mean() > 2 * n["pred"].aleatoric_std[50:60].mean()
        and n["pred"].epistemic_std[-5:].mean() > 2 * n["pred"].epistemic_std[20:60].mean()
    ),
    "out_of_distribution": lambda n: n["error"] < 0.1 and n["auroc"] > 0.8,
    "own_likelihood": lambda n: n["miss"] < 0.35,
    "own_loop": lambda n: n["scores"][-1][1] < n["scores"][0][1] < n["y"].std(),
    "own_posterior": lambda n: (
        n["variances"]["gallery_one_variance"] < n["variances"]["mean_field"]
        and n["rmse"]["gallery_one_variance"] < 0.35
    ),
    "pipeline": lambda n: n["rmse"] < 0.9 * n["y_test"].std() and n["covered"] > 0.85,
    "refine": lambda n: n["mnll"]["refined"] < n["mnll"]["trained"],
    "sequence": lambda n: n["error"] < 0.2,
    "thompson_sampling": lambda n: n["regret"] < 0.05 and len(n["x"]) == 15,
}


def test_every_example_has_a_claim() -> None:
    assert sorted(CLAIMS) == EXAMPLES
    assert len(EXAMPLES) >= 12


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_a_title_and_ends_with_the_reader_s_data(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    title, line, *_ = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    assert line == "=" * len(title)
    before, found, after = text.partition(OWN_DATA)
    assert found
    assert before.count("plt.show()") == 1
    assert all(last.startswith("#") for last in after.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_shows_what_it_claims(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.extend(plt.get_fignums()))
    try:
        names = runpy.run_path(str(FOLDER / f"{name}.py"))
        plt.gcf().canvas.draw()
    finally:
        plt.close("all")
        for table in (LIKELIHOODS, POSTERIORS):
            for own in [key for key in table if key.startswith("gallery_")]:
                del table[own]
    assert len(shown) == 1
    assert CLAIMS[name](names)
