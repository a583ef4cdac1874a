"""What ran how long: the seconds of training in the rows, summed up for an overview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.experiments.results import Results
from headstart.reporting.document import Block, Entry, Heading, Table, Text

HEADER = ("page", "data set", "net", "runs", "minutes a run", "hours", "threads", "code")
WHAT_COUNTS = (
    "Training alone, by the wall clock, without the start and without evaluations. "
    "Other work on the machine counts too, so these are no measurements of speed."
)


def durations(results: Mapping[str, Results]) -> list[Block]:
    """A table of the runs of all pages and how long they trained.

    Args:
        results: The results by the names of their pages.

    Returns:
        A heading, the table and what to make of it; nothing where no run took any time.
    """
    lines = [line for name, found in results.items() for line in _lines(name, found)]
    if not lines:
        return []
    table = Table(
        [Entry(name) for name in HEADER], [[Entry(cell) for cell in line] for line in lines]
    )
    return [Heading(3, "What ran how long"), Text(WHAT_COUNTS), table]


def _lines(name: str, results: Results) -> list[tuple[str, ...]]:
    """A line for each net on each data set of a page, from the last row of every run."""
    spent: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in results.rows:
        if row.get("last") and row["seconds"] > 0:
            spent.setdefault((row["dataset"], row["model"]), []).append(row)
    found: list[tuple[str, ...]] = []
    for (dataset, model), rows in spent.items():
        minutes = [row["seconds"] / 60 for row in rows]
        threads = ", ".join(str(count) for count in sorted({row["threads"] for row in rows}))
        found.append(
            (
                *(name, dataset, model, str(len(rows))),
                *(
                    _from_to(minutes),
                    f"{sum(minutes) / 60:.2f}",
                    threads,
                    results.code or "not known",
                ),
            )
        )
    return found


def _from_to(minutes: list[float]) -> str:
    low, high = f"{min(minutes):.1f}", f"{max(minutes):.1f}"
    return low if low == high else f"{low} to {high}"
