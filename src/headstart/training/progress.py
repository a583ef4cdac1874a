"""The progress bar of work that takes a while."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def progress_bar(shown: bool) -> Progress:
    """A bar that is gone when the work is done.

    Args:
        shown: Whether to show it; else nothing is printed.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    # Up to rich 14.2 a bar that is disabled still ends its line.
    console = None if shown else Console(quiet=True)
    return Progress(*columns, console=console, disable=not shown, transient=True)
