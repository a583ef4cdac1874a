"""Settings from a file and from the command line."""

from __future__ import annotations

import json
from pathlib import Path

from headstart.network.layer import bayesian_layers
from headstart.tabular.run import TableRun
from tests.tabular.tables import Headstart, houses


def test_settings_from_a_file_and_a_time_limit(tmp_path: Path, headstart: Headstart) -> None:
    houses(100).to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "c.json").write_text(
        json.dumps({"model": "mlp-1x20", "samples": 2, "lr": 0.01, "steps": 40})
    )
    said = headstart(
        "fit",
        tmp_path / "t.csv",
        "--target",
        "price",
        "--out",
        tmp_path / "run",
        "--config",
        tmp_path / "c.json",
        "--time-limit",
        "20",
    )
    assert said.code == 0, said.err
    recipe = json.loads((tmp_path / "run" / "found.json").read_text())["recipe"]
    assert (recipe["model"], recipe["samples"], recipe["lr"], recipe["steps"]) == (
        "mlp-1x20",
        2,
        0.01,
        40,
    )
    (tmp_path / "c.json").write_text(json.dumps({"learning": 1}))
    said = headstart(
        "fit",
        tmp_path / "t.csv",
        "--target",
        "price",
        "--out",
        tmp_path / "r2",
        "--config",
        tmp_path / "c.json",
    )
    assert said.code == 2
    assert "'learning'" in said.err


def test_refine_from_the_command_line_and_from_a_file(tmp_path: Path, headstart: Headstart) -> None:
    houses(100).to_csv(tmp_path / "t.csv", index=False)
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"refine": True}))
    few = ("fit", tmp_path / "t.csv", "--target", "price", "--model", "mlp-1x20", "--steps", "20")
    for name, more in {"said": ("--refine",), "read": ("--config", config), "plain": ()}.items():
        said = headstart(*few, "--out", tmp_path / name, *more)
        assert said.code == 0, said.err
        run = TableRun.load(tmp_path / name)
        family = list(bayesian_layers(run.model).values())[-1].posterior.name
        assert (family == "full_covariance") == (name != "plain")
        assert run.found["recipe"]["refine"] == (name != "plain")
        assert run.predict(houses(5)).std.isfinite().all()
    config.write_text(json.dumps({"refine": "yes"}))
    said = headstart(*few, "--out", tmp_path / "bad", "--config", config)
    assert said.code == 2
    assert "refine must be true or false, not 'yes'" in said.err
