"""The package as it is shipped: whole, with its types and data, and with every import declared."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import headstart
from headstart import integrations

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn"}
"""Distributions that are not called as their module is."""
NOT_IMPORTED = {"openpyxl", "lightning-fabric"}
"""Declared without an import: pandas reads Excel with the one, callers bring the other's Fabric."""
INTEGRATIONS = {"botorch", "lightning", "skpro"}
"""Extras that a module of `headstart/integrations` of the same name imports, and no other."""
PEERS = {"bayesian_torch", "blitz", "ivon", "laplace", "pyro", "torch_blue", "torchbnn", "vbll"}
TREES = {"catboost", "ngboost"}
"""What `headstart bench` measures where it is installed, and nothing else imports."""


def test_the_package_tells_its_version() -> None:
    assert headstart.__version__ == version("headstart")


def run(*arguments: str, **options: Any) -> str:
    command = [sys.executable, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert result.returncode == 0, result.stderr
    return str(result.stdout)


def project() -> dict[str, Any]:
    """The metadata that pyproject.toml declares."""
    tomllib = pytest.importorskip("tomllib", reason="this Python reads no TOML")
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])


def names(requirements: list[str]) -> set[str]:
    """The distributions that requirements name, their versions and extras left off."""
    return {re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower() for requirement in requirements}


def imports(node: ast.AST, *, later: bool) -> Iterator[str]:
    """Modules that the code imports; with `later` in functions too, and for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and not child.level:
            yield str(child.module).partition(".")[0]
        elif later or not (
            isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            or (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING")
        ):
            yield from imports(child, later=later)


def third_party(path: Path, *, later: bool) -> set[str]:
    """Distributions that a file imports from."""
    found = set(imports(ast.parse(path.read_text(encoding="utf-8")), later=later))
    found -= {*sys.stdlib_module_names, "headstart", "tomllib"}
    found -= PEERS | TREES if later and path.match("headstart/bench/*.py") else set()
    found -= INTEGRATIONS & {path.stem} if path.match("headstart/integrations/*.py") else set()
    return {DISTRIBUTIONS.get(name, name) for name in found}


def test_an_import_is_told_from_its_place() -> None:
    types, function = "if TYPE_CHECKING: import c", "def f(): from d import e"
    code = ast.parse("\n".join(["import a.b", types, function, "if f(): import g"]))
    assert set(imports(code, later=False)) == {"a", "g"}
    assert set(imports(code, later=True)) == {"a", "c", "d", "g"}


def test_what_is_imported_is_declared() -> None:
    """What a module imports by itself is a dependency; a function may import an optional one."""
    metadata = project()
    required = names(metadata["dependencies"])
    optional = names(metadata["optional-dependencies"]["scale"])
    for path in SOURCES:
        assert third_party(path, later=False) - required == set(), path
        assert third_party(path, later=True) - required - optional == set(), path


def test_every_integration_is_an_extra() -> None:
    assert set(integrations.LIBRARIES.values()) == INTEGRATIONS
    for library in INTEGRATIONS:
        assert names(project()["optional-dependencies"][library]) == {library}


def test_what_is_declared_is_imported() -> None:
    metadata = project()
    declared = names(metadata["dependencies"] + metadata["optional-dependencies"]["scale"])
    imported = set[str]().union(*(third_party(path, later=True) for path in SOURCES))
    assert declared - imported == NOT_IMPORTED


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    left = shutil.ignore_patterns("*.egg-info", "__pycache__")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, source / name, ignore=left)
    run("-m", "build", "--no-isolation", "--outdir", str(folder), str(source))
    return folder


def shipped() -> set[str]:
    """Every file of the package."""
    files = (path for path in (ROOT / "src/headstart").rglob("*") if path.is_file())
    return {path.relative_to(ROOT / "src").as_posix() for path in files if path.suffix != ".pyc"}


def test_the_source_distribution_is_whole(built: Path) -> None:
    (archive,) = built.glob("headstart-*.tar.gz")
    with tarfile.open(archive) as tar:
        found = {name.partition("/")[2] for name in tar.getnames()}
    assert {f"src/{name}" for name in shipped()} <= found
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= found
    assert not any(name.startswith("tests") for name in found)


def test_the_wheel_is_whole_and_installs_by_itself(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("headstart-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
        (entry,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        metadata = archive.read(entry).decode()
    assert found == shipped()
    assert {"headstart/py.typed", "headstart/experiments/paper.json"} <= found
    assert "Author: headstart developers" in metadata
    assert "Classifier: Typing :: Typed" in metadata
    site = tmp_path / "site"
    run("-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel))
    environment = {"PYTHONPATH": str(site), "PATH": ""}
    where = run("-c", "import headstart; print(headstart.__file__)", env=environment, cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(site)
