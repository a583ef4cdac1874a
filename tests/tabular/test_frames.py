"""Tables as they come: dialects, encodings, compression, chunks; and what is no table."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import pandas as pd
import pytest

from headstart.errors import HeadstartError
from headstart.tabular.frames import HEAD_BYTES, plain_frame, read_chunks, read_frame, sniff

PLAIN = "size,city,price\n1.5,Köln,10\n2.5,Bonn,\n"
EXPECTED = [["1.5", "Köln", "10"], ["2.5", "Bonn", None]]


def values(frame: pd.DataFrame) -> list[list[str | None]]:
    return frame.astype(object).where(frame.notna(), None).values.tolist()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", PLAIN.encode()),
        ("bom.csv", PLAIN.encode("utf-8-sig")),
        ("latin.csv", PLAIN.encode("latin-1")),
        ("unicode.csv", PLAIN.encode("utf-16")),
        ("big_endian.txt", b"\xfe\xff" + PLAIN.replace(",", "\t").encode("utf-16-be")),
        ("a.csv.gz", gzip.compress(PLAIN.encode(), mtime=0)),
        ("a.tsv", PLAIN.replace(",", "\t").encode()),
        ("bars.txt", PLAIN.replace(",", "|").encode()),
        ("semicolons.csv", PLAIN.replace(",", ";").encode()),
        ("commas.csv", PLAIN.replace(",", ";").replace(".", ",").encode()),
        ("crlf.csv", PLAIN.replace("\n", "\r\n").encode()),
        ("spaces.csv", PLAIN.replace(",", ", ").encode()),
        ("quotes.csv", PLAIN.replace("Köln", '"Köln"').encode()),
    ],
)
def test_dialects_give_the_same_table(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    frame = read_frame(path)
    assert list(frame.columns) == ["size", "city", "price"]
    assert values(frame) == EXPECTED


def test_parquet_whole_and_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame({"size": [1.5, 2.5, 3.5], "city": ["a", None, "b"]})
    frame.to_parquet(path)
    pd.testing.assert_frame_equal(read_frame(path), frame)
    assert [len(part) for part in read_chunks(path, rows=2)] == [2, 1]


def test_parquet_speaks_as_text_does(tmp_path: Path) -> None:
    """Points in time in any unit and zone, durations, an index; lists in cells are refused."""
    path = tmp_path / "a.parquet"
    moments = pd.date_range("2024-01-01", periods=3, freq="D")
    frame = pd.DataFrame(
        {
            "ns": moments.as_unit("ns"),
            "ms": moments.as_unit("ms"),
            "zone": moments.tz_localize("UTC"),
            "took": pd.to_timedelta([1, 2, 3], "min"),
        }
    )
    frame.index = pd.Index([7, 8, 9], name="place")
    frame.to_parquet(path)
    found = read_frame(path)
    assert found["ns"].tolist() == found["ms"].tolist() == found["zone"].tolist()
    assert found["ns"][1] == "2024-01-02T00:00:00"
    assert found["took"].tolist() == [60.0, 120.0, 180.0]
    assert found["place"].tolist() == [7, 8, 9]
    pd.DataFrame({"a": [[1, 2], [3]]}).to_parquet(path)
    with pytest.raises(HeadstartError, match="holds lists"):
        read_frame(path)


def test_what_may_be_thousands_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("a\tb\n1,234\tx\n12,500\ty\n")
    assert values(read_frame(path)) == [["1,234", "x"], ["12,500", "y"]]


def test_one_odd_cell_leaves_its_neighbors_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a;b\n1,5;x\n-;y\n2,5;z\n")
    assert values(read_frame(path)) == [["1.5", "x"], ["-", "y"], ["2.5", "z"]]


def test_a_header_that_is_too_short(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,y\nr0,1,2\nr1,3,4\n")
    with pytest.raises(HeadstartError, match="more cells"):
        read_frame(path)


def test_pieces_are_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "".join(f"{i},x{i}\n" for i in range(1000)))
    parts = list(read_chunks(path, rows=300))
    assert [len(part) for part in parts] == [300, 300, 300, 100]
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), read_frame(path))


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # The file is longer than what is read first.
    lines = "a,b\n" + "1,2\n" * (HEAD_BYTES // 4 + 10)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert sum(len(part) for part in read_chunks("-")) == HEAD_BYTES // 4 + 10


def test_a_decimal_comma_is_only_in_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("size;place\n1,5;Rhine, left\n2;Main\n")
    assert values(read_frame(path)) == [["1.5", "Rhine, left"], ["2", "Main"]]
    assert sniff(b"a,b\n1.5,2\n").decimal == "."


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", b"", "empty"),
        ("a.csv", b"  \n \n", "empty"),
        ("a.csv", b"a,b\n", "no rows"),
        ("a.csv", b"a,b\n1,2\n1,2,3,4\n", "cells in every line: line 3 has 4, and its header 2"),
        ("a.csv", b"a,b,a\n1,2,3\n", "two columns named 'a'; rename one"),
        ("a.csv", b"0,1.5,0\n1,2,3\n", "named '0'; its first line must be a header"),
        ("a.csv", "a,b\n".encode("utf-32"), "not a text file"),
        ("a.csv", bytes(range(256)) * 20, "text"),
        ("a.parquet", b"PAR1 but not really", "cannot be read"),
        ("a.csv.gz", b"not gzip", "cannot be read"),
        ("a.csv.gz", gzip.compress(PLAIN.encode() * 100, mtime=0)[:60], "cannot be read"),
    ],
)
def test_what_is_no_table_gets_a_sentence(
    tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(HeadstartError, match=sentence):
        read_frame(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(HeadstartError, match="There is no file"):
            read_frame(path)


def test_names_of_any_kind_are_text_and_no_two_are_the_same() -> None:
    frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["a", 1, ("p", 2)])
    assert plain_frame(frame, "it").columns.tolist() == ["a", "1", "('p', 2)"]
    with pytest.raises(HeadstartError, match="it has two columns named '1'"):
        plain_frame(pd.DataFrame([[1.0, 2.0]], columns=["1", 1]), "it")
