"""Paired differences of runs, with 95 % intervals that hold where splits share rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from scipy.special import stdtrit

CONFIDENCE = 0.95
AHEAD, LEVEL, BEHIND = "ahead", "level", "behind"
SplitSeed = tuple[int, int]
"""A split and a seed: runs that have them in common saw the same rows."""


@dataclass(frozen=True)
class PairedDifference:
    """A mean difference over pairs of runs, and half the width of its 95 % interval.

    Args:
        mean: Ours minus theirs, in the mean over pairs.
        half_width: Half the width of the interval; None from a single pair.
        pairs: How many pairs there are.
    """

    mean: float
    half_width: float | None = None
    pairs: int = 1

    def verdict(self, better: int) -> str | None:
        """Ahead or behind where the interval excludes zero, else level; no word from a single pair.

        Args:
            better: −1 where lower is better, +1 where higher is.

        Example:
            >>> lower = PairedDifference(-0.3, 0.2, pairs=5)
            >>> lower.verdict(-1), lower.verdict(1)
            ('ahead', 'behind')
            >>> PairedDifference(-0.3, 0.4, pairs=5).verdict(-1), PairedDifference(-0.3).verdict(-1)
            ('level', None)
        """
        if self.half_width is None:
            return None
        if abs(self.mean) <= self.half_width:
            return LEVEL
        return AHEAD if self.mean * better > 0 else BEHIND


def paired_difference(
    ours: Mapping[SplitSeed, float],
    theirs: Mapping[SplitSeed, float],
    test_to_train: float = 0.0,
) -> PairedDifference | None:
    """Ours minus theirs over the pairs that both have, with a t interval.

    The variance of the mean over J pairs is `(1/J + n_test/n_train) s²` (Nadeau & Bengio, 2003),
    where s² is the sample variance of the differences. Splits of the same rows overlap, so that
    `s²/J` alone is too small. Runs on a fixed test set differ by their seeds alone: their ratio
    is 0.

    Args:
        ours: Values by split and seed.
        theirs: The same, of the other.
        test_to_train: n_test/n_train where splits are resampled, 0 for a fixed test set.

    Returns:
        The difference, or None where no pair is common.

    Example:
        >>> found = paired_difference({(0, 0): 1.0, (1, 1): 3.0}, {(0, 0): 0.5, (1, 1): 1.5})
        >>> found.mean, round(found.half_width, 3)  # 12.706 · 0.5
        (1.0, 6.353)
    """
    differences = [ours[pair] - theirs[pair] for pair in ours if pair in theirs]
    pairs = len(differences)
    if not pairs:
        return None
    mean = statistics.fmean(differences)
    if pairs == 1:
        return PairedDifference(mean)
    quantile = float(stdtrit(pairs - 1, (1 + CONFIDENCE) / 2))
    spread = math.sqrt((1 / pairs + test_to_train) * statistics.variance(differences))
    return PairedDifference(mean, quantile * spread, pairs)
