"""`headstart bench`: rows for machines, a table for people."""

from __future__ import annotations

from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from headstart.bench.cases import make_case
from headstart.bench.measure import Timing, measure
from headstart.bench.rivals import PLAIN, PLAIN_SAMPLES, RIVALS
from headstart.errors import HeadstartError, unknown


def bench(
    cases: list[str], libraries: list[str] | None = None, *, rounds: int = 7, threads: int = 2
) -> list[dict[str, Any]]:
    """Time a training step of each library on each case, in turn; the deterministic steps are always among them.

    Example:
        >>> rows = bench(["mlp-1x100"], ["headstart"], rounds=1, threads=1)
        >>> [(row["library"], row["sampler"]) for row in rows][2:]
        [('headstart', 'local'), ('headstart', 'weights')]
    """
    known = dict.fromkeys(rival.name for rival in RIVALS)
    for name in libraries or ():
        if name not in known:
            raise unknown("library", name, known)
    chosen = [rival for rival in RIVALS if rival.name in (PLAIN, PLAIN_SAMPLES) or rival.name in (libraries or known)]
    missing = [rival.name for rival in chosen if not rival.installed]
    if libraries and missing:
        raise HeadstartError(
            f"{', '.join(missing)}: not installed; docs/bench.md says how to install the other libraries."
        )
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    rows: list[dict[str, Any]] = []
    try:
        for name in cases:
            case = make_case(name)
            steps = {(r.name, r.sampler): r.make(case) for r in chosen if r.installed}
            found = measure({"|".join(key): step for key, step in steps.items()}, rounds)
            rows += [
                _row(
                    name,
                    case.samples,
                    key,
                    found["|".join(key)],
                    found[f"{PLAIN}|none"],
                    found[f"{PLAIN_SAMPLES}|none"],
                )
                for key in steps
            ]
    finally:
        torch.set_num_threads(before)
    return rows


def _row(
    case: str, samples: int, key: tuple[str, str], timing: Timing, on_batch: Timing, on_samples: Timing
) -> dict[str, Any]:
    ratios = sorted(timing.ratios(on_samples))
    return {
        "case": case,
        "samples": samples,
        "library": key[0],
        "sampler": key[1],
        "seconds": timing.median,
        "ratio": _median(ratios),
        "ratio_low": ratios[0],
        "ratio_high": ratios[-1],
        "ratio_batch": _median(sorted(timing.ratios(on_batch))),
        "memory": timing.memory,
        "memory_ratio": timing.memory / max(1, on_samples.memory),
        "threads": torch.get_num_threads(),
    }


def _median(values: list[float]) -> float:
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """A table for each case."""
    for case in dict.fromkeys(row["case"] for row in rows):
        mine = [row for row in rows if row["case"] == case]
        table = Table(title=f"{case}, {mine[0]['samples']} samples: one training step")
        for column in (
            "library",
            "sampler",
            "ms",
            "times S·B rows",
            "range",
            "times B rows",
            "memory, MB",
            "times S·B",
        ):
            table.add_column(column, justify="left" if column in ("library", "sampler") else "right", no_wrap=True)
        for row in mine:
            table.add_row(*cells(row))
        console.print(table)


def cells(row: dict[str, Any]) -> list[str]:
    """A line of a table."""
    return [
        row["library"],
        row["sampler"],
        f"{1e3 * row['seconds']:.2f}",
        f"{row['ratio']:.2f}",
        f"{row['ratio_low']:.2f}–{row['ratio_high']:.2f}",
        f"{row['ratio_batch']:.2f}",
        f"{row['memory'] / 1e6:.1f}",
        f"{row['memory_ratio']:.2f}",
    ]
