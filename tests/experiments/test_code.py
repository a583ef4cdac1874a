"""The hash of the code: what changes it, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.errors import HeadstartError
from headstart.experiments.code import RUN_MODULE, code_hash, imported_modules, is_module

RUN = '''"""A run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import house.room.table
from house import metrics

if TYPE_CHECKING:
    from house import page

STEPS = 1000
"""How many."""


def run(x: int) -> int:
    """Run."""
    from house.room import chair
    return x + 1  # one more
'''


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A package of a run, what it imports, and a page that it does not."""
    files = {
        "__init__": "from house import page\n",
        "run": RUN,
        "metrics": "import math\n",
        "page": "",
        "room/__init__": "from house.room.lamp import LIGHT\n",
        "room/table": "",
        "room/chair": "",
        "room/lamp": "LIGHT = 1\n",
    }
    for name, text in files.items():
        path = tmp_path / "house" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "house"


def hash_of(house: Path) -> str:
    code_hash.cache_clear()
    return code_hash("house.run", house)


def test_imports_are_followed_into_functions_and_packages(house: Path) -> None:
    assert set(imported_modules("house.run", house)) == {
        "house.run",
        "house.metrics",
        "house.room",
        "house.room.table",
        "house.room.chair",
        "house.room.lamp",
    }


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("run", '"""Run."""', '"""Run, of course."""', False),
        ("run", '"""A run."""\n', "", False),
        ("run", '"""How many."""', '"""How many steps."""', False),
        ("run", "x + 1  # one more", "(\n        x\n        + 1\n    )", False),
        ("run", "x + 1", "x + 2", True),
        ("run", "STEPS = 1000", "STEPS = 1_000", False),
        ("run", "STEPS = 1000", "STEPS = 2000", True),
        ("room/lamp", "LIGHT = 1", "LIGHT = 2", True),
        ("room/lamp", "LIGHT = 1", "LIGHT = None", True),
        ("page", "", "COLOR = 'red'", False),
        ("__init__", "page", "page as pages", False),
    ],
)
def test_what_runs_changes_it_and_what_is_said_does_not(
    house: Path, file: str, old: str, new: str, changes: bool
) -> None:
    before = hash_of(house)
    path = house / f"{file}.py"
    path.write_text(path.read_text().replace(old, new, 1))
    assert (hash_of(house) != before) == changes


def test_the_code_of_a_run_is_what_decides_its_numbers() -> None:
    modules = set(imported_modules(RUN_MODULE))
    needed = ("initializers.iblm", "training.loop", "linalg.blm", "data.splits", "metrics")
    assert modules >= {f"headstart.{name}" for name in needed}
    for other in (
        "reporting.plots",
        "reporting.document",
        "experiments.report",
        "experiments.catalogue",
        "cli",
        "bench",
    ):
        assert not any(name.startswith(f"headstart.{other}") for name in modules)


def test_a_module_that_is_not_there_is_one_sentence() -> None:
    assert not is_module("headstart.nowhere")
    with pytest.raises(HeadstartError, match=r"There is no module headstart\.nowhere"):
        code_hash("headstart.nowhere")
