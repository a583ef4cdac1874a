"""Tables from JSON and Excel files, which are read whole; and the names of what is not read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from headstart.errors import HeadstartError

UNREAD = {
    ".xls": "an Excel file of before 2007",
    ".ods": "an OpenDocument file",
    ".zip": "an archive",
    ".pkl": "a pickle, which may run code",
    ".pickle": "a pickle, which may run code",
    ".sav": "an SPSS file",
    ".dta": "a Stata file",
    ".sas7bdat": "a SAS file",
    ".feather": "a Feather file",
    ".arrow": "an Arrow file",
    ".db": "a database",
    ".sqlite": "a database",
    ".rds": "an R file",
    ".rdata": "an R file",
    ".pdf": "a PDF",
}
"""By suffix, what is refused by name."""


def reader_of(name: str) -> Callable[[Path], pd.DataFrame] | None:
    """What reads a whole file of this name; None: it is a text table, or parquet."""
    suffix = Path(name.lower()).suffix
    if suffix in UNREAD:
        raise HeadstartError(
            f"{name} is {UNREAD[suffix]}, which is not read: save it as .csv, .parquet or .xlsx."
        )
    return READERS.get(suffix)


def in_chunks(frame: pd.DataFrame, rows: int | None) -> Iterator[pd.DataFrame]:
    """A table in parts of so many rows; None: as it is."""
    if not len(frame):
        raise HeadstartError("The file has no rows.")
    for start in range(0, len(frame), rows or len(frame)):
        yield frame.iloc[start : start + (rows or len(frame))].reset_index(drop=True)


def read_json_table(path: Path) -> pd.DataFrame:
    """A list of objects, or an object of lists of one length."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise HeadstartError(f"{path.name} is not JSON: {error}.") from error
    return _frame_of_json(content, path.name)


def read_json_lines(path: Path) -> pd.DataFrame:
    """An object in every line."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
        try:
            rows += [json.loads(line)] if line.strip() else []
        except ValueError as error:
            raise HeadstartError(f"Line {number} of {path.name} is not JSON: {error}.") from error
    return _frame_of_json(rows, path.name)


def _frame_of_json(content: Any, name: str) -> pd.DataFrame:
    rows = isinstance(content, list) and all(isinstance(row, dict) for row in content)
    columns = (
        isinstance(content, dict)
        and all(isinstance(column, list) for column in content.values())
        and len({len(column) for column in content.values()}) == 1
    )
    if not (rows or columns) or not content:
        raise HeadstartError(
            f"{name} is JSON but no table: a list of objects, one a row, is read, "
            "or an object of lists of one length, one a column."
        )
    return pd.DataFrame(content, dtype=object)


def read_excel_table(path: Path) -> pd.DataFrame:
    """The only sheet of a workbook that holds anything."""
    sheets = pd.read_excel(path, sheet_name=None, dtype=object, engine="openpyxl")
    filled = {name: sheet for name, sheet in sheets.items() if len(sheet)}
    if len(filled) != 1:
        names = ", ".join(repr(name) for name in filled) or "none"
        raise HeadstartError(
            f"{path.name} has {len(filled)} sheets with rows ({names}): "
            "save the one to read as a file of its own."
        )
    return next(iter(filled.values()))


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".json": read_json_table,
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".xlsx": read_excel_table,
    ".xlsm": read_excel_table,
}
"""By suffix, what reads a whole file."""
