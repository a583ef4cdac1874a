"""Any file may be given as a table: it is learned from, or refused in a sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.hostile import corpus
from tests.hostile.conftest import command, fuzzed, tree


@pytest.mark.slow
@fuzzed
@given(data=st.data())
def test_fit_and_predict(place: Path, data: st.DataObject) -> None:
    for old in ("in", "out"):
        shutil.rmtree(place / old, ignore_errors=True)
        (place / old).mkdir()
    precious = place / "in" / "precious.txt"
    precious.write_text("results of old")
    table = data.draw(corpus.table_file(place / "in"))
    before = tree(place)
    code, said = command(
        "fit", str(table), "--target", "y", "--out", str(place / "out" / "run"), "--steps", "3"
    )
    assert code in (0, 2), said
    event("refused" if code else "learned")
    after = tree(place)
    assert {name: after.get(name) for name in before} == before
    if code:
        assert said.startswith("headstart: "), said
        assert said.strip().count("\n") == 0, said
        assert after == before, said
        return
    assert all(name.startswith("out/run/") for name in after.keys() - before.keys())
    assert "<script>" not in (place / "out" / "run" / "report.html").read_text(
        encoding="utf-8"
    ).replace("<script>\n", "")
    code, said = command(
        "predict", str(place / "out" / "run"), str(table), "--out", str(place / "out" / "p.csv")
    )
    assert code == 0, said
    said_of_rows = pd.read_csv(place / "out" / "p.csv").drop(columns="unlike_because")
    numbers = said_of_rows.select_dtypes("number")
    assert np.isfinite(numbers.to_numpy()).all()
