"""Paired differences of runs, with 95 % intervals that hold where splits share rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scipy.special import stdtr, stdtrit

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

    @property
    def p_value(self) -> float | None:
        """The two-sided p-value of no difference, of the same t; None from a single pair.

        Example:
            >>> PairedDifference(0.5, 0.5, pairs=5).p_value  # on the edge of its 95 % interval
            0.05...
        """
        if self.half_width is None:
            return None
        if self.mean == 0:
            return 1.0
        if self.half_width == 0:
            return 0.0
        t = abs(self.mean) / self.half_width * _quantile(self.pairs)
        return float(2 * stdtr(self.pairs - 1, -t))

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
    spread = math.sqrt((1 / pairs + test_to_train) * statistics.variance(differences))
    return PairedDifference(mean, _quantile(pairs) * spread, pairs)


def _quantile(pairs: int) -> float:
    """Of Student's t with as many degrees of freedom as pairs, less one."""
    return float(stdtrit(pairs - 1, (1 + CONFIDENCE) / 2))


def holm_level(p_values: Iterable[float], level: float = 1 - CONFIDENCE) -> float:
    """The largest p-value that Holm's procedure rejects; −1 where it rejects none.

    With it the probability that any true null hypothesis among them is rejected is at most `level`.

    Args:
        p_values: One of each comparison.
        level: That probability.

    Example:
        >>> holm_level([0.01, 0.04, 0.012, 0.9])  # 4·0.01, 3·0.012 hold; 2·0.04 does not
        0.012
        >>> holm_level([0.3, 0.04])
        -1.0
    """
    rejected = -1.0
    ordered = sorted(p_values)
    for place, value in enumerate(ordered):
        if value * (len(ordered) - place) > level:
            break
        rejected = value
    return rejected
