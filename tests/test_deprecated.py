"""Module paths and names of version 0.1 still work, with a warning that says the new ones."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headstart import integrations
from headstart.deprecated import MOVED, RENAMED

OLD_NAMES = {
    module: names.split()
    for module, _, names in (
        line.partition(": ")
        for line in Path(__file__).with_name("names_0_1.txt").read_text().splitlines()
    )
}
"""What each module of version 0.1 defined or listed in `__all__`, without a leading underscore."""

GROUPS = "code is given the rows of all processes or a process group, with other methods"
PLANS = "one forward plan says what each layer draws"
INTERNAL = "an internal of a function that was written anew"
REMOVED = {
    "batches": ("place_inputs place_labels", "methods of a `Placement`, which asks a net once"),
    "ranks": ("Many ONE One Ranks T ranks_of", GROUPS),
    "shares": ("Piece brought deal every_th join spread", GROUPS),
    "streams": ("T", "a type variable"),
    "layers": ("GATES gates sharing", PLANS),
    "sampling": ("Drawn Stacked", PLANS),
    "experiments.plots": ("predictions", "a module of that name; the function: prediction_bands"),
    "experiments.summary": ("Difference paired", "verdicts have 95 % intervals"),
    "experiments.targets": ("TARGETS Target table", "the project's own aims are not for users"),
    "experiments.verdict": ("STEPS", "verdicts cover every evaluated checkpoint"),
    "checkpoints": ("AnotherRun", "a HeadstartError says it"),
    "fitting": ("RUNNING", INTERNAL),
    "inference.adam": ("ALL_HOOKS", INTERNAL),
    "initializers.iblm": ("FEWEST_DRAWS ROWS_OF_A_DRAW", INTERNAL),
    "initializers.walk": ("adds_up layer_input replaced", INTERNAL),
    "likelihoods.base": ("class_scores real_scores", "methods of kinds of labels"),
    "learner": ("Pair TIMED_STEPS learn", "it takes labels, and chooses their likelihood"),
    "tabular.fitting": ("NOISES interval stretches", "methods of the run and of the labels"),
}
"""Names that are gone, by module of version 0.1, and why."""
REMOVED_MODULES = {"experiments.targets"}


def test_the_table_is_that_of_version_0_1() -> None:
    assert sum(map(len, OLD_NAMES.values())) == 741
    assert set(MOVED) <= set(OLD_NAMES)
    assert set(REMOVED) <= set(OLD_NAMES)


def resolves(module: ModuleType, name: str) -> bool:
    """Whether a module has a name, and not only a submodule that is called so."""
    value = getattr(module, name, module)
    return not isinstance(value, ModuleType) or name in getattr(module, "__all__", ())


@pytest.mark.filterwarnings("ignore:headstart:DeprecationWarning")
@pytest.mark.parametrize("old", OLD_NAMES)
def test_every_old_name_is_there_or_known_to_be_gone(old: str) -> None:
    path = "headstart" if old == "headstart" else f"headstart.{old}"
    gone = REMOVED[old][0].split() if old in REMOVED else []
    if old in REMOVED_MODULES:
        assert gone == OLD_NAMES[old]
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(path)
        return
    module = importlib.import_module(path)
    assert [name for name in OLD_NAMES[old] if not resolves(module, name)] == gone


@pytest.mark.parametrize("module", RENAMED)
def test_a_renamed_name_warns_and_is_the_new_one(module: str) -> None:
    found = importlib.import_module(f"headstart.{module}")
    for old, (home, new) in RENAMED[module].items():
        assert old not in vars(found)
        sentence = f"headstart.{module}.{old} is now {home}.{new};"
        with pytest.warns(DeprecationWarning, match=sentence) as caught:
            value = getattr(found, old)
        assert value is vars(importlib.import_module(home))[new]
        assert caught[0].filename == __file__
    with pytest.raises(AttributeError, match=f"module 'headstart.{module}' has no attribute"):
        found.nothing  # noqa: B018


def test_every_alias_is_of_a_name_that_was() -> None:
    homes: dict[str, set[str]] = {}
    for old, names in OLD_NAMES.items():
        homes.setdefault(MOVED.get(old, old), set()).update(names)
    unknown = {
        f"{module}.{old}"
        for module, names in RENAMED.items()
        for old in names
        if old not in homes.get(module, ())
    }
    assert not unknown


def imports_of(path: Path) -> Iterator[tuple[str, str]]:
    """What a file imports from the package: module and name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "headstart":
            yield from ((str(node.module), alias.name) for alias in node.names)


def library_of(module: str, name: str) -> str | None:
    """The library that an integration needs."""
    if module == "headstart.integrations":
        return integrations.LIBRARIES.get(name)
    return module.rpartition(".")[2] if module.startswith("headstart.integrations.") else None


@pytest.mark.filterwarnings("error:headstart:DeprecationWarning")
@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples", "tools"])
def test_what_our_files_import_is_there_under_its_own_name(folder: str) -> None:
    """Benchmarks, examples and tools run seldom: nobody else would notice."""
    root = Path(__file__).parents[1]
    used = {found for path in (root / folder).rglob("*.py") for found in imports_of(path)}
    assert used
    for module, name in sorted(used - {("headstart.kernels.private", "*"), ("headstart", "*")}):
        if (library := library_of(module, name)) and not importlib.util.find_spec(library):
            continue
        home = importlib.import_module(module)
        assert hasattr(home, name) or importlib.util.find_spec(f"{module}.{name}"), (module, name)


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_warns_and_gives_the_new_module(old: str) -> None:
    sys.modules.pop(f"headstart.{old}", None)
    new = f"headstart.{MOVED[old]}"
    with pytest.warns(DeprecationWarning, match=f"headstart.{old} is now {new}"):
        found = importlib.import_module(f"headstart.{old}")
    assert found is importlib.import_module(new)
    assert found.__name__ == new
    assert found.__spec__ is not None
    assert found.__spec__.name == new


def test_a_path_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("headstart.nowhere")


@pytest.mark.parametrize("name", ["Training", "Step", "steps", "LR_SCHEDULES"])
def test_a_name_of_the_old_training_module_warns_and_is_the_new_one(name: str) -> None:
    training = importlib.import_module("headstart.training")
    with pytest.warns(DeprecationWarning, match=f"headstart.training.{name} is now headstart"):
        found = getattr(training, name)
    homes = ("training.loop", "training.history", "training.schedules")
    assert any(
        found is vars(importlib.import_module(f"headstart.{home}")).get(name) for home in homes
    )
    with pytest.raises(AttributeError):
        training.nothing  # noqa: B018
