"""Rows on disk: `rows.jsonl`, one JSON object a line, a run's rows together.

A run is written when it is finished, in one piece and under a lock, so any number of processes may
share a file. What a killed process may have left behind the last whole run is not read, and the
next write cuts it off: nothing is lost, nothing comes twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from headstart.errors import HeadstartError
from headstart.experiments.spec import ResultRow
from headstart.storage.locks import lock

_TORN = object()
"""What a line that is no JSON is read as."""


class Store:
    """The rows of a folder.

    Args:
        folder: The folder; it is made with the first row.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = Store(Path(folder))
        ...     store.append([{"run": "a", "step": 0}, {"run": "a", "step": 9, "last": True}])
        ...     store.finished(), [row["step"] for row in store.rows()]
        True
        ({'a'}, [0, 9])
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "rows.jsonl"

    def append(self, rows: Sequence[ResultRow]) -> bool:
        """Write a finished run, unless another process has; whether it was written."""
        if not rows or not rows[-1].get("last"):
            raise HeadstartError("Only a finished run is stored: its last row says so.")
        block = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()
        try:
            return self._append(rows[-1]["run"], block)
        except OSError as error:
            raise HeadstartError(
                f"{self.path} could not be written: {error}. "
                "The runs in it are as they were; make room and start again to go on."
            ) from error

    def _append(self, run: str, block: bytes) -> bool:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as stream:
            lock(stream)
            known, end = _whole_runs(stream, self.path)
            if any(row["run"] == run for row in known):
                return False
            stream.truncate(end)
            stream.seek(max(0, end - 1))
            # An editor may have taken the last line's end.
            ended = stream.read(1) in (b"", b"\n")
            stream.write(block if ended else b"\n" + block)
        return True

    def rows(self) -> list[ResultRow]:
        """The rows of all finished runs."""
        if not self.path.is_file():
            return []
        with self.path.open("rb") as stream:
            return _whole_runs(stream, self.path)[0]

    def finished(self) -> set[str]:
        """The keys of all finished runs."""
        return {row["run"] for row in self.rows()}

    def note(self, command: str) -> None:
        """Remember a command that filled this folder, once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if command and command not in self.commands():
            with (self.folder / "commands.txt").open("a", encoding="utf-8") as stream:
                stream.write(command + "\n")

    def commands(self) -> list[str]:
        """The commands that filled this folder."""
        path = self.folder / "commands.txt"
        return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def _whole_runs(stream: BinaryIO, path: Path) -> tuple[list[ResultRow], int]:
    """The rows of all whole runs, from step 0 to the one marked `last`, and where they end."""
    stream.seek(0)
    rows: list[ResultRow] = []
    pending: list[ResultRow] = []
    end = position = 0
    for number, line in enumerate(stream.read().splitlines(keepends=True), 1):
        position += len(line)
        row = _parsed(line)
        if row is _TORN:
            # Its run is torn too; a file that begins so may be another program's.
            pending = []
            if not rows and (line.endswith(b"\n") or not _torn(line)):
                raise _foreign(path, number)
            continue
        if not _is_row(row):
            raise _foreign(path, number)
        begins = row["step"] == 0 and not (pending and row.get("last"))
        pending = [row] if begins else [*pending, row]
        if row.get("last"):
            rows += pending if pending[0]["step"] == 0 else []
            pending, end = [], position
    return rows, end


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return _TORN


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and isinstance(row.get("run"), str)
        and isinstance(row.get("step"), int)
    )


def _torn(line: bytes) -> bool:
    """Whether a line may be the beginning of a row of ours."""
    start = b'{"run": "'
    return line[: len(start)] == start[: len(line)]


def _foreign(path: Path, number: int) -> HeadstartError:
    return HeadstartError(
        f"Line {number} of {path} is not a row of headstart's: "
        "name another folder, or mend the file."
    )
