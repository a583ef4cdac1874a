"""Files are written atomically, and what is wrong with one is said in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from headstart.errors import HeadstartError
from headstart.storage import files
from headstart.storage.files import (
    atomic_write,
    open_tensors,
    read_json,
    write_json,
    write_tensors,
)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def broken_write() -> None:
        with atomic_write(path) as temporary:
            temporary.write_text("half of it")
            raise OSError("the disk is full")

    with pytest.raises(HeadstartError, match="could not be written: the disk is full"):
        broken_write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_replaces_the_file_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_write(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_not_written_to_as_a_file(tmp_path: Path) -> None:
    with pytest.raises(HeadstartError, match="is a folder"):
        write_json(tmp_path, {})
    with pytest.raises(HeadstartError, match="There is no folder"):
        write_json(tmp_path / "nowhere" / "file", {})


def test_tensors_and_their_description_come_back(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([True, False])}
    write_tensors(tmp_path / "t", tensors, "model", {"sizes": (1, 2)})
    file = open_tensors(tmp_path / "t", "model")
    assert file.description["sizes"] == [1, 2]
    assert file.shapes == {"a": (2, 3), "b": (2,)}
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in file.read().items())
    with pytest.raises(HeadstartError, match="not a checkpoint of headstart's"):
        open_tensors(tmp_path / "t", "checkpoint")


def test_json_comes_back(tmp_path: Path) -> None:
    write_json(tmp_path / "j", {"größe": [1, None, "x"]})
    assert read_json(tmp_path / "j", "page")["größe"] == [1, None, "x"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda content: {**content, "x": 2}, "its checksum is not that of its content"),
        (lambda content: {"format": content["format"], "x": 1}, "its checksum is missing"),
        (lambda content: {**content, "format": 9}, "format 9; this headstart reads formats up to"),
        (lambda content: [content], "no page of headstart's"),
    ],
)
def test_a_changed_file_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], sentence: str
) -> None:
    path = tmp_path / "j"
    write_json(path, {"x": 1})
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(HeadstartError, match=sentence):
        read_json(path, "page")


def test_a_giant_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "j", {"x": 1})
    monkeypatch.setattr(files, "MAX_JSON_BYTES", 10)
    with pytest.raises(HeadstartError, match="too many for a page"):
        read_json(tmp_path / "j", "page")
