"""A user's csv file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.errors import HeadstartError
from headstart.experiments.plan import comparison
from headstart.experiments.run import run_experiment
from headstart.experiments.tables import read_table

ROWS = range(60)


def table(folder: Path, target: list[object], name: str = "my $data$.csv") -> Path:
    path = folder / name
    path.write_text(
        "a,b,label\n"
        + "".join(f"{i / 2},{i % 7},{value}\n" for i, value in zip(ROWS, target, strict=False))
    )
    return path


def test_many_numbers_are_a_quantity(tmp_path: Path) -> None:
    dataset = read_table(table(tmp_path, [i / 3 for i in ROWS]), "label")
    assert (dataset.task, tuple(dataset.x.shape), tuple(dataset.y.shape)) == (
        "regression",
        (60, 2),
        (60, 1),
    )
    assert dataset.feature_names == ("a", "b")


@pytest.mark.parametrize("values", [["no", "yes", "maybe"], [0, 1, 2], [0.5, 1.5, 2.5]])
def test_few_values_are_classes(tmp_path: Path, values: list[object]) -> None:
    dataset = read_table(table(tmp_path, [values[i % 3] for i in ROWS]), "label")
    assert dataset.task == "classification"
    assert dataset.y.bincount().tolist() == [20, 20, 20]
    assert dataset.class_names == tuple(sorted(map(str, values)))


def test_words_and_holes_are_read_as_fit_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = (
        f"{i % 4 + 0.5};{'red' if i % 2 else 'green'};{i / 3 if i % 5 else ''}\n".replace(".", ",")
        for i in ROWS
    )
    path.write_text("size;colour;label\n" + "".join(lines))
    dataset = read_table(path, "label")
    assert dataset.feature_names == ("size", "colour = green", "colour = red")
    assert tuple(dataset.x.shape) == (48, 3)
    assert dataset.x.isfinite().all()


def test_a_table_is_compared_like_any_data_set(tmp_path: Path) -> None:
    path = table(tmp_path, [i / 3 for i in ROWS])
    (one,) = comparison(str(path), "mlp-1x10", ["iblm"], target="label", steps=5)
    last = run_experiment(one)[-1]
    assert last["rmse"] < 0.6 * last["trivial"]
    table(tmp_path, [i / 4 for i in ROWS])
    (edited,) = comparison(str(path), "mlp-1x10", ["iblm"], target="label", steps=5)
    assert edited.key != one.key


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("label\n1\n2\n", "no column beside 'label'"),
        ("a,labels\n1,1\n", "did you mean 'labels'"),
        ("a,label\n1,same\n2,same\n", "single value"),
        ("", "is empty"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(HeadstartError, match=sentence):
        read_table(path, "label")


def test_a_missing_file_and_a_missing_target_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HeadstartError, match="There is no file"):
        comparison(str(tmp_path / "none.csv"), "mlp-1x10", ["iblm"], target="y")
    with pytest.raises(HeadstartError, match="Name it with --target"):
        comparison("my.csv", "mlp-1x10", ["iblm"])
    with pytest.raises(HeadstartError, match="at least one initializer"):
        comparison("toy", "mlp-1x10", [])
