"""Numbers and names as sentences have them."""

from __future__ import annotations

import math
from collections.abc import Iterable


def plural(count: int, noun: str) -> str:
    """A count and its noun.

    Example:
        >>> plural(1, "row"), plural(3, "row")
        ('1 row', '3 rows')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listing(names: Iterable[str], limit: int = 5) -> str:
    """At most `limit` names, and how many more there are.

    Example:
        >>> listing(["a", "b", "c"], limit=2)
        "'a', 'b' and 1 more"
    """
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def readably(value: float, digits: int = 3) -> str:
    """A number for people: so many significant digits, and no exponent where it can be helped.

    Example:
        >>> readably(1234567.0), readably(0.0012345), readably(54.0), readably(3e-9)
        ('1,230,000', '0.00123', '54', '3e-09')
    """
    if not math.isfinite(value):
        return "unknown"
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if not 1e-5 < abs(value) < 1e12:
        return f"{value:.{digits}g}"
    shown = f"{round(value, places):,.{max(places, 0)}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown
