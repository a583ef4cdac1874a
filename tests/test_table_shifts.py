"""The benchmark of rows unlike the training data: which rows are which, and what a page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def shifts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark, with a table of two columns."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks"))
    import table_shifts

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=100), "b": rng.normal(size=100)})
    frame["target"] = frame["b"] - 0.1 * frame["a"]
    monkeypatch.setattr(table_shifts, "frame_of", lambda name: frame)
    return table_shifts


def test_parts_are_the_rows_that_they_are_called(shifts: Any) -> None:
    split, where, feature = shifts.shifted_split("concrete", 1)
    ordinary, shifted, wrong = (split.test.iloc[where[part]] for part in shifts.PARTS)
    assert feature == "b"
    assert (len(split.train), len(ordinary), len(shifted), len(wrong)) == (72, 8, 20, 8)
    assert shifted["b"].min() > max(split.train["b"].max(), ordinary["b"].max())
    assert wrong["b"].to_numpy() == pytest.approx(1000 * ordinary["b"].to_numpy())
    for column in ("a", "target"):
        assert wrong[column].tolist() == ordinary[column].tolist()
    assert not set(split.train["a"]) & set(split.test["a"])


def test_a_library_that_is_missing_is_no_result(shifts: Any, monkeypatch: Any) -> None:
    def fails(kind: type[Exception]) -> Any:
        def method(*given: Any) -> Any:
            raise kind("why")

        return method

    monkeypatch.setitem(shifts.METHODS, "rival", fails(ValueError))
    assert [row["failed"] for row in shifts.fitted("concrete", 0, "rival")] == ["ValueError: why"]
    monkeypatch.setitem(shifts.METHODS, "rival", fails(ModuleNotFoundError))
    with pytest.raises(ImportError):
        list(shifts.fitted("concrete", 0, "rival"))


def test_a_page_is_of_one_version(shifts: Any, tmp_path: Path) -> None:
    about = {"table": "concrete", "method": shifts.OURS, "feature": "b", "seconds": 1.0}
    scores = {"nll": 1.0, "median nll": 0.5, "coverage": 0.95, "flagged": 0.25}
    rows = [
        {**about, **scores, "split": split, "part": part, "code": "one"}
        for split in range(2)
        for part in shifts.PARTS
    ]
    shifts.page(rows, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "0.95, 1, 0.5" in text
    assert "0.250" in text
    with pytest.raises(ValueError, match="too many values"):
        shifts.page([*rows[:3], *(row | {"code": "two"} for row in rows[3:])], tmp_path / "page.md")
