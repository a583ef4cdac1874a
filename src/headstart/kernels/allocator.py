"""What the C library does with memory that a step has freed."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""glibc's names for how much it keeps, and for the smallest block that it gives back at once."""
MALLOC_OPTIONS = {M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: (1 << 31) - 1}
"""The largest values that it accepts."""


def keep_freed() -> bool:
    """Tell glibc to keep memory that is freed.

    By default it gives large blocks back to the kernel, which then clears every page of the next
    step. The setting is for the whole process, so only commands make it by themselves.

    Returns:
        Whether glibc could be told; elsewhere nothing happens.

    Example:
        >>> keep_freed() or sys.platform != "linux"  # a Linux with glibc
        True
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            return all(mallopt(name, value) == 1 for name, value in MALLOC_OPTIONS.items())
    return False
