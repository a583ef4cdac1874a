"""Processes of their own that need not import torch again: forked from a server that has.

What such a process computes, writes, catches and leaves behind is its own; the start is shared.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import headstart

SECONDS = 300
"""After which a process hangs."""
_CONTEXT = multiprocessing.get_context("forkserver")
# Optimizers of torch import its compiler when they are made, which takes as long as torch itself.
_CONTEXT.set_forkserver_preload(
    [
        "pytest",
        "torch._dynamo",
        *(found.name for found in pkgutil.walk_packages(headstart.__path__, "headstart.")),
    ]
)


def start(work: Callable[..., None], *arguments: Any) -> Any:
    """A process that calls a function of a module."""
    process = _CONTEXT.Process(target=work, args=arguments)
    process.start()
    return process


def finish(process: Any) -> int:
    """Wait for a process; its exit code."""
    process.join(SECONDS)
    code = process.exitcode
    assert code is not None, f"no end after {SECONDS} seconds"
    process.close()
    return int(code)


class Command:
    """`headstart words`, the leader of a process group, in a folder.

    Its end is that of a forked process, which waits for no workers: commands that end with several
    `--jobs` need an interpreter of their own.
    """

    def __init__(self, *words: str, folder: Path | None = None) -> None:
        self._said = tempfile.TemporaryDirectory()
        self._streams = [Path(self._said.name) / name for name in ("out", "err")]
        self._process = start(
            _headstart, words, folder or Path.cwd(), dict(os.environ), self._streams
        )
        self.pid: int = self._process.pid

    def kill(self) -> None:
        """End it as `kill -9` does, and what it has started too."""
        os.killpg(self.pid, signal.SIGKILL)

    def interrupt(self) -> None:
        """Ctrl-C, as the terminal sends it: to all processes of the group."""
        os.killpg(self.pid, signal.SIGINT)

    @property
    def alive(self) -> bool:
        return bool(self._process.is_alive())

    def end(self) -> subprocess.CompletedProcess[str]:
        """Wait for its end: its exit code, and what it said."""
        code = finish(self._process)
        out, err = (path.read_text() if path.exists() else "" for path in self._streams)
        self._said.cleanup()
        return subprocess.CompletedProcess([], code, out, err)


def run(*words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`headstart words` from its start to its end."""
    return Command(*words, folder=folder).end()


def _headstart(
    words: tuple[str, ...], folder: Path, environment: Mapping[str, str], streams: list[Path]
) -> None:
    os.setsid()
    for number, path in enumerate(streams, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["headstart", *words]
    from headstart.cli import main

    main()
