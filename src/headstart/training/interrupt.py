"""Ctrl-C, put off until a training step is complete."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def deferred_interrupt(enabled: bool = True) -> Iterator[list[int]]:
    """Within this scope the first Ctrl-C is noted instead of raised; a second one is Python's own.

    Only the main thread of a process receives signals: elsewhere nothing changes.

    Args:
        enabled: Whether to do so at all.

    Yields:
        A list that is empty until Ctrl-C was pressed.

    Example:
        >>> with deferred_interrupt() as pressed:
        ...     signal.raise_signal(signal.SIGINT)
        ...     len(pressed)
        1
    """
    pressed: list[int] = []
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    before = signal.getsignal(signal.SIGINT)

    def press(number: int, frame: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
