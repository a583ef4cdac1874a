"""What the pages of the benchmarks share."""

from __future__ import annotations

import statistics


def table(head: list[str], lines: list[list[str]], left: int = 1) -> str:
    """A Markdown table whose first columns, `left` of them, hold words."""
    rule = ["---"] * left + ["--:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *lines])


def spread(values: list[float]) -> str:
    """Median and range."""
    return f"{statistics.median(values):.3g} ({span(values)})"


def span(values: list[float]) -> str:
    return f"{min(values):.3g}–{max(values):.3g}"
