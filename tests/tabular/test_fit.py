"""What `headstart fit` learns: classes, noise that varies, any size, and after interruptions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headstart.errors import HeadstartError
from headstart.tabular.fit import fit_table
from headstart.training.recipe import Recipe
from tests.tabular.tables import FEW, Headstart, houses


@pytest.mark.slow
def test_classes(tmp_path: Path, headstart: Headstart) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    kind = np.where(x[:, 0] > 0.5, "large", np.where(x[:, 1] > 0, "small", "none"))
    pd.DataFrame(x, columns=["a", "b", "c"]).assign(kind=kind).to_parquet(tmp_path / "t.parquet")
    said = headstart(
        "fit",
        tmp_path / "t.parquet",
        "--target",
        "kind",
        "--out",
        tmp_path / "run",
        "--steps",
        "300",
        "--json",
    )
    assert said.code == 0, said.err
    numbers = json.loads(said.out)
    assert numbers["task"] == "classification"
    assert numbers["scores"]["error"] < 0.15 < numbers["trivial"]["error"]
    assert "one of 3 classes" in said.err
    found = pd.read_csv(
        pd.io.common.StringIO(headstart("predict", tmp_path / "run", tmp_path / "t.parquet").out)
    )
    assert list(found.columns) == [
        "prediction",
        "p_large",
        "p_none",
        "p_small",
        "entropy",
        "mutual_information",
        "unlike_training",
        "unlike_because",
    ]
    np.testing.assert_allclose(found[["p_large", "p_none", "p_small"]].sum(axis=1), 1.0, atol=1e-4)
    assert (found["prediction"] == kind).mean() > 0.85
    assert (
        headstart(
            "fit",
            tmp_path / "t.parquet",
            "--target",
            "kind",
            "--out",
            tmp_path / "r2",
            "--conformal",
            *FEW,
        ).code
        == 2
    )


@pytest.mark.slow
def test_noise_may_vary_with_the_row(tmp_path: Path, headstart: Headstart) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 1500)
    pd.DataFrame({"x": x, "y": x + rng.normal(size=1500) * np.where(x > 0, 0.6, 0.05)}).to_csv(
        tmp_path / "t.csv", index=False
    )
    said = headstart(
        "fit",
        tmp_path / "t.csv",
        "--target",
        "y",
        "--out",
        tmp_path / "run",
        "--noise",
        "varying",
        "--steps",
        "600",
    )
    assert said.code == 0, said.err
    pd.DataFrame({"x": [-0.7, 0.7]}).to_csv(tmp_path / "n.csv", index=False)
    found = pd.read_csv(
        pd.io.common.StringIO(headstart("predict", tmp_path / "run", tmp_path / "n.csv").out)
    )
    assert found["sd_aleatoric"][1] > 4 * found["sd_aleatoric"][0]


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "offset"), [(1e25, 0.0), (1e-30, 0.0), (1.0, 1e8)])
def test_targets_of_any_size_are_learned(
    tmp_path: Path, headstart: Headstart, scale: float, offset: float
) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = scale * (x[:, 0] - 2 * x[:, 1]) + offset
    pd.DataFrame({"a": 1e20 * x[:, 0], "b": x[:, 1], "y": y}).to_csv(
        tmp_path / "t.csv", index=False, float_format="%.12g"
    )
    said = headstart(
        "fit",
        tmp_path / "t.csv",
        "--target",
        "y",
        "--out",
        tmp_path / "run",
        "--steps",
        "200",
        "--json",
    )
    assert said.code == 0, said.err
    numbers = json.loads(said.out)
    assert numbers["scores"]["rmse"] < 0.3 * numbers["trivial"]["rmse"]


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_semicolons_decimal_commas_and_encodings_learn_alike(
    tmp_path: Path, headstart: Headstart, encoding: str
) -> None:
    text = houses(120).to_csv(index=False, sep=";", decimal=",")
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    said = headstart(
        "fit", tmp_path / "t.csv", "--target", "price", "--out", tmp_path / "run", *FEW, "--json"
    )
    assert said.code == 0, said.err
    houses(120).to_csv(tmp_path / "plain.csv", index=False)
    other = headstart(
        "fit",
        tmp_path / "plain.csv",
        "--target",
        "price",
        "--out",
        tmp_path / "run2",
        *FEW,
        "--json",
    )
    assert json.loads(said.out)["scores"] == json.loads(other.out)["scores"]


def test_a_column_of_weights_says_what_each_row_counts() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.uniform(-1, 1, 240), "w": np.tile([1.0, 0.01], 120)})
    frame["y"] = np.where(frame.w == 1, frame.a, -frame.a) + 1e-3 * rng.normal(size=240)
    recipe = Recipe(model="mlp-1x8", steps=150, effort="quick", trees=False, noise="constant")
    run = fit_table(frame, "y", recipe=recipe, weights="w")
    assert run.schema.left_out == {"w": "holds the weights of rows"}
    found = run.predict(frame[["a"]]).mean[:, 0].numpy()
    assert np.polyfit(frame.a, found, 1)[0] > 0.6
    assert "rows count as" in run.found["reasons"][-1]
    assert "All scores count rows alike, whatever their weights." in run.warnings
    with pytest.raises(HeadstartError, match="The column of weights 'w' holds 'many'"):
        fit_table(frame.assign(w="many"), "y", recipe=recipe, weights="w")
    with pytest.raises(HeadstartError, match="There is no column 'v'"):
        fit_table(frame, "y", recipe=recipe, weights="v")
    with pytest.raises(HeadstartError, match="cannot be named by --weights as well"):
        fit_table(frame, "y", recipe=recipe, weights="y")
