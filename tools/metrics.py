"""How easy it is to find one's way in the code: `make metrics` counts, and fails beyond a limit."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from radon.complexity import cc_visit

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "headstart"
WINDOW = 6
"""Statements in a row that count as a repetition where they stand twice."""
DISTRIBUTED = {
    "ranks",
    "world",
    "world_size",
    "global_rank",
    "all_reduce",
    "all_gather",
    "broadcast",
    "barrier",
}
"""Identifiers that speak of several processes."""
PUBLIC_MODULES = ("headstart", "headstart.estimators")


@dataclass(frozen=True)
class Count:
    """A number, the most that it may be, and where to look."""

    name: str
    value: float
    limit: float
    places: list[str]

    @property
    def holds(self) -> bool:
        return self.value <= self.limit


def modules() -> dict[str, ast.Module]:
    """Every module of the package, by its path from the package's folder."""
    paths = sorted(SOURCE.rglob("*.py"))
    return {str(path.relative_to(SOURCE)): ast.parse(path.read_text()) for path in paths}


def flat(trees: dict[str, ast.Module]) -> Count:
    top = [path for path in trees if "/" not in path]
    return Count("modules at the top level", len(top), 12, top)


def homes(trees: dict[str, ast.Module]) -> Count:
    """Names at the top level of more than one module; a leading underscore does not count."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        for name in top_level_names(tree):
            found[name.lstrip("_").lower()].add(path)
    twice = [
        f"{name}: {', '.join(sorted(where))}"
        for name, where in sorted(found.items())
        if len(where) > 1
    ]
    return Count(f"top-level names with more than one home, of {len(found)}", len(twice), 15, twice)


def top_level_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name != "_":
            yield node.name
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and not target.id.startswith("__"):
                yield target.id


def ranks(trees: dict[str, ast.Module]) -> Count:
    """Files outside distributed/ whose code names a rank, a world size or a collective."""
    found = []
    for path, tree in trees.items():
        names = {name for node in ast.walk(tree) for name in identifiers(node)}
        if not path.startswith("distributed/") and names & DISTRIBUTED:
            found.append(f"{path}: {', '.join(sorted(names & DISTRIBUTED))}")
    return Count(
        "files outside distributed/ that name a rank, a world size or a collective",
        len(found),
        5,
        found,
    )


def identifiers(node: ast.AST) -> Iterator[str]:
    for kind, field in (
        (ast.Name, "id"),
        (ast.Attribute, "attr"),
        (ast.arg, "arg"),
        (ast.keyword, "arg"),
        (ast.alias, "name"),
    ):
        if isinstance(node, kind):
            yield str(getattr(node, field))


def complexity() -> Count:
    """Functions and methods with a cyclomatic complexity over 12."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for block in cc_visit(path.read_text()):
            parts = [block, *getattr(block, "methods", [])]
            found += [
                f"{path.relative_to(SOURCE)}:{part.lineno} {part.name} ({part.complexity})"
                for part in parts
                if part.complexity > 12 and part.letter != "C"
            ]
    return Count(
        "functions with a cyclomatic complexity over 12", len(set(found)), 0, sorted(set(found))
    )


def wide() -> Count:
    """Lines over 100 columns; one that is a link has nowhere to break."""
    found = []
    for folder in ("src", "tests", "benchmarks", "examples", "tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if len(line) > 100 and "://" not in line:
                    found.append(f"{path.relative_to(ROOT)}:{number} ({len(line)})")
    return Count("lines over 100 columns", len(found), 0, found)


def without_args() -> Count:
    """Public functions and classes that take arguments which their docstring does not explain."""
    found = []
    for module in PUBLIC_MODULES:
        package = importlib.import_module(module)
        for name in package.__all__:
            thing = getattr(package, name)
            if not callable(thing) or not inspect.getmodule(thing):
                continue
            for owner, part in documented(name, thing):
                if takes_arguments(part) and "Args:" not in (inspect.getdoc(owner) or ""):
                    found.append(
                        f"{module}.{name}" if owner is thing else f"{module}.{name}.{part.__name__}"
                    )
    return Count("public names without Args", len(set(found)), 0, sorted(set(found)))


def documented(name: str, thing: object) -> Iterator[tuple[object, object]]:
    """What carries a docstring: a function, or a class and its own public methods."""
    if not inspect.isclass(thing):
        yield thing, thing
        return
    if "__init__" in vars(thing):
        yield thing, vars(thing)["__init__"]
    for method, part in vars(thing).items():
        if inspect.isfunction(part) and not method.startswith("_"):
            yield part, part


def takes_arguments(part: object) -> bool:
    names = [
        p for p in inspect.signature(part).parameters if p not in ("self", "cls", "args", "kwargs")
    ]
    return bool(names)


def repetition(trees: dict[str, ast.Module]) -> Count:
    """The fraction of windows of six statements, names and values left out, that stand twice."""
    windows: Counter[str] = Counter()
    for tree in trees.values():
        for node in ast.walk(tree):
            for body in (getattr(node, field, None) for field in ("body", "orelse", "finalbody")):
                if isinstance(body, list):
                    shapes = [shape(statement) for statement in body if not is_docstring(statement)]
                    windows.update(
                        "\n".join(shapes[i : i + WINDOW]) for i in range(len(shapes) - WINDOW + 1)
                    )
    total, again = sum(windows.values()), sum(count for count in windows.values() if count > 1)
    return Count(
        "repetition of six-statement windows, percent", round(100 * again / max(1, total), 2), 3, []
    )


def is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def shape(statement: ast.stmt) -> str:
    """A statement without its names and values; an import is what it imports."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return ast.unparse(statement)
    return re.sub(r"(?:id|attr|arg|name|value)='[^']*'|value=-?[\d.]+", "", ast.dump(statement))


def longest() -> Count:
    lengths = {
        str(path.relative_to(SOURCE)): len(path.read_text().splitlines())
        for path in SOURCE.rglob("*.py")
    }
    rows = [
        f"{path} ({lines})"
        for path, lines in sorted(lengths.items(), key=lambda item: -item[1])[:8]
    ]
    return Count("lines of the longest file", max(lengths.values()), 350, rows)


def main() -> int:
    trees = modules()
    counts = [
        flat(trees),
        homes(trees),
        ranks(trees),
        complexity(),
        wide(),
        without_args(),
        repetition(trees),
        longest(),
    ]
    if "--json" in sys.argv:
        print(json.dumps({count.name: count.value for count in counts}))
        return 0
    for count in counts:
        print(
            f"{'ok  ' if count.holds else 'over'} {count.value:>6g} "
            f"(at most {count.limit:g})  {count.name}"
        )
        if "--places" in sys.argv or not count.holds:
            print("".join(f"              {place}\n" for place in count.places), end="")
    return 0 if all(count.holds for count in counts) else 1


if __name__ == "__main__":
    sys.exit(main())
