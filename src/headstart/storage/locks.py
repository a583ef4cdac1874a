"""A file for one process at a time, on every operating system."""

from __future__ import annotations

import sys
import time
from typing import BinaryIO

POLL_SECONDS = 0.05
"""How often Windows is asked again for a file that another process has locked."""
LOCKED_BYTE = 2**31 - 2
"""Which byte Windows locks.

Other processes cannot read a locked byte there, so it lies behind the content: the last one that a
signed 32-bit offset reaches.
"""


def lock(stream: BinaryIO) -> None:
    """Wait until no other process has locked this open file; it is then locked until it is closed.

    Processes that only read the file do not wait. A process that dies closes its files.

    Args:
        stream: The open file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryFile() as stream:
        ...     lock(stream)
        ...     stream.write(b"a row")
        5
    """
    if sys.platform == "win32":
        import msvcrt

        position = stream.tell()
        # Windows locks bytes from the current position on.
        stream.seek(LOCKED_BYTE)
        while True:
            try:
                msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
                break
            except PermissionError:
                time.sleep(POLL_SECONDS)
        stream.seek(position)
    else:
        # Windows has no such module, so nothing imports it before it is used.
        import fcntl

        fcntl.flock(stream, fcntl.LOCK_EX)
