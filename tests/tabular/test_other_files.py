"""JSON and Excel files as tables; what is not read is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from headstart.errors import HeadstartError
from headstart.tabular.cells import to_numbers
from headstart.tabular.frames import read_chunks, read_frame, read_with_texts, sniff
from headstart.tabular.other_files import UNREAD
from headstart.tabular.schema import Schema
from headstart.tabular.target import Target

ROWS = [{"a": 1, "b": "x"}, {"a": 2.5, "b": None}, {"a": 3, "b": "y"}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.json", json.dumps(ROWS)),
        ("t.json", json.dumps({"a": [1, 2.5, 3], "b": ["x", None, "y"]})),
        ("t.jsonl", "\n".join(json.dumps(row) for row in ROWS) + "\n\n"),
    ],
)
def test_json_is_read(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    frame = read_frame(tmp_path / name)
    assert to_numbers(frame["a"]).tolist() == [1, 2.5, 3]
    assert frame["b"].tolist() == ["x", None, "y"]
    assert [len(part) for part in read_chunks(tmp_path / name, rows=2)] == [2, 1]


def test_excel_is_read(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2], "d": pd.to_datetime(["2024-01-01", "2024-02-01"])})
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    found = read_frame(tmp_path / "t.xlsx")
    assert found["a"].tolist() == [1, 2]
    assert found["d"].tolist() == ["2024-01-01T00:00:00", "2024-02-01T00:00:00"]
    with pd.ExcelWriter(tmp_path / "two.xlsx") as book:
        frame.to_excel(book, sheet_name="first", index=False)
        frame.to_excel(book, sheet_name="second", index=False)
    with pytest.raises(HeadstartError, match="2 sheets with rows"):
        read_frame(tmp_path / "two.xlsx")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.json", "[1, 2]", "no table"),
        ("t.json", '{"a": 1}', "no table"),
        ("t.json", "{", "is not JSON"),
        ("t.json", "[]", "no table"),
        ("t.jsonl", '{"a": 1}\n{', "Line 2"),
        ("t.xlsx", "not a workbook", "cannot be read"),
    ],
)
def test_what_is_no_table_is_told(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(HeadstartError, match=words):
        read_frame(tmp_path / name)


@pytest.mark.parametrize("suffix", UNREAD)
def test_other_files_are_refused_by_name(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"t{suffix}").write_bytes(b"\x00\x01")
    with pytest.raises(HeadstartError, match="which is not read"):
        read_frame(tmp_path / f"t{suffix}")


@pytest.mark.parametrize(("mark", "word"), [(" ", "spaces"), (":", "colons"), ("^", "carets")])
def test_another_separator_is_named(mark: str, word: str) -> None:
    content = "a,b,y\n1,2,3\n4,5,6\n".replace(",", mark)
    with pytest.raises(HeadstartError, match=f"has {word} between its cells"):
        sniff(content.encode())
    assert sniff(b"the only column\n1\n2\n").separator == ","


def test_a_header_with_another_separator_is_told() -> None:
    with pytest.raises(HeadstartError, match="has ';' between its cells, but ',' in its header"):
        sniff(b"a,b,y\n1;2;3\n4;5;6\n")


def test_points_between_thousands_go_where_commas_are_decimal(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1.234,50;2.000 €\n12,5;3.500.000 €\n")
    assert read_frame(path).values.tolist() == [["1234.50", "2000 €"], ["12.5", "3500000 €"]]
    path.write_text("a;b\n1,50;2.125\n12,5;3.5\n")
    assert read_frame(path)["b"].tolist() == ["2.125", "3.5"]


def test_a_note_quotes_a_number_as_the_file_has_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = "".join(f"{k}.{345 + 7 * k} €;1,{k};{k}.001\n" for k in range(10, 40))
    path.write_text(f"price ;size;plain\n{lines}")
    table = read_with_texts(path)
    assert list(table.written) == ["price"]
    assert table.frame["price"][0] == "10415 €"
    goal = Target.learn(table.frame["size"], "size", "regression")
    notes = Schema.for_target(table.frame, goal, written=table.written).warnings
    assert notes == ["The column 'price' holds '10.415 €', which is read as 10415."]
    goal = Target.learn(table.frame["price"], "price", "regression")
    assert Schema.for_target(table.frame, goal, written=table.written).warnings == notes
