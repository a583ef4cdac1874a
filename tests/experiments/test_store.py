"""Rows on disk: never lost, never twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headstart.errors import HeadstartError
from headstart.experiments.store import Store
from tests import processes


def write(folder: Path, name: str) -> None:
    """What each of two processes does: every second run is done by both."""
    store, filling = Store(folder), "x" * 2000
    for number in range(40):
        key = f"{number}" if number % 2 else f"{name}-{number}"
        rows = [{"run": key, "step": step, "filling": filling} for step in range(3)]
        store.append([*rows, {"run": key, "step": 3, "last": True}])


def block(key: str, steps: int = 3) -> list[dict[str, object]]:
    return [
        {"run": key, "step": step, **({"last": True} if step == steps - 1 else {})}
        for step in range(steps)
    ]


def test_a_run_is_stored_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "new")
    assert store.rows() == []
    assert store.append(block("a"))
    assert not store.append(block("a"))
    assert store.append(block("b"))
    assert store.rows() == block("a") + block("b")
    assert store.finished() == {"a", "b"}


@pytest.mark.parametrize("cut", [2, 20, 45, 80])
def test_a_torn_write_is_not_read_and_cut_off_by_the_next(tmp_path: Path, cut: int) -> None:
    """Killed in the middle of writing b, wherever that was."""
    store = Store(tmp_path)
    store.append(block("a"))
    whole = store.path.read_bytes()
    store.append(block("b"))
    store.path.write_bytes(store.path.read_bytes()[:-cut])
    assert store.rows() == block("a")
    assert store.path.read_bytes().startswith(whole)
    assert store.append(block("b"))
    assert [json.loads(line) for line in store.path.read_text().splitlines()] == block("a") + block(
        "b"
    )


def test_a_broken_line_in_the_middle_costs_only_its_run(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for key in "abc":
        store.append(block(key))
    lines = store.path.read_text().splitlines(keepends=True)
    lines[4] = "{broken\n"
    store.path.write_text("".join(lines))
    assert store.rows() == block("a") + block("c")
    assert store.append(block("b"))
    assert store.rows() == block("a") + block("c") + block("b")


def test_an_unfinished_run_is_not_stored(tmp_path: Path) -> None:
    for rows in ([], [{"run": "a", "step": 0}]):
        with pytest.raises(HeadstartError, match="finished"):
            Store(tmp_path).append(rows)
    assert not (tmp_path / "rows.jsonl").exists()


def test_two_processes_may_write_at_once(tmp_path: Path) -> None:
    writers = [processes.start(write, tmp_path, name) for name in "xy"]
    assert [processes.finish(writer) for writer in writers] == [0, 0]
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows == Store(tmp_path).rows()
    keys = [row["run"] for row in rows if row.get("last")]
    assert len(keys) == len(set(keys)) == 20 + 2 * 20
    assert [row["step"] for row in rows] == [0, 1, 2, 3] * 60


def test_commands_are_remembered_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for command in ("one", "two", "one"):
        store.note(command)
    assert store.commands() == ["one", "two"]


@pytest.mark.parametrize("text", ["my precious notes", "[1, 2, 3", "my\nnotes\n", '{"a": 1}\n'])
def test_a_file_that_is_not_ours_is_not_touched(tmp_path: Path, text: str) -> None:
    (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(HeadstartError, match="not a row of headstart's"):
        Store(tmp_path).append([{"run": "a", "step": 0, "last": True}])
    assert (tmp_path / "rows.jsonl").read_text() == text


def test_a_last_line_without_its_end_counts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append([{"run": "a", "step": 0, "last": True}])
    store.path.write_text(store.path.read_text().rstrip("\n"))
    store.append([{"run": "b", "step": 0, "last": True}])
    assert [row["run"] for row in store.rows()] == ["a", "b"]
