"""What a table is to predict, a quantity or one of some classes: decided from labels."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from headstart.errors import HeadstartError, unknown
from headstart.tabular.cells import labels_of, to_numbers
from headstart.tabular.columns import MIN_NUMERIC_FRACTION

TARGET_TASKS = ("regression", "classification")
MAX_NUMERIC_CLASSES = 20
"""A numeric target with more distinct values than this is a quantity."""
MAX_RARE_CLASSES = 10
"""So is one with more than this where some value occurs only once, as a large count does."""
MAX_CLASSES = 100
MAX_RARE_NAMED = 5
"""Classes of hardly any row that are warned of one by one."""
_BETWEEN_WORDS = re.compile(r"(?<=[^\W_])[\s_-]+(?=[^\W_])")


@dataclass(frozen=True)
class Target:
    """What is predicted: a quantity, or one of `classes`.

    Example:
        >>> Target.learn(pd.Series(["9", "10", None, "9"]), "rooms")
        Target(name='rooms', task='classification', classes=('9', '10'))
    """

    name: str
    task: str
    classes: tuple[str, ...] = ()

    @classmethod
    def learn(cls, labels: pd.Series, name: str, task: str = "auto") -> Target:
        """Decide from these labels; missing ones count for nothing."""
        known = labels.dropna()
        if len(known) == 0:
            raise HeadstartError(f"The target {name!r} is empty: there is nothing to learn.")
        classes: tuple[str, ...] = ()
        task = task_of(known, task)
        if task == "regression":
            refuse_words(known, name, MIN_NUMERIC_FRACTION)
            numbers = to_numbers(known)
            distinct = len(np.unique(numbers[np.isfinite(numbers)]))
        else:
            classes = _classes(known, name)
            distinct = len(classes)
        if distinct == 1:
            raise HeadstartError(
                f"The target {name!r} holds a single value in the rows to learn from: "
                "there is nothing to predict."
            )
        return cls(name, task, classes)

    def encode(self, values: pd.Series) -> np.ndarray:
        """Numbers, or the places of classes; NaN or −1 where there is none."""
        if self.task == "regression":
            return to_numbers(values)
        places = {label: index for index, label in enumerate(self.classes)}
        return labels_of(values).map(places).fillna(-1).to_numpy(int)


def doubtful_classes(target: Target, labels: pd.Series) -> list[str]:
    """Warn of classes that may be one, and of those that hardly any row has.

    Args:
        target: What is predicted.
        labels: Those of the rows to learn from.
    """
    alike: dict[str, list[str]] = {}
    for name in target.classes:
        alike.setdefault(_BETWEEN_WORDS.sub(" ", name).casefold(), []).append(name)
    counts = labels_of(labels.dropna()).value_counts()
    rare = [name for name in target.classes if counts.get(name, 0) < 2]
    one = "differ only in case, spaces or hyphens: if they are one class, write them alike."
    few = "has fewer than two rows to learn from: if that is a typing error, correct it."
    return [
        *(
            f"The classes {_listed(names)} of {target.name!r} {one}"
            for names in alike.values()
            if len(names) > 1 and not any(map(_is_number, names))
        ),
        *(f"The class {name!r} of {target.name!r} {few}" for name in rare[:MAX_RARE_NAMED]),
    ]


def _listed(names: list[str]) -> str:
    return " and ".join(map(repr, names))


def _is_number(name: str) -> bool:
    return _label_order(name)[0] == 0


def task_of(known: pd.Series, task: str = "auto") -> str:
    """The task itself, or for `auto` what these labels look like, none of which is missing."""
    if task not in ("auto", *TARGET_TASKS):
        raise unknown("task", task, ("auto", *TARGET_TASKS))
    if task != "auto":
        return task
    quantity = np.isfinite(to_numbers(known)).all() and _varies(labels_of(known).value_counts())
    return "regression" if quantity else "classification"


def _varies(counts: pd.Series) -> bool:
    """Whether numbers are too many, too rare or too different from row to row to be classes.

    Args:
        counts: How often each number occurs.
    """
    distinct = len(counts)
    return bool(
        distinct > MAX_NUMERIC_CLASSES
        or (distinct > MAX_RARE_CLASSES and counts.min() == 1)
        or (distinct > 2 and 2 * distinct > counts.sum())
    )


def refuse_words(known: pd.Series, name: str, enough: float) -> None:
    """Refuse labels of a quantity of which less than the fraction `enough` are numbers."""
    numeric = np.isfinite(to_numbers(known))
    if numeric.mean() >= enough:
        return
    odd = str(known[~numeric].iloc[0])
    if numeric.mean() <= 0.5:
        raise HeadstartError(
            f"The target {name!r} holds {odd!r}, which is not a number: it cannot be a quantity."
        )
    raise HeadstartError(
        f"The target {name!r} holds numbers and other things, like {odd!r}: "
        "mend those, or empty them to leave out their rows."
    )


def _classes(known: pd.Series, name: str) -> tuple[str, ...]:
    labels = labels_of(known)
    distinct = labels.nunique()
    numeric = np.isfinite(to_numbers(known))
    if distinct > MAX_NUMERIC_CLASSES and numeric.mean() > 0.5:
        # Numbers with a word among them; a table of numbers alone may have asked for classes.
        refuse_words(known, name, 1.0)
    if distinct > MAX_CLASSES or (distinct > 2 and distinct > len(known) / 2):
        advice = (
            "say --task regression if it is a quantity" if numeric.all() else "group the rare ones"
        )
        raise HeadstartError(
            f"The target {name!r} has {distinct} different labels in {len(known)} rows: "
            f"too many for classes (at most {MAX_CLASSES}, and two rows of each). "
            f"Name another column, or {advice}."
        )
    return tuple(sorted(map(str, labels.unique()), key=_label_order))


def _label_order(label: str) -> tuple[int, float, str]:
    """Numbers as numbers, then words."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label
