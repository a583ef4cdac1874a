"""Nothing in the test rows, class labels apart, reaches model, schema or calibration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch

from headstart.errors import HeadstartError
from headstart.tabular.fit import fit_table
from headstart.tabular.frames import read_frame
from headstart.tabular.holdout import split_rows
from headstart.tabular.run import MODEL_FILE, TABLE_FILE, TableRun
from headstart.training.derived import LEVELS_FILE
from headstart.training.folds import split_validation
from headstart.training.recipe import Recipe

ROWS, SEED = 120, 5
RECIPE = Recipe(model="mlp-1x8", steps=12, samples=1, validation=0.25, effort="quick", seed=SEED)

Change = Callable[[int], Any]
CHANGES: dict[str, Change] = {
    "numbers": lambda i: (10.0 ** (6 + i % 20), i + 0.12345678901234567, -i, 1.0)[i % 4],
    "missing": lambda i: None,
    "words": lambda i: "never seen" if i % 3 else f"who knows, {i}",
    "all sorts": lambda i: (None, "x", 1e30, "yes", "31.02.2024", "18446744073709551616", "inf")[
        i % 7
    ],
}


def table(rows: int = ROWS) -> pd.DataFrame:
    """Every kind of column that pandas and a file know, of use and of none, and holes."""
    rng = np.random.default_rng(0)
    size, level = rng.gamma(4, 30, rows), rng.integers(0, 3, rows)
    days = pd.date_range("1990-01-01", periods=rows, freq="37D")
    frame = pd.DataFrame(
        {
            "row": np.arange(1, rows + 1),
            "name": [f"house {i}" if i % 15 else "house" for i in range(rows)],
            "size": size,
            "rooms": (size / 25).round().astype(int),
            "city": np.array(["Ulm", "Bonn", "Oslo"])[level],
            "kind": pd.Categorical(np.array(["a", "b"])[level % 2]),
            "garden": rng.random(rows) < 0.4,
            "built": days,
            "sold": days.strftime("%d/%m/%Y"),
            "waited": pd.to_timedelta(rng.integers(1, 90, rows), unit="D"),
            "holes": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(size=rows)),
            "floor": pd.array(np.where(rng.random(rows) < 0.2, None, level + 1), dtype="Int64"),
            "digits": rng.integers(2**60, 2**62, rows),
            "odd": [0.1 * i if i % 40 else "n/k" for i in range(rows)],
            "currency": "EUR",
            "note": None,
        }
    )
    return frame.assign(y=1000 * (size * (1 + level) + rng.normal(size=rows)))


def classes(frame: pd.DataFrame) -> pd.DataFrame:
    places = pd.cut(frame["y"], [-np.inf, 9e4, 3e5, np.inf], labels=False)
    return frame.assign(y=np.array(["low", "fair", "high"])[places])


def read_back(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """The table by way of a csv file: every cell is text."""
    frame.to_csv(path, index=False)
    return read_frame(path)


def rows_to_test(frame: pd.DataFrame, task: str) -> np.ndarray:
    """The positions of the rows that fit keeps to test on."""
    known = np.flatnonzero(frame["y"].notna())
    codes = np.unique(frame["y"].iloc[known].to_numpy(str), return_inverse=True)[1]
    labels = torch.tensor(codes) if task == "classes" else torch.zeros(len(known))
    return known[split_validation(labels, 0.1, SEED + 1)[1].numpy()]


def changed(frame: pd.DataFrame, task: str, change: Change) -> pd.DataFrame:
    """Other cells in the test rows, class labels apart, in columns as pandas types them."""
    places, columns = rows_to_test(frame, task), {}
    for name in frame.columns:
        cells = frame[name].astype(object).to_list()
        for place in places:
            if name != "y":
                cells[place] = change(int(place))
            elif task == "quantity":
                cells[place] = -3.0 * float(cells[place]) + 1e9
        columns[name] = pd.Series(cells, dtype=object).infer_objects()
    return pd.DataFrame(columns)


class Saved(NamedTuple):
    run: TableRun
    files: dict[str, bytes]


def fitted(frame: pd.DataFrame, folder: Path, **options: Any) -> Saved:
    """A run on the table, and what it leaves on disk."""
    run = fit_table(frame, "y", recipe=RECIPE, **options)
    run.save(folder)
    names = [MODEL_FILE, TABLE_FILE, *run.derived.files.values()]
    return Saved(run, {name: (folder / name).read_bytes() for name in names})


class Case(NamedTuple):
    task: str
    in_file: bool
    frame: pd.DataFrame
    saved: Saved


@pytest.fixture(
    scope="module", params=["quantity-memory", "quantity-csv", "classes-memory", "classes-csv"]
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A table as it is, in memory or in a file, and the run on it."""
    folder = tmp_path_factory.mktemp("before")
    task, in_file = request.param.split("-")[0], request.param.endswith("csv")
    frame = table() if task == "quantity" else classes(table())
    if in_file:
        frame = read_back(frame, folder / "t.csv")
    return Case(task, in_file, frame, fitted(frame, folder / "run", conformal=task == "quantity"))


def test_the_table_of_these_tests_has_every_kind(case: Case) -> None:
    schema = case.saved.run.schema
    assert {column.to_json()["kind"] for column in schema.columns} == {"number", "date", "category"}
    # Long whole numbers are names where they are text, and numbers where they are numbers.
    unused = {"row", "name", "currency", "note"} | ({"digits"} if case.in_file else set())
    assert schema.left_out.keys() == unused
    assert schema.target.task == ("regression" if case.task == "quantity" else "classification")
    assert bool(case.saved.run.folds) == (case.task == "quantity")
    assert any("'n/k'" in warning for warning in schema.warnings)


@pytest.mark.parametrize("change", CHANGES)
def test_cells_of_test_rows_change_nothing_that_is_kept(
    case: Case, tmp_path: Path, change: str
) -> None:
    frame = changed(case.frame, case.task, CHANGES[change])
    if case.in_file:
        frame = read_back(frame, tmp_path / "t.csv")
    after = fitted(frame, tmp_path / "run", conformal=case.task == "quantity")
    assert after.files[TABLE_FILE].decode() == case.saved.files[TABLE_FILE].decode()
    assert after.files[MODEL_FILE] == case.saved.files[MODEL_FILE]
    for name in ("validation", "validation_scores", "recipe", "best_step", "rows", "train_rows"):
        assert after.run.found[name] == case.saved.run.found[name]
    assert after.run.found["scores"] != case.saved.run.found["scores"]


@pytest.mark.parametrize("task", ["quantity", "classes"])
def test_cells_of_test_rows_change_no_mean_of_a_level(tmp_path: Path, task: str) -> None:
    frame = table(260).assign(town=[f"town {i * 7 % 65}" for i in range(260)])
    frame = frame if task == "quantity" else classes(frame)
    before = fitted(frame, tmp_path / "before")
    assert before.run.schema.key_columns == ("town",)
    assert LEVELS_FILE in before.files
    # A town that test rows alone have, and one that training rows have.
    for change in (CHANGES["words"], lambda i: f"town {i % 5}"):
        after = fitted(changed(frame, task, change), tmp_path / f"after {change(1)}")
        assert after.files == before.files


def small(labels: list[Any]) -> pd.DataFrame:
    return pd.DataFrame({"a": np.sin(np.arange(len(labels))), "y": labels})


def with_test_labels(frame: pd.DataFrame, *labels: Any) -> pd.DataFrame:
    """Other labels, in turn, in the rows that a quantity is tested on."""
    cells = frame["y"].astype(object).to_list()
    for number, place in enumerate(rows_to_test(frame, "quantity")):
        cells[place] = labels[number % len(labels)]
    return frame.assign(y=pd.Series(cells, dtype=object).infer_objects())


def test_the_training_rows_decide_whether_it_is_a_quantity(tmp_path: Path) -> None:
    frame = small([float(i % 25) for i in range(200)])
    one, other = (
        fitted(with_test_labels(frame, *labels), tmp_path / str(len(labels)), noise="constant")
        for labels in ([3.0], [i + 0.5 for i in range(20)])
    )
    with pytest.raises(HeadstartError, match="holds counts in the rows to learn from"):
        fitted(with_test_labels(frame, 0.5), tmp_path / "mixed")
    assert one.run.schema.target.task == "regression"
    assert one.files == other.files
    few = with_test_labels(
        small([float(i % 20) for i in range(200)]), *(i + 0.5 for i in range(10))
    )
    assert few["y"].nunique() > 20
    target, train, test = split_rows(few["y"], "y", seed=SEED + 1)
    assert target.task == "classification"
    assert set(target.classes) == {label.removesuffix(".0") for label in few["y"].map(str)}
    assert sorted([*train, *test]) == list(range(200))


def test_labels_that_are_no_numbers_in_test_rows(tmp_path: Path) -> None:
    """Without a task they are refused; of a quantity they are rows without a label."""
    frame = small([0.5 * i for i in range(200)])
    cells = frame["y"].astype(object).to_list()
    cells[rows_to_test(frame, "quantity")[0]] = "call us"
    frame["y"] = cells
    with pytest.raises(HeadstartError, match="like 'call us'"):
        split_rows(frame["y"], "y", seed=SEED + 1)
    target, train, test = split_rows(frame["y"], "y", task="regression", seed=SEED + 1)
    assert target.task == "regression"
    assert len(train) + len(test) == 199
    with pytest.raises(HeadstartError, match="single value in the rows to learn from"):
        split_rows(
            with_test_labels(small([1.0] * 100), 2.0, 3.0)["y"],
            "y",
            task="regression",
            seed=SEED + 1,
        )


def test_a_column_that_only_test_rows_vary_is_not_used(tmp_path: Path) -> None:
    frame = small([0.5 * i for i in range(100)])
    places = rows_to_test(frame, "quantity")
    frame["b"], frame["c"] = 1.0, None
    frame.loc[places, "b"] = np.arange(len(places)) + 2.0
    frame["c"] = frame["c"].astype(object)
    frame.loc[places, "c"] = "x"
    run = fitted(frame, tmp_path / "run").run
    assert run.schema.left_out == {"b": "holds a single value", "c": "is empty"}
    assert run.schema.feature_names == ("a",)


def test_a_column_that_counts_the_rows_is_told_among_rows_without_a_label(tmp_path: Path) -> None:
    frame = small([0.5 * i if i % 7 else np.nan for i in range(140)])
    frame.insert(0, "row", np.arange(1, 141))
    frame.insert(0, "down", np.arange(140, 0, -1))
    run = fitted(frame, tmp_path / "run").run
    assert run.schema.left_out == {"row": "counts the rows"}
    assert run.warnings[0] == "20 rows without a known 'y' were left out."


def test_warnings_look_at_all_rows_and_are_kept_apart(tmp_path: Path) -> None:
    frame = small([0.5 * i for i in range(100)])
    frame["b"] = frame["y"].pow(2).astype(object)
    frame.loc[rows_to_test(frame, "quantity")[0], "b"] = "n/k"
    saved = fitted(frame, tmp_path / "run")
    assert (
        "Of the test rows, 1 value of 'b' is of a kind that training has not seen"
        in saved.run.warnings[0]
    )
    assert not saved.run.schema.warnings
    again = TableRun.load(tmp_path / "run")
    assert again.warnings == saved.run.warnings
    twice = pd.concat([small([0.5 * i for i in range(60)])] * 2, ignore_index=True)
    assert any(
        "occur more than once" in warning
        for warning in fitted(twice, tmp_path / "twice").run.warnings
    )
    leaky = small([0.5 * i for i in range(100)]).assign(b=lambda f: 3 - 2 * f["y"])
    assert any(
        "'b' is the target" in warning for warning in fitted(leaky, tmp_path / "leaky").run.warnings
    )


def test_the_table_that_was_given_stays_as_it_was(tmp_path: Path) -> None:
    frame = table()
    run = fitted(frame, tmp_path / "run").run
    run.predict(frame)
    pd.testing.assert_frame_equal(frame, table())
