"""The command line in this process: what it says, what it leaves, and that it comes back."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from headstart.cli import main

EXAMPLES = int(os.environ.get("HEADSTART_FUZZ", "25"))
"""Of each corpus; `make fuzz` takes 500."""
fuzzed = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
PATIENCE = 600
"""Seconds after which a command hangs."""


def command(*words: str) -> tuple[int, str]:
    """Run `headstart words`: the exit code and what it said; a stack trace fails the test."""
    said = io.StringIO()
    before = sys.argv
    sys.argv = ["headstart", *words]
    try:
        with (
            patience(),
            contextlib.redirect_stderr(said),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        return code, said.getvalue()
    finally:
        sys.argv = before
    return 0, said.getvalue()


@contextlib.contextmanager
def patience() -> Iterator[None]:
    def ring(number: int, frame: Any) -> None:
        raise TimeoutError(f"no end after {PATIENCE} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder, and the digest of what is in it."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for a whole module: hypothesis calls a test many times over."""
    return tmp_path_factory.mktemp("place")
