"""Numbers and names as sentences have them."""

from __future__ import annotations

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
