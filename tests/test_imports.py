"""What is imported, and when: public names at first use, and without the modules Windows lacks."""

from __future__ import annotations

import ast
import inspect
import json
import pickle
import pkgutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import headstart

HEAVY = {"torch", "numpy", "pandas", "matplotlib", "sklearn", "pyarrow", "PIL", "joblib", "pooch"}
WITHOUT_POSIX = """
import importlib, pkgutil, sys
for name in ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"):
    sys.modules[name] = None  # importing it fails, as on Windows
import headstart
names = [found.name for found in pkgutil.walk_packages(headstart.__path__, "headstart.")]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A library to work with, which may be missing.
        if not name.startswith("headstart.integrations.") or not error.name:
            raise
print(*sorted(names))
"""
HELP = """
import contextlib, io, json, sys
import typer
from headstart import cli

def commands(group, *path):
    for name, command in group.commands.items():
        yield [*path, name]
        yield from commands(command, *path, name) if hasattr(command, "commands") else ()

said = {}
for path in [[], *commands(typer.main.get_command(cli.app))]:
    for option in ["--help"] if path else ["--help", "--version"]:
        sys.argv = ["headstart", *path, option]
        with contextlib.redirect_stdout(io.StringIO()) as stream, contextlib.suppress(SystemExit):
            cli.main()
        said[" ".join(sys.argv)] = stream.getvalue()
print(json.dumps({"said": said, "modules": sorted(sys.modules)}))
"""


def run(code: str) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def told_to_type_checkers() -> dict[str, str]:
    """Public names, and the modules from which the package imports them for type checkers."""
    tree = ast.parse(inspect.getsource(headstart))
    branches = (node for node in tree.body if isinstance(node, ast.If))
    (block,) = (node for node in branches if ast.unparse(node.test) == "TYPE_CHECKING")
    lines = [line for line in block.body if isinstance(line, ast.ImportFrom)]
    assert len(lines) == len(block.body)
    return {alias.name: str(line.module) for line in lines for alias in line.names}


def test_names_come_from_where_type_checkers_are_told() -> None:
    told = told_to_type_checkers()
    modules = {name for name, module in told.items() if module == "headstart"}
    assert modules == {"estimators", "models"}
    homes = {name: f"headstart.{module}" for name, module in headstart._HOME.items()}
    assert homes == {name: module for name, module in told.items() if name not in modules}
    assert sorted(headstart.__all__) == sorted(told.keys() - {"estimators"})


@pytest.mark.parametrize("name", headstart.__all__)
def test_a_public_name_is_what_its_module_defines(name: str) -> None:
    value = getattr(headstart, name)
    if name == "models":
        assert value is sys.modules["headstart.models"]
        return
    assert value is getattr(sys.modules[f"headstart.{headstart._HOME[name]}"], name)
    # Found once, it is an attribute like any other: no second search, and tests may replace it.
    assert vars(headstart)[name] is value
    if callable(value):
        assert pickle.loads(pickle.dumps(value)) is value


def test_no_module_bears_a_public_name() -> None:
    """Importing such a module would put it in the place of the name."""
    modules = {found.name for found in pkgutil.iter_modules(headstart.__path__)}
    assert modules & set(headstart.__all__) == {"models"}


def test_the_package_lists_its_names_and_knows_no_others() -> None:
    assert set(headstart.__all__) <= set(dir(headstart))
    everything: dict[str, object] = {}
    exec("from headstart import *", everything)
    assert everything.keys() - {"__builtins__"} == set(headstart.__all__)
    with pytest.raises(AttributeError, match="module 'headstart' has no attribute 'fitt'"):
        headstart.fitt  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'fitt' from 'headstart'"):
        exec("from headstart import fitt")


def test_submodules_are_attributes_before_anybody_imports_them() -> None:
    assert run("import headstart as hs; print(hs.metrics.__name__, hs.models.__name__)") == (
        "headstart.metrics headstart.models\n"
    )


def test_help_and_version_import_nothing_heavy() -> None:
    """Torch takes seconds; a question about options is answered without it."""
    answer = json.loads(run(HELP))
    said, modules = answer["said"], {name.partition(".")[0] for name in answer["modules"]}
    assert {"headstart", "typer"} <= modules
    assert not modules & HEAVY
    assert said.pop("headstart --version") == f"headstart {version('headstart')}\n"
    assert {"headstart --help", "headstart fit --help", "headstart data list --help"} <= said.keys()
    assert all("Usage: headstart" in text and "--help" in text for text in said.values())


def test_no_module_needs_what_windows_lacks() -> None:
    imported = run(WITHOUT_POSIX).split()
    package = Path(headstart.__file__).parent
    files = [path.relative_to(package.parent).with_suffix("") for path in package.rglob("*.py")]
    modules = {".".join(file.parts).removesuffix(".__init__") for file in files}
    assert modules == {"headstart", *imported}
