"""Places that cannot be written to: one sentence, before any work, from every command."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from headstart.errors import HeadstartError
from headstart.tabular.places import make_folder, refuse_file, refuse_new_folder, refuse_place
from tests.tabular.tables import FEW, Headstart, houses

COMMANDS = {
    "fit": ("fit", "t.csv", "--target", "price", *FEW, "--out"),
    "predict": ("predict", "run", "t.csv", "--out"),
    "explain": ("explain", "run", "t.csv", "--out"),
    "recalibrate": ("recalibrate", "run", "t.csv", "--out"),
    "update": ("update", "run", "t.csv", "--out"),
    "report": ("report", "run", "--markdown"),
}


@pytest.fixture
def here(fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a table and a run."""
    houses(60, seed=3).to_csv(tmp_path / "t.csv", index=False)
    shutil.copytree(fitted / "run", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def closed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Nobody may write into a folder, as the system says; a superuser may where it says so."""
    asked = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder and asked(path, mode))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_in_the_way_is_named(here: Path, headstart: Headstart, command: str) -> None:
    before = sorted(here.rglob("*"))
    said = headstart(*COMMANDS[command], "t.csv/below/it")
    assert said.code == 2
    assert said.out == ""
    assert said.err == (
        f"headstart: t.csv/below/it cannot be written: {here}/t.csv is a file, not a folder. "
        "Name another place.\n"
    )
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_is_closed_is_named(
    here: Path, headstart: Headstart, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (here / "theirs").mkdir()
    closed(monkeypatch, here / "theirs")
    said = headstart(*COMMANDS[command], "theirs/new")
    assert said.code == 2
    assert said.err == (
        "headstart: theirs/new cannot be written: you may not write into the folder "
        f"{here}/theirs. Name another place, or change the permissions of that folder.\n"
    )
    assert not list((here / "theirs").iterdir())


def test_a_page_that_cannot_be_written_is_told(
    here: Path, headstart: Headstart, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed(monkeypatch, here / "run")
    said = headstart("report", "run")
    assert said.code == 2
    assert "run/report.html cannot be written: you may not write into the folder" in said.err


@pytest.mark.parametrize("command", ["predict", "explain"])
def test_a_file_needs_its_folder(here: Path, headstart: Headstart, command: str) -> None:
    said = headstart(*COMMANDS[command], "none/p.csv")
    assert said.err == ("headstart: There is no folder none to write p.csv into; make it first.\n")
    said = headstart(*COMMANDS[command], "run")
    assert said.err == "headstart: run is a folder; name a file to write to.\n"


def test_effects_do_not_go_to_standard_output(here: Path, headstart: Headstart) -> None:
    said = headstart("explain", "run", "t.csv", "--out", "-")
    assert (said.code, said.out) == (2, "")
    assert "--out takes a file here" in said.err


def test_a_name_that_is_too_long_has_no_error_number(here: Path, headstart: Headstart) -> None:
    for name in ("n" * 250, "n" * 300):
        said = headstart(*COMMANDS["fit"], name)
        assert said.code == 2
        assert said.err.count("\n") == 1
        assert "File name too long" in said.err
        assert "Errno" not in said.err


def test_places_that_can_be_written_pass(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path, tmp_path / "new" / "newer", tmp_path / "link"):
        refuse_place(path, path)
        refuse_new_folder(path)
    refuse_file(tmp_path / "p.csv")
    make_folder(tmp_path / "new" / "newer")
    with pytest.raises(HeadstartError, match=r"p\.csv cannot be written: .*loop is a file"):
        refuse_file(tmp_path / "loop" / "p.csv")
    with pytest.raises(HeadstartError, match=r"^The folder .*loop/b cannot be made: .*symbolic"):
        make_folder(tmp_path / "loop" / "b")
