"""Rows beside the pages that show them: small, compressed, the same bytes every time.

A folder of pages holds `rows/PAGE.jsonl.xz` for each page that can be made again without running
anything: the rows of one code, with the columns that pages read, numbers to seven digits.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headstart.errors import HeadstartError, untrusted
from headstart.experiments.results import Results, by_page, label_of
from headstart.experiments.spec import ResultRow
from headstart.metrics import METRICS
from headstart.storage.files import atomic_write

ROWS_FOLDER, ROWS_SUFFIX = "rows", ".jsonl.xz"
DIGITS = 7
"""Significant digits of a number: pages show four."""
SHOWN_SETTINGS = {
    "model": "model",
    "budget": "budget",
    "steps": "steps",
    "epochs": "epochs",
    "samples": "samples in training",
    "eval_samples": "samples at test",
    "test_rows": "test rows",
    "batch": "batch",
    "optimizer": "optimizer",
    "lr": "learning rate",
    "prior": "prior variance",
    "kl_weight": "KL weight",
    "kl_schedule": "KL schedule",
    "seed": "seeds",
    "split": "splits",
    "split_by": "split by",
    "precision": "precision",
    "device": "device",
    "threads": "threads a run",
}
"""Settings of a run that pages show, and what they call them."""
PLACE_COLUMNS = (
    "run",
    "suite",
    "dataset",
    "init",
    "label",
    "method",
    "step",
    "last",
    "code",
    "versions",
)
OUTCOME_COLUMNS = (
    "nc",
    "failed",
    "trivial",
    "nearest_neighbor",
    "test_to_train",
    "paper_nll",
    "seconds",
    "init_seconds",
    "out_of_distribution",
)
PICTURES = ("band", "reliability", "entropies")
"""What pictures are drawn from: of a run's first row and its last."""


def publish(rows: Iterable[ResultRow], pages: Path) -> list[Path]:
    """Put rows beside the pages of a folder, with those that are there already.

    Of each page the rows of one code stay, and of runs that differ in their length alone the last.
    A run that is given again takes the place of its rows.

    Args:
        rows: Rows of finished runs.
        pages: The folder of the pages.

    Returns:
        The files that were written.

    Raises:
        HeadstartError: A row names its suite so that its file would lie elsewhere.
    """
    given = [_published_row(row) for row in rows]
    again = {row["run"] for row in given}
    kept = [row for row in read_published(pages) if row["run"] not in again]
    known = by_page([*kept, *given])
    folder = pages / ROWS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    return [_write_rows(folder, name, results) for name, results in known.items()]


def read_published(pages: Path) -> list[ResultRow]:
    """The rows beside the pages of a folder; none where there are none.

    Args:
        pages: The folder of the pages.

    Raises:
        HeadstartError: A file is not one of ours.
    """
    found: list[ResultRow] = []
    for path in sorted((pages / ROWS_FOLDER).glob(f"*{ROWS_SUFFIX}")):
        with untrusted(path, "holds no rows of headstart's"):
            found += map(json.loads, lzma.decompress(path.read_bytes()).splitlines())
    return found


def _write_rows(folder: Path, name: str, results: Results) -> Path:
    if Path(name).name != name:
        raise HeadstartError(
            f"A row names its suite {name!r}, and its rows would be written into another folder."
        )
    # In the order of what was run, not of when it ended.
    rows = sorted(
        results.rows,
        key=lambda row: (row["dataset"], row["model"], label_of(row), row["split"], row["seed"]),
    )
    text = "".join(json.dumps(row, allow_nan=False, separators=(",", ":")) + "\n" for row in rows)
    path = folder / f"{name}{ROWS_SUFFIX}"
    with atomic_write(path) as temporary:
        temporary.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    return path


def _published_row(row: ResultRow) -> ResultRow:
    """The columns of a row that pages read; a user's file is named without its folder."""
    pictures = PICTURES if row["step"] == 0 or row.get("last") else ()
    columns = dict.fromkeys(
        [*PLACE_COLUMNS, *SHOWN_SETTINGS, *OUTCOME_COLUMNS, *METRICS, *pictures]
    )
    kept = {name: _rounded_number(row[name]) for name in columns if name in row}
    return {**kept, "dataset": Path(row["dataset"]).name}


def _rounded_number(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
