"""A locked file belongs to one process at a time, for real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

WINDOWS = '''
import errno, fcntl, os, types

def locking(handle, mode, count):
    """As `msvcrt` documents it: bytes from the current position on; EACCES if they are taken."""
    assert mode == standin.LK_NBLCK
    position = os.lseek(handle, 0, os.SEEK_CUR)
    assert position > 2**30  # content is not locked
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, count, position)
    except BlockingIOError as error:
        raise PermissionError(errno.EACCES, "Permission denied") from error

def refuse(*arguments):
    raise AssertionError("flock is not there on Windows")

fcntl.flock = refuse
standin = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
sys.modules["msvcrt"] = standin
sys.platform = "win32"
'''
"""A stand-in for the lock of Windows, made of POSIX's locks of byte ranges.

It shows that `lock` asks for a byte behind the content, waits for it, and leaves the position
where it was. That Windows itself does as documented, no test here can show.
"""
START = "import sys, time\nfrom pathlib import Path\nfrom headstart.storage.locks import lock\n"
COUNT = """
path, times = Path(sys.argv[1]), int(sys.argv[2])
for _ in range(times):
    with path.open("ab+") as stream:
        lock(stream)
        stream.seek(0)
        number = int(stream.read() or b"0")
        time.sleep(0.001)  # a second process that were here too would read the same number
        stream.truncate(0)
        stream.write(str(number + 1).encode())
"""
HOLD = """
with Path(sys.argv[1]).open("ab+") as stream:
    lock(stream)
    assert stream.tell() == int(sys.argv[2]), stream.tell()
    print("locked", flush=True)
    time.sleep(300)
"""

SYSTEMS = pytest.mark.parametrize("system", ["", WINDOWS], ids=["posix", "windows-stand-in"])


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process with code and arguments; none outlives the test."""
    with ExitStack() as processes:

        def popen(code: str, *arguments: object) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", START + code, *map(str, arguments)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            processes.enter_context(process)
            processes.callback(process.kill)
            return process

        yield popen


@SYSTEMS
def test_processes_take_turns(tmp_path: Path, start: Start, system: str) -> None:
    """Each reads a number and writes the next one: none is lost where they take turns."""
    path = tmp_path / "number"
    counting = [start(system + COUNT, path, 50) for _ in range(4)]
    assert [one.wait(timeout=120) for one in counting] == [0] * 4
    assert path.read_text() == "200"


@SYSTEMS
def test_readers_go_on_and_the_killed_let_go(tmp_path: Path, start: Start, system: str) -> None:
    path = tmp_path / "number"
    path.write_text("41")
    holder = start(system + HOLD, path, 2)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    assert path.read_text() == "41"
    waiting = start(system + COUNT, path, 1)
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(timeout=2)
    holder.kill()
    assert holder.wait(timeout=60) == -signal.SIGKILL
    assert waiting.wait(timeout=60) == 0
    assert path.read_text() == "42"
