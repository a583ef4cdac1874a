"""What `headstart fit` learns: classes, noise that varies, any size, and after interruptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

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


@pytest.mark.slow
def test_a_fit_that_was_killed_goes_on(tmp_path: Path) -> None:
    """A real process, killed, then interrupted, then resumed, ends as an uninterrupted one."""
    houses(200).to_csv(tmp_path / "t.csv", index=False)

    def start(out: str, *more: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "headstart.cli",
            "fit",
            "t.csv",
            "--target",
            "price",
            "--out",
            out,
            "--steps",
            "1200",
            *more,
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            command,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def wait_for_a_checkpoint(beyond: int) -> int:
        for _ in range(600):
            steps = [int(path.stem[5:]) for path in (tmp_path / ".run.unfinished").glob("step-*")]
            if steps and max(steps) > beyond:
                return max(steps)
            time.sleep(0.1)
        raise AssertionError("no checkpoint came")

    with start("run") as process:
        reached = wait_for_a_checkpoint(0)
        process.kill()
    assert not (tmp_path / "run").exists()
    with start("run") as process:
        assert "--resume" in process.communicate()[1]
    assert process.returncode == 2
    with start("run", "--resume") as process:
        wait_for_a_checkpoint(reached)
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert process.returncode == 130, said
    assert "Stopped after step" in said
    assert "Traceback" not in said
    with start("run", "--resume") as process:
        assert process.communicate()[1].startswith("price is taken for a quantity")
    with start("whole") as process:
        process.communicate()
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "t.csv", "whole"]
