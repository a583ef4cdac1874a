"""Classes of the user's own in the tables of names, so that files that name them can be read."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TypeVar

from headstart.errors import HeadstartError, unknown

T = TypeVar("T")


def full_name(kind: type) -> str:
    """The module and the name of a class, as one imports it.

    Args:
        kind: The class.
    """
    return f"{kind.__module__}.{kind.__qualname__}"


def enter(table: dict[str, type[T]], kind: type[T], of: str) -> None:
    """Put a class into a table under its `name`.

    A class that is defined again in the same place, as a notebook does, takes its own place.

    Args:
        table: Classes by name.
        kind: The class.
        of: What the table is of, "likelihood" or "posterior".

    Raises:
        HeadstartError: The class has no name of its own, lacks methods, or its name is taken.
    """
    name = vars(kind).get("name")
    if not isinstance(name, str) or not name:
        raise HeadstartError(
            f"{kind.__name__} has no name of its own; give the class one, as in "
            f'name = "{kind.__name__.lower()}", so that files can tell which {of} they hold.'
        )
    if inspect.isabstract(kind):
        lacking = ", ".join(sorted(getattr(kind, "__abstractmethods__", ())))
        raise HeadstartError(f"{kind.__name__} is no whole {of} yet: it lacks {lacking}.")
    before = table.get(name)
    if before is not None and full_name(before) != full_name(kind):
        raise HeadstartError(
            f"{full_name(before)} is already the {of} {name!r}; give {kind.__name__} another name."
        )
    table[name] = kind


def class_of(table: Mapping[str, type[T]], entry: Mapping[str, object], of: str) -> type[T]:
    """The class that a file names.

    Args:
        table: Classes by name.
        entry: The file's words: its `name`, and its `class` where it is not one of ours.
        of: What the table is of.

    Raises:
        HeadstartError: No class of that name is registered; the sentence says what to import.
    """
    name, home = entry["name"], entry.get("class")
    if name in table:
        return table[str(name)]
    if home is None:
        raise unknown(of, name, table)
    module, _, last = str(home).rpartition(".")
    raise HeadstartError(
        f"There is no {of} {name!r} here; import the module that registers it, {module}, "
        f"whose class {last} has @hs.register_{of}, and load again."
    )


def entry_of(table: Mapping[str, type], kind: type, name: str, of: str) -> dict[str, str]:
    """What a file says of a class: its name, and its module and class where it is not ours.

    Args:
        table: Classes by name.
        kind: The class.
        name: Its name.
        of: What the table is of.

    Raises:
        HeadstartError: It is not registered, so that the file could not be read.
    """
    if table.get(name) is not kind:
        raise HeadstartError(
            f"{full_name(kind)} is not registered, so its file could not be read again; "
            f"decorate the class with @hs.register_{of}."
        )
    ours = kind.__module__.partition(".")[0] == __name__.partition(".")[0]
    return {"name": name} if ours else {"name": name, "class": full_name(kind)}
