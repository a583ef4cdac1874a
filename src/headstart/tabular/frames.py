"""Tables from files: csv and its relatives in the usual dialects, parquet; whole or in chunks."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import pandas as pd
import pyarrow.parquet as pq

from headstart.errors import HeadstartError, untrusted
from headstart.tabular.decimal_marks import decimal_mark, is_decimal, points_group, with_points_
from headstart.tabular.other_files import in_chunks, reader_of

STDIN = "-"
HEAD_BYTES = 2**22
"""What is looked at to tell the encoding, the separator and the decimal mark."""
ROWS_PER_CHUNK = 20_000
SEPARATORS = ",;\t|"
OTHER_SEPARATORS = {" ": "spaces", ":": "colons", "^": "carets", "~": "tildes"}
"""What is between cells of other files, and is not read."""


@dataclass(frozen=True)
class Dialect:
    """How a text table is written."""

    encoding: str = "utf-8-sig"
    separator: str = ","
    decimal: str = "."
    thousands: str = ""


class FrameWithTexts(NamedTuple):
    """A table, or a piece of one, as it was read.

    Args:
        frame: Its cells, with a point as the decimal mark and nothing between thousands.
        written: By column, the file's text of numbers with a unit that were written differently.
    """

    frame: pd.DataFrame
    written: dict[str, dict[str, str]]


def read_frame(source: str | Path) -> pd.DataFrame:
    """A whole table; numbers of text files stay text, so that 1 stays 1 whatever stands below it.

    Args:
        source: The file to read; `-` is standard input.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "rain.csv"
        ...     _ = path.write_text("wind;wet\\n1,5;yes\\n2,5;no\\n")
        ...     read_frame(path).values.tolist()
        [['1.5', 'yes'], ['2.5', 'no']]
    """
    return read_with_texts(source).frame


def read_with_texts(source: str | Path) -> FrameWithTexts:
    """As `read_frame`, with what the file has in place of cells that are written differently.

    Args:
        source: The file to read; `-` is standard input.
    """
    # Without a number of rows, a table is one piece.
    (table,) = _pieces(source, None)
    return table


def read_chunks(source: str | Path, rows: int | None = ROWS_PER_CHUNK) -> Iterator[pd.DataFrame]:
    """A table in chunks of `rows` rows, in memory that does not grow with the file."""
    for piece in _pieces(source, rows):
        yield piece.frame


def _pieces(source: str | Path, rows: int | None) -> Iterator[FrameWithTexts]:
    name = "standard input" if str(source) == STDIN else Path(source).name
    if str(source) != STDIN and not Path(source).is_file():
        folder = " (it is a folder)" if Path(source).is_dir() else ""
        raise HeadstartError(f"There is no file {source}{folder}.")
    # Readers fail in many ways: pandas, arrow, zlib and codecs each have their own.
    with untrusted(name, "cannot be read"):
        try:
            reader = reader_of(name)
            whole = reader(Path(source)) if reader else None
            if whole is not None:
                for part in in_chunks(_checked(plain_frame(whole, name), name), rows):
                    yield FrameWithTexts(part, {})
            elif name.endswith((".parquet", ".pq")):
                for part in _parquet_chunks(Path(source), rows):
                    yield FrameWithTexts(part, {})
            else:
                yield from _text_chunks(source, name, rows)
        except (pd.errors.ParserError, csv.Error) as error:
            raise HeadstartError(_uneven_lines(str(error), name)) from error


def _uneven_lines(said: str, name: str) -> str:
    """What is wrong with a text table that the parser refuses, in a sentence."""
    found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", said)
    where = f"line {found[2]} has {found[3]}, and its header {found[1]}" if found else said.strip()
    return (
        f"{name} is not a table with as many cells in every line: {where}. "
        "A cell that holds the mark between cells takes quotes around it; if another mark is "
        "between the cells than in the header, mend that first."
    )


def _parquet_chunks(path: Path, rows: int | None) -> Iterator[pd.DataFrame]:
    with pq.ParquetFile(path) as file:
        if file.metadata.num_rows == 0:
            raise HeadstartError(f"{path.name} has no rows.")
        if rows is None:
            yield _checked(plain_frame(file.read().to_pandas(), path.name), path.name)
            return
        for batch in file.iter_batches(rows):
            yield _checked(plain_frame(batch.to_pandas(), path.name), path.name)


def plain_frame(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """The table with cells as a text file would have them.

    Points in time become ISO dates and durations seconds, each cell for itself: what stands in the
    others of its column does not matter. Lists and tables in cells are refused.
    """
    if any(level is not None for level in frame.index.names):
        frame = frame.reset_index()
    frame = frame.copy(deep=False)
    frame.columns = [str(column) for column in frame.columns]
    _refuse_duplicates(frame, name)
    for column in frame.columns:
        values = frame[column]
        if isinstance(values.dtype, pd.SparseDtype):
            frame[column] = values = values.sparse.to_dense()
        if isinstance(values.dtype, pd.DatetimeTZDtype) or values.dtype.kind == "M":
            frame[column] = values.dt.strftime(_TIME_FORMAT).astype(object)
        elif values.dtype.kind == "m":
            frame[column] = values.dt.total_seconds()
        elif values.dtype == object or isinstance(values.dtype, pd.CategoricalDtype):
            where = f"The column {column!r} of {name}"
            cells = [_plain_cell(cell, where) for cell in values]
            frame[column] = pd.Series(cells, index=frame.index, dtype=object)
    return frame


_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S"


def _plain_cell(cell: Any, where: str) -> Any:
    if hasattr(cell, "__len__") and not isinstance(cell, (str, bytes)):
        raise HeadstartError(
            f"{where} holds lists or tables in its cells: spread or drop it first."
        )
    if cell is pd.NaT:
        return None
    if isinstance(cell, datetime):
        return cell.strftime(_TIME_FORMAT)
    if isinstance(cell, date):
        return cell.isoformat()
    return cell.total_seconds() if isinstance(cell, timedelta) else cell


def _text_chunks(source: str | Path, name: str, rows: int | None) -> Iterator[FrameWithTexts]:
    with _open_source(source) as raw:
        head = _read_head(raw)
        if not head.strip():
            raise HeadstartError(f"{name} is empty.")
        dialect = sniff(head, name)
        _refuse_equal_names(head, dialect, name)
        stream = io.TextIOWrapper(
            cast(IO[bytes], io.BufferedReader(_Replay(head, raw))), encoding=dialect.encoding
        )
        options: dict[str, Any] = {
            "sep": dialect.separator,
            "dtype": str,
            "skipinitialspace": True,
            "index_col": False,
            "na_values": ["?"],
        }
        whole = (
            [pd.read_csv(stream, **options)]
            if rows is None
            else pd.read_csv(stream, chunksize=rows, **options)
        )
        seen = 0
        for part in whole:
            seen += len(part)
            if len(part):
                checked = _checked(part, name)
                commas = dialect.decimal == ","
                yield FrameWithTexts(
                    checked, with_points_(checked, dialect.thousands) if commas else {}
                )
        if seen == 0:
            raise HeadstartError(f"{name} has a header and no rows.")


def _open_source(source: str | Path) -> IO[bytes]:
    if str(source) == STDIN:
        return sys.stdin.buffer
    path = Path(source)
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _read_head(raw: IO[bytes]) -> bytes:
    """Up to so many bytes; a pipe gives them in pieces."""
    pieces, missing = [], HEAD_BYTES
    while missing and (piece := raw.read(missing)):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


class _Replay(io.RawIOBase):
    """A stream whose beginning has been read: that again, then the rest."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = io.BytesIO(head), rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._head.read(len(buffer)) or self._rest.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


def sniff(head: bytes, name: str = "the table") -> Dialect:
    """The dialect of a text table, from its first bytes.

    Example:
        >>> sniff("größe;preis\\n1,5;2\\n".encode("latin-1"))
        Dialect(encoding='cp1252', separator=';', decimal=',', thousands='')
    """
    encoding, text = _decode(head)
    if "\x00" in text[:4096]:
        raise HeadstartError(
            f"{name} is not a text file; csv, tsv (plain or .gz), .parquet, .json, .jsonl and "
            ".xlsx are read."
        )
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise HeadstartError(f"{name} is empty.")
    counts = {mark: _outside_quotes(lines[0], mark) for mark in SEPARATORS}
    separator = max(counts, key=lambda mark: counts[mark])
    if not counts[separator]:
        _refuse_other_separator(lines, name)
    _refuse_two_separators(lines, separator, name)
    decimal = decimal_mark(lines[1:], separator)
    thousands = "." if decimal == "," and points_group(lines[1:], separator) else ""
    return Dialect(encoding, separator, decimal, thousands)


def _refuse_other_separator(lines: list[str], name: str) -> None:
    """Refuse a table whose every line has as many of another mark between its cells."""
    for mark, word in OTHER_SEPARATORS.items():
        counts = {len(line.split(mark)) for line in lines[:20]}
        if len(lines) > 1 and len(counts) == 1 and counts.pop() > 1:
            raise HeadstartError(
                f"{name} has {word} between its cells, it seems; commas, semicolons, tabs and bars "
                "are read: write it with one of those."
            )


def _refuse_two_separators(lines: list[str], separator: str, name: str) -> None:
    """Refuse a table whose header has another mark between its cells than the lines below."""
    below = lines[1:20]
    if not below or any(_outside_quotes(line, separator) for line in below):
        return
    for mark in SEPARATORS:
        if all(_outside_quotes(line, mark) for line in below):
            raise HeadstartError(
                f"{name} has {mark!r} between its cells, but {separator!r} in its header: "
                "write one of them in both."
            )


def _decode(head: bytes) -> tuple[str, str]:
    """The encoding and the text: UTF-16 if it says so, UTF-8, or Latin-1 as Windows has it."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", head.decode("utf-16", errors="replace")
    try:
        # Incrementally, since the last character may be cut in two.
        return "utf-8-sig", codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError:
        return "cp1252", head.decode("cp1252", errors="replace")


def _outside_quotes(line: str, mark: str) -> int:
    return sum(part.count(mark) for part in line.split('"')[::2])


def _refuse_equal_names(head: bytes, dialect: Dialect, name: str) -> None:
    """Refuse two columns of one name: pandas would rename one, and the target would be either."""
    lines = io.StringIO(head.decode(dialect.encoding, errors="replace"))
    rows = filter(None, csv.reader(lines, delimiter=dialect.separator, skipinitialspace=True))
    header = [cell.strip() for cell in next(rows)]
    if len(next(rows, [])) > len(header):
        raise HeadstartError(
            f"{name} has more cells in its first line than names in its header: name every column."
        )
    equal = [cell for cell in header if cell and header.count(cell) > 1]
    if equal:
        raise HeadstartError(f"{name} has two columns named {equal[0]!r}; {_advice(equal[0])}.")


def _advice(cell: str) -> str:
    """What to do about a name that two columns have."""
    return "its first line must be a header" if is_decimal(cell) else "rename one"


def _checked(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    frame.columns = [str(column).strip() for column in frame.columns]
    _refuse_duplicates(frame, name)
    return frame.reset_index(drop=True)


def _refuse_duplicates(frame: pd.DataFrame, name: str) -> None:
    equal = frame.columns[frame.columns.duplicated()]
    if len(equal):
        raise HeadstartError(f"{name} has two columns named {equal[0]!r}; rename one.")
