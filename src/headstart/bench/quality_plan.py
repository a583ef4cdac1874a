"""Which runs of time to quality are due: each is made once, and kept in a file.

With seed 0 every library runs with each of its settings; the validation rows choose one. With the
other seeds it runs with the documented settings and with the chosen ones, where those reached the
target with seed 0. A run that missed its target in less time than it may take now is made again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from headstart.bench.learners import OURS, QUALITY_METHODS
from headstart.bench.quality_curve import QualityPoint, reached_before
from headstart.bench.quality_rows import quality_task
from headstart.bench.quality_runs import QualityRow, QualityRun, run_alone, session, target_of

TIMES_OURS = 10.0
"""A library may take so many times headstart's time."""
SHORTER = 0.9
"""A run is made again where it had less than this share of the time that it may take."""


class QualityFile:
    """The runs of all tasks so far, a line each.

    Lines of other code of ours do not count, nor do those by another clock or with other settings
    than the library has at that place today, nor those without scores of validation rows, which
    cannot say when to stop.

    Args:
        path: The file.
        code: That of headstart's rows; others of headstart's do not count.
        clock: What seconds that bound runs are.
        published: Rows that stand elsewhere, before those of the file.
    """

    def __init__(
        self,
        path: Path,
        code: str = "",
        clock: str = "wall",
        published: Iterable[QualityRow] = (),
    ) -> None:
        self.path, self.code, self.clock = path, code, clock
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows: dict[tuple[str, str, int, int], QualityRow] = {}
        for row in [*published, *map(json.loads, lines)]:
            self._keep(row)

    def _keep(self, row: QualityRow) -> None:
        scored = all({"valid", "test"} <= set(point) for point in row.get("curve", ()))
        ours_by_other_code = row["library"] == OURS and row["code"] != self.code
        same = row["clock"] == self.clock and row["settings"] == _settings_of(row)
        if scored and same and not ours_by_other_code:
            self.rows[row["task"], row["library"], row["choice"], row["seed"]] = row

    def add(self, run: QualityRun, limit: float, found: QualityRow) -> QualityRow:
        """Keep a run."""
        about = {"limit": limit, "code": self.code, "clock": self.clock, "session": session()}
        row: QualityRow = {**vars(run), **about, **found}
        row["settings"] = _settings_of(row)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self._keep(row)
        return row

    def get(self, task: str, library: str, choice: int, seed: int) -> QualityRow | None:
        return self.rows.get((task, library, choice, seed))

    def tries(self, task: str, library: str) -> list[QualityRow]:
        """The runs with seed 0, one for each of the settings that were run."""
        found = (
            self.get(task, library, choice, 0)
            for choice in range(len(QUALITY_METHODS[library].settings))
        )
        return [row for row in found if row is not None]

    def chosen(self, task: str, library: str, target: float) -> int | None:
        """Which settings are best on validation rows: the first at the target, else the lowest."""
        tries = [row for row in self.tries(task, library) if "curve" in row]
        return min(tries, key=lambda row: _merit(row, target))["choice"] if tries else None

    def limit(self, run: QualityRun, target: float, cap: float | None = None) -> float:
        """The seconds of a run: at most ten times ours, where ours reached the target.

        Args:
            run: The run.
            target: That of its task.
            cap: The most seconds; None: the task's own.
        """
        most = cap or quality_task(run.task).seconds
        if run.library == OURS and run.choice == 0:
            return most
        ours = self.get(run.task, OURS, 0, run.seed) or self.get(run.task, OURS, 0, 0)
        found = target_reached(ours, target) if ours else None
        return min(most, TIMES_OURS * found[self.clock]) if found else most

    def has(self, run: QualityRun, target: float, cap: float | None = None) -> bool:
        """Whether a run need not be made: it is there, and had the time that it may take."""
        row = self.rows.get(run.key)
        if row is None or _is_hopeless(row) or target_reached(row, target):
            return row is not None
        return bool(row["limit"] >= SHORTER * self.limit(run, target, cap))


def _settings_of(row: QualityRow) -> dict[str, Any] | None:
    """The settings that the place of a row stands for; nothing where there is no such place."""
    method = QUALITY_METHODS.get(row["library"])
    known = () if method is None else method.settings
    return dict(known[row["choice"]]) if row["choice"] < len(known) else None


def target_reached(
    row: QualityRow, target: float, part: str = "test", limit: float = math.inf
) -> QualityPoint | None:
    """When a run reached the target to stay; None where it missed it or failed."""
    most = min(limit, row["limit"])
    return reached_before(row.get("curve", []), target, most, part, row["clock"])


def _merit(row: QualityRow, target: float) -> tuple[float, float]:
    clock, hit = row["clock"], target_reached(row, target, "valid")
    lowest = min((p["valid"] for p in row["curve"] if math.isfinite(p["valid"])), default=math.inf)
    return (hit[clock] if hit else math.inf), lowest


def planned(
    tasks: Iterable[str],
    libraries: Iterable[str],
    seeds: int,
    file: QualityFile,
    target: Callable[[str], float] = target_of,
    documented: bool = False,
    cap: float | None = None,
) -> Iterator[QualityRun]:
    """Runs that are not in the file, ours first; what is due depends on those that were made.

    Args:
        tasks: Tasks by name.
        libraries: Libraries by name.
        seeds: How many.
        file: The runs so far, which grows meanwhile.
        target: The target of a task.
        documented: Whether no other settings are tried.
        cap: The most seconds of a run; None: the task's own.
    """
    tasks, order = list(tasks), sorted(libraries, key=lambda name: name != OURS)
    for seed in range(seeds):
        for task in tasks:
            for library in order:
                for choice in _due(task, library, seed, file, target(task)):
                    run = QualityRun(task, library, choice, seed)
                    idle = choice and (documented or _is_hopeless(file.get(task, library, 0, seed)))
                    if not idle and not file.has(run, target(task), cap):
                        yield run


def _is_hopeless(row: QualityRow | None) -> bool:
    """Whether other settings need not be tried: it failed, or its end took longer than it may."""
    if row is None or "curve" not in row:
        return row is not None
    return math.isinf(row["curve"][0]["test"])


def _due(task: str, library: str, seed: int, file: QualityFile, target: float) -> list[int]:
    """The settings to run with a seed."""
    method = QUALITY_METHODS[library]
    if method.kind == "trees" and quality_task(task).net.startswith(("lenet", "mlp-5x100")):
        return []
    if seed == 0:
        return list(range(len(method.settings)))
    due = []
    for choice in sorted({0, file.chosen(task, library, target) or 0}):
        first = file.get(task, library, choice, 0)
        if library == OURS or (first and target_reached(first, target)):
            due.append(choice)
    return due


def run_all(
    tasks: Iterable[str],
    libraries: Iterable[str],
    file: QualityFile,
    *,
    seeds: int,
    threads: int,
    cache: Path,
    cap: float | None = None,
    folder: Path | None = None,
    documented: bool = False,
    tell: Callable[[QualityRow], None] = lambda row: None,
    go_on: Callable[[], bool] = lambda: True,
) -> None:
    """Make all runs that are not in the file.

    Args:
        tasks: Tasks by name.
        libraries: Libraries by name.
        file: The runs so far.
        seeds: How many.
        threads: Of each process.
        cache: A folder that keeps prepared rows.
        cap: The most seconds of a run; None: the task's own.
        folder: A folder with a folder for each library.
        documented: Whether no other settings are tried.
        tell: Is told each row.
        go_on: Is asked before each run.
    """
    for run in planned(tasks, libraries, seeds, file, documented=documented, cap=cap):
        if not go_on():
            return
        target = target_of(run.task)
        limit = file.limit(run, target, cap)
        found = run_alone(
            run, limit, threads, cache, target=target, libraries=folder, clock=file.clock
        )
        tell(file.add(run, limit, found))
