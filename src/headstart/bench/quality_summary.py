"""What the runs of time to quality say: medians and ranges over seeds, for tables and pages."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headstart.bench.learners import OURS, QUALITY_METHODS
from headstart.bench.quality_plan import QualityFile, target_reached
from headstart.bench.quality_runs import QualityRow, QualityRun


@dataclass(frozen=True)
class QualitySummary:
    """A library with one of its settings on a task, over seeds.

    Args:
        library: Its name.
        choice: Which of its settings.
        tuned: Whether validation rows chose these.
        wall: Seconds to the target, of each seed; a run that missed it counts as its limit.
        cpu: The same in seconds of the processor.
        hits: How many runs reached the target.
        memory: The median of the peak in bytes.
        failed: Why it failed, if it did.
        sessions: The sessions of a machine that made the runs.
    """

    library: str
    choice: int
    tuned: bool
    wall: tuple[float, ...]
    cpu: tuple[float, ...]
    hits: int
    memory: float
    failed: str = ""
    sessions: frozenset[str] = frozenset()

    @property
    def settings(self) -> str:
        known = QUALITY_METHODS[self.library].settings[self.choice]
        return ", ".join(f"{name} {value}" for name, value in known.items()) or "defaults"

    @property
    def reaches(self) -> bool:
        """Whether most runs reached the target."""
        return 2 * self.hits > len(self.wall)

    def seconds(self, clock: str) -> float:
        """The median over seeds by that clock."""
        found = self.cpu if clock == "cpu" else self.wall
        return statistics.median(found) if found else float("inf")


def _times(row: QualityRow, target: float, limit: float) -> tuple[dict[str, float], bool]:
    """Seconds of both clocks, and whether they are those of the target."""
    hit, clock = target_reached(row, target, limit=limit), row["clock"]
    if hit is not None:
        return {"wall": hit["wall"], "cpu": hit["cpu"]}, True
    curve = row["curve"]
    last = next((point for point in curve if point[clock] >= limit), curve[-1])
    return {"wall": last["wall"], "cpu": last["cpu"], clock: limit}, False


def _limit_of(file: QualityFile, row: QualityRow, target: float) -> float:
    """That of the run, or ten times our time where ours is less by now."""
    own: float = row["limit"]
    run = QualityRun(row["task"], row["library"], row["choice"], row["seed"])
    return own if row["library"] == OURS else file.limit(run, target, own)


def summarize_setting(
    file: QualityFile, task: str, library: str, choice: int, target: float, tuned: bool = False
) -> QualitySummary | None:
    """The runs of a library with one of its settings; None where there are none."""
    keys = sorted(key for key in file.rows if key[:3] == (task, library, choice))
    rows = [file.rows[key] for key in keys]
    if not rows:
        return None
    if bad := next((row["failed"] for row in rows if "failed" in row), ""):
        return QualitySummary(library, choice, tuned, (), (), 0, 0.0, bad)
    return _summarize_runs(file, rows, target, tuned)


def _summarize_runs(
    file: QualityFile, rows: list[QualityRow], target: float, tuned: bool
) -> QualitySummary:
    """The runs of a library with one of its settings, none of which failed."""
    times, hits = zip(
        *(_times(row, target, _limit_of(file, row, target)) for row in rows), strict=True
    )
    wall, cpu = (tuple(found[clock] for found in times) for clock in ("wall", "cpu"))
    memory = statistics.median(row["memory"] for row in rows)
    sessions = frozenset(row["session"] for row in rows)
    about = rows[0]["library"], rows[0]["choice"], tuned
    return QualitySummary(*about, wall, cpu, sum(hits), memory, sessions=sessions)


def summarize_task(file: QualityFile, task: str, target: float) -> Iterator[QualitySummary]:
    """Every library at its documented settings, and at those that validation rows chose."""
    for library in QUALITY_METHODS:
        best = file.chosen(task, library, target)
        documented = summarize_setting(file, task, library, 0, target, best == 0)
        if documented is not None:
            yield documented
        if best:
            tuned = summarize_setting(file, task, library, best, target, True)
            if tuned is not None:
                yield tuned


def fastest(found: list[QualitySummary], clock: str) -> dict[str, QualitySummary]:
    """Each library at the faster of its settings; those that reach the target come first."""
    best: dict[str, QualitySummary] = {}
    for each in found:
        known = best.get(each.library)
        order = (not each.reaches, each.seconds(clock))
        if known is None or order < (not known.reaches, known.seconds(clock)):
            best[each.library] = each
    return best


def documented_ours(found: list[QualitySummary]) -> QualitySummary | None:
    """headstart at its defaults."""
    return next((each for each in found if each.library == OURS and each.choice == 0), None)


def as_json_row(task: str, target: float, each: QualitySummary, clock: str) -> dict[str, Any]:
    """A summary for machines."""
    wall = each.wall or (float("nan"),)
    return {
        "task": task,
        "target": target,
        "library": each.library,
        "settings": each.settings,
        "tuned": each.tuned,
        "seconds": None if each.failed else each.seconds("wall"),
        "seconds_low": None if each.failed else min(wall),
        "seconds_high": None if each.failed else max(wall),
        "cpu_seconds": None if each.failed else each.seconds("cpu"),
        "reached": each.hits,
        "runs": len(each.wall),
        "memory": each.memory,
        "clock": clock,
        "failed": each.failed,
    }
