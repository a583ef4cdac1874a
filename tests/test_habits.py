"""What stands in several files is the same in all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def found(pattern: str, name: str) -> list[str]:
    return re.findall(pattern, text(name), flags=re.MULTILINE)


def test_the_version_is_one() -> None:
    (version,) = found(r'^version = "(.*)"$', "pyproject.toml")
    assert found(r"^version: (.*)$", "CITATION.cff") == [version]
    assert found(r'set version = "(.*)" %}', "conda/meta.yaml") == [version]


def test_the_conda_recipe_asks_for_what_the_package_asks_for() -> None:
    tomllib = pytest.importorskip("tomllib", reason="this Python reads no TOML")
    project = tomllib.loads(text("pyproject.toml"))["project"]
    wanted = {f"python{project['requires-python']}"}
    for requirement in project["dependencies"]:
        name = re.split(r"[<>=]", requirement)[0]
        wanted.add(CONDA_NAMES.get(name, name) + requirement.removeprefix(name))
    _, _, run = text("conda/meta.yaml").partition("  run:\n")
    listed = re.findall(r"^    - (.*)$", run.partition("\ntest:")[0], flags=re.MULTILINE)
    assert {line.replace(" ", "") for line in listed} == wanted


def test_the_workflow_runs_versions_that_are_promised() -> None:
    promised = found(r'"Programming Language :: Python :: (3\.\d+)"', "pyproject.toml")
    (row,) = found(r"^        python: \[(.*)\]$", ".github/workflows/tests.yml")
    assert set(re.findall(r'"(.*?)"', row)) <= set(promised)
    # Other pairs of names and targets would fail there alone.
    targets = set(found(r"^([a-z-]+):", "Makefile"))
    commands = " ".join(found(r"- run: make (.*)$", ".github/workflows/tests.yml"))
    assert set(commands.split()) <= targets


def test_the_paper_cites_what_its_bibliography_has() -> None:
    cited = set(found(r"@([a-z]+\d{4}[a-z]*)", "paper.md"))
    assert cited == set(found(r"^@[a-z]+\{(\w+),", "paper.bib"))
