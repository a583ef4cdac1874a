"""Which code makes a number: a hash over the modules that a run imports.

The hash sees what Python executes. Comments, docstrings and formatting do not change it;
a renamed or moved module does.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from headstart.errors import HeadstartError

PACKAGE = Path(__file__).resolve().parents[1]
RUN_MODULE = "headstart.experiments.run"
"""The module whose imports, and theirs, are the code of a run."""
HASH_DIGITS = 12


@cache
def code_hash(entry: str = RUN_MODULE, package: Path = PACKAGE) -> str:
    """The hash of the code of a run.

    Args:
        entry: The module to begin with; every module of the package that it imports counts.
        package: The folder of the package.

    Returns:
        Twelve hexadecimal digits.

    Example:
        >>> len(code_hash()), code_hash() == code_hash("headstart.errors")
        (12, False)
    """
    digest = hashlib.sha256()
    for name, tree in sorted(imported_modules(entry, package).items()):
        digest.update(f"{name}\n{_canonical(_without_docstrings(tree))}\n".encode())
    return digest.hexdigest()[:HASH_DIGITS]


def imported_modules(entry: str, package: Path = PACKAGE) -> dict[str, ast.Module]:
    """The modules of the package that a module imports, and those that they import.

    Imports in functions count. The package's own `__init__` does not: it only re-exports names.

    Args:
        entry: The full name of the module to begin with.
        package: The folder of the package.

    Returns:
        The syntax trees by the modules' full names, `entry` among them.

    Raises:
        HeadstartError: There is no such module.
    """
    if _source(entry, package) is None:
        raise HeadstartError(f"There is no module {entry} in {package}.")
    found: dict[str, ast.Module] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        path = None if name in found or name == package.name else _source(name, package)
        if path is not None:
            found[name] = ast.parse(path.read_bytes(), filename=str(path))
            waiting += [name.rpartition(".")[0], *_imports(found[name], package.name)]
    return found


def is_module(name: str) -> bool:
    """Whether the package has a module of this full name."""
    return _source(name, PACKAGE) is not None


def _source(name: str, package: Path) -> Path | None:
    """The file of a module; nothing where the name is not that of a module."""
    place = package.parent.joinpath(*name.split("."))
    for path in (place / "__init__.py", place.with_suffix(".py")):
        if path.is_file():
            return path
    return None


def _imports(node: ast.AST, package: str) -> Iterator[str]:
    """What may be modules of the package among the imports below a node.

    Imports for type checkers do not run, so that they do not count.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) or _is_for_type_checkers(child):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names if _inside(alias.name, package))
        elif isinstance(child, ast.ImportFrom) and _inside(child.module or "", package):
            yield str(child.module)
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from _imports(child, package)


def _is_for_type_checkers(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def _inside(name: str, package: str) -> bool:
    return name.partition(".")[0] == package


def _without_docstrings(tree: ast.Module) -> ast.Module:
    """The same code without strings that stand as statements, docstrings above all."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [part for part in body if not _is_string(part)]
    return tree


def _is_string(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _canonical(tree: ast.AST) -> str:
    """A syntax tree as text, the same in every version of Python: what is empty is left out."""
    parts: list[str] = []
    _write_node(tree, parts.append)
    return "".join(parts)


def _write_node(node: Any, write: Callable[[str], None]) -> None:
    if isinstance(node, ast.AST):
        write(f"{type(node).__name__}(")
        for name in node._fields:
            value = getattr(node, name, None)
            if name != "kind" and value is not None and value != []:
                write(f"{name}=")
                _write_node(value, write)
        write(")")
    elif isinstance(node, list):
        write("[")
        for part in node:
            _write_node(part, write)
        write("]")
    else:
        write(f"{node!r},")
