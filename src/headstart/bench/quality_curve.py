"""Scores over time: a learner takes steps, is scored now and then, and the clock stands meanwhile.

Every library stops early in the same way: what it has at a time is the test NLL of the evaluation
with the lowest validation NLL so far (`stopped_early`). `reached_before` reads the first time from
which on that stays at the target or below.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from headstart.bench.quality_rows import LabeledRows, QualityRows, averaged_nll

FIRST_EVALUATION, EVALUATION_GROWTH, EVALUATION_WEIGHT = 0.1, 0.25, 0.5
"""The next evaluation comes after so many seconds of training, after this fraction of those spent,
and after this fraction of what the last evaluation took: whichever is the longest."""
FINISHING_ROOM = 0.01
"""The fraction of a run that finishing may take beyond its end."""
STAY = 2.0
"""A run that has stayed at the target until so many times the time to it has reached it."""
QualityPoint = dict[str, float]
DrawScores = Callable[[LabeledRows], Tensor]
"""log p(y) of each draw and row, (S, rows)."""


@dataclass
class Learner:
    """A model in training.

    Args:
        step: Goes on training for a while.
        finish: What is due once after the last step, before predicting: it returns the scores.
            Its time counts for the evaluation at hand alone.
        anew: Whether a step trains from the start, longer each time: only its own time counts.
    """

    step: Callable[[], Any]
    finish: Callable[[], DrawScores]
    anew: bool = False


class Stopwatch:
    """Seconds of the wall and of the processor that what it runs has taken."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def run(self, act: Callable[[], Any]) -> Any:
        """What this returns, its time added."""
        wall, cpu = time.perf_counter(), time.process_time()
        result = act()
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu
        return result

    def reset(self) -> None:
        """Begin again."""
        self.wall = self.cpu = 0.0


def train_curve(
    make: Callable[[], Learner],
    rows: QualityRows,
    seconds: float,
    target: float | None,
    parts: tuple[str, ...] = ("valid", "test"),
    clock: str = "wall",
) -> list[QualityPoint]:
    """Scores as training goes on, evaluations not counted as time.

    Args:
        make: Begins training; its time counts.
        rows: Of the task.
        seconds: The end of the run.
        target: Ends a run that has reached it and stayed there; None: it goes on to its end.
        parts: Which rows are scored; both where there is a target.
        clock: `wall`, or `cpu` on a machine that has other work: it counts the seconds of the run.

    Returns:
        Points with seconds of both clocks and the NLL of each part.
    """
    training, curve = Stopwatch(), list[QualityPoint]()
    learner = training.run(make)
    while True:
        spent: float = getattr(training, clock)
        evaluation = Stopwatch()
        score: DrawScores = evaluation.run(learner.finish)
        point = {"wall": training.wall + evaluation.wall, "cpu": training.cpu + evaluation.cpu}
        if point[clock] > max(seconds, spent) + FINISHING_ROOM * seconds:
            # Finishing goes beyond the end: nobody would wait for the scores.
            return curve or [{**point, **dict.fromkeys(parts, math.inf)}]
        for part in parts:
            point[part] = averaged_nll(evaluation.run(partial(score, getattr(rows, part))))
        curve.append(point)
        if point[clock] >= seconds or (target is not None and has_settled(curve, target, clock)):
            return curve
        pause = max(
            FIRST_EVALUATION,
            EVALUATION_GROWTH * spent,
            EVALUATION_WEIGHT * getattr(evaluation, clock),
        )
        _train_until(learner, training, min(spent + pause, seconds), clock)


def _train_until(learner: Learner, training: Stopwatch, due: float, clock: str) -> None:
    """Steps until that time; at least one."""
    if learner.anew:
        training.reset()
        training.run(learner.step)
        return
    training.run(learner.step)
    while getattr(training, clock) < due:
        training.run(learner.step)


def stopped_early(curve: list[QualityPoint]) -> list[QualityPoint]:
    """What early stopping has at each time: the scores of the lowest validation NLL so far.

    Example:
        >>> curve = [{"valid": 3, "test": 5}, {"valid": 2, "test": 4}, {"valid": 9, "test": 1}]
        >>> stopped_early(curve)[-1]
        {'valid': 2, 'test': 4}
    """
    found, best, lowest = list[QualityPoint](), curve[:1], math.inf
    for point in curve:
        # A score that is no number is never the lowest.
        if point["valid"] < lowest:
            best, lowest = [point], point["valid"]
        found.append({**point, "valid": best[0]["valid"], "test": best[0]["test"]})
    return found


def has_settled(curve: list[QualityPoint], target: float, clock: str = "wall") -> bool:
    """Whether validation and test, stopped early, were at the target as long as it took to it."""
    stopped, now = stopped_early(curve), curve[-1][clock]
    found = [first_reached(stopped, target, part) for part in ("valid", "test")]
    return all(point is not None and now >= STAY * point[clock] > 0 for point in found)


def first_reached(
    curve: list[QualityPoint], target: float, part: str = "test"
) -> QualityPoint | None:
    """The first evaluation from which on all are at the target or below.

    Example:
        >>> scores = [{"wall": float(i), "test": nll} for i, nll in enumerate((3, 1, 2.5, 1))]
        >>> first_reached(scores, 2.0)
        {'wall': 3.0, 'test': 1}
    """
    found = None
    for point in reversed(curve):
        if not point[part] <= target:
            break
        found = point
    return found


def reached_before(
    curve: list[QualityPoint],
    target: float,
    limit: float,
    part: str = "test",
    clock: str = "wall",
) -> QualityPoint | None:
    """When a run that stops early has reached the target to stay; None: not before the limit.

    What comes after the evaluation that ends a run does not count, so that runs which went on
    for longer are judged as those that did not.
    """
    ends = (i for i in range(1, len(curve)) if has_settled(curve[:i], target, clock))
    found = first_reached(stopped_early(curve[: next(ends, len(curve))]), target, part)
    return found if found is not None and found[clock] <= limit else None


def peak_of_process() -> float:
    """Peak memory of this process in bytes; a child's `ru_maxrss` may begin with its parent's."""
    status = Path("/proc/self/status")
    if status.is_file() and (found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(found[1]) * 1024.0
    # Windows has no such module.
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
