"""Seconds of steps that take turns, and the memory of one."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from headstart.bench.rivals import TakeStep

ROUND_SECONDS = 0.2
"""How long each step is repeated in a round, about.

Long enough for the clock, short enough that a busy neighbor hits all alike.
"""


@dataclass(frozen=True)
class Timing:
    """Seconds of a step, round by round, and the bytes that one needs at its peak."""

    seconds: tuple[float, ...]
    memory: int

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def ratios(self, base: Timing) -> list[float]:
        """How many times the other's step, round by round.

        Example:
            >>> Timing((2.0, 3.0), 0).ratios(Timing((1.0, 2.0), 0))
            [2.0, 1.5]
        """
        return [mine / other for mine, other in zip(self.seconds, base.seconds, strict=True)]


def measure(
    steps: Mapping[str, TakeStep], rounds: int, tell: Callable[[str], None] = lambda name: None
) -> dict[str, Timing]:
    """Every step in turn, round after round, after a round that does not count.

    Args:
        steps: Functions that take a step, by name.
        rounds: How often each takes its turn.
        tell: Is told whose turn begins.

    Returns:
        The timings by name.
    """
    often = {name: _often(step) for name, step in steps.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            tell(name)
            start = time.perf_counter()
            for _ in range(often[name]):
                step()
            seconds[name].append((time.perf_counter() - start) / often[name])
    return {name: Timing(tuple(found), peak(steps[name])) for name, found in seconds.items()}


def _often(step: TakeStep) -> int:
    """How many steps fill a round."""
    # The first allocates, compiles and fills caches.
    for _ in range(3):
        start = time.perf_counter()
        step()
    return max(1, round(ROUND_SECONDS / max(1e-9, time.perf_counter() - start)))


@contextmanager
def _silent() -> Iterator[None]:
    """Torch's profiler talks on the process's own stderr."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def peak(step: TakeStep) -> int:
    """The most bytes that were allocated at once during a step, beyond those it began with.

    Example:
        >>> peak(lambda: float(torch.zeros(1000).sum())) >= 4000
        True
    """
    with (
        _silent(),
        torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profile,
    ):
        step()
    now = highest = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            highest = max(highest, now)
    return highest
