"""What the description of a data set is made of: its files, the forms they may have, its shape."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from headstart.data.readers import AnyArray, Raw

TaskKind = Literal["regression", "classification"]


@dataclass(frozen=True)
class File:
    """A file by its public name, its addresses and its digests, `algorithm:hex`.

    Args:
        name: The name under which it was published.
        urls: Its addresses, mirrors in order.
        content: The digest of the decompressed bytes, which any repackaging keeps.
        stored: The digest of the file as published, where it differs from `content` or `content`
            is not known.
    """

    name: str
    urls: tuple[str, ...] = ()
    content: str = ""
    stored: str = ""


@dataclass(frozen=True)
class Form:
    """One form in which a data set may lie in its folder.

    Args:
        files: The files of this form.
        read: Makes arrays of their paths.
        title: What precisely this form is, where it differs from the spec's.
        counts: The rows of each class, where they differ from the spec's.
    """

    files: tuple[File, ...]
    read: Callable[[Sequence[Path]], Raw]
    title: str = ""
    counts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Spec:
    """All that is known about a data set before it is read.

    Args:
        name: The name under which it is loaded.
        title: What precisely it is.
        shape: Of one example.
        counts: The rows of each class (for regression: of the whole table), without the official
            test set.
        target: The name of what is predicted.
        license: The terms under which it was published.
        citation: Where it comes from.
        forms: How it may lie on disk; the first is the public original, which `fetch` downloads.
        classes: The names of the classes; none for regression.
        features: The names of the columns.
        test_rows: The rows of the official test set.
        values: The digest of the numbers, for an original without a published digest.
        folder: Where its files lie, if not in a folder of its own name.
    """

    name: str
    title: str
    shape: tuple[int, ...]
    counts: tuple[int, ...]
    target: str
    license: str
    citation: str
    forms: tuple[Form, ...]
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    test_rows: int = 0
    values: str = ""
    folder: str = ""

    @property
    def place(self) -> str:
        """The name of the folder of its files."""
        return self.folder or self.name

    @property
    def task(self) -> TaskKind:
        return "classification" if self.classes else "regression"

    def rows(self, form: Form) -> tuple[int, ...]:
        """The rows of each class that `form` should hold."""
        return form.counts or self.counts

    def fault(self, form: Form, raw: Raw) -> str:
        """What is wrong with the arrays read from `form`, in a few words; empty when nothing is."""
        expected = self.rows(form)
        test_x, test_y = raw.test or (raw.x[:0], raw.y[:0])
        if fault := self._shape_fault(raw.x, raw.y, sum(expected)):
            return fault
        if fault := self._shape_fault(test_x, test_y, self.test_rows):
            return fault
        counts = tuple(int((raw.y == k).sum()) for k in range(len(self.classes))) or (len(raw.y),)
        if counts != expected:
            return f"class counts {_slashed(counts)} instead of {_slashed(expected)}"
        if raw.x.dtype.kind == "f" and not (np.isfinite(raw.x).all() and np.isfinite(raw.y).all()):
            return "missing or infinite values"
        if self.values and value_digest(raw) != self.values:
            return "other numbers than the published ones"
        return ""

    def _shape_fault(self, x: AnyArray, y: AnyArray, rows: int) -> str:
        shape = (rows, *self.shape)
        if x.shape == shape and len(y) == rows:
            return ""
        return f"{_by(x.shape)} values and {len(y)} targets instead of {_by(shape)}"

    def summary(self, form: Form) -> str:
        """The expected shape in a few words.

        Example:
            >>> from headstart.data.registry import SPECS
            >>> SPECS["spam"].summary(SPECS["spam"].forms[0])
            '4601 × 57, classes 2788/1813'
        """
        rows = self.rows(form)
        test = f" + {self.test_rows}" if self.test_rows else ""
        return f"{sum(rows)}{test} × {_by(self.shape)}" + (
            f", classes {_slashed(rows)}" if self.classes else ""
        )


def value_digest(raw: Raw) -> str:
    """The digest of a table's numbers, columns then target, as little-endian float64.

    Rounding to six decimals absorbs how a workbook or a csv happens to spell the same number;
    adding zero turns −0 into 0.

    Example:
        >>> table = Raw(np.array([[0.3]]), np.array([[1.0]]))
        >>> value_digest(table) == value_digest(table._replace(x=np.array([[0.1 + 0.2]])))
        True
    """
    values = np.round(np.hstack([raw.x, raw.y]).astype("<f8"), 6) + 0.0
    return (
        "sha256:" + hashlib.sha256(np.ascontiguousarray(values, dtype="<f8").tobytes()).hexdigest()
    )


def _by(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


def _slashed(counts: Sequence[int]) -> str:
    return "/".join(map(str, counts))
