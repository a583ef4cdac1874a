"""What a data set's description is made of (File, Form, Spec), and how arrays become one data set (Raw)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.data.readers import Float64, read_idx

Task = Literal["regression", "classification"]
Array = npt.NDArray[Any]


class Raw(NamedTuple):
    """A data set as numpy arrays, before it becomes tensors; `test` is the official test set where there is one."""

    x: Array
    y: Array
    test: tuple[Array, Array] | None = None


@dataclass(frozen=True)
class File:
    """A file by its public name, its addresses (mirrors in order) and its digests, `algorithm:hex`.

    `content` is the digest of the decompressed bytes, which any repackaging keeps; `stored` that of the file as
    published, given only where it differs from `content` or `content` is not known.
    """

    name: str
    urls: tuple[str, ...] = ()
    content: str = ""
    stored: str = ""


@dataclass(frozen=True)
class Form:
    """One form in which a data set may lie in its folder; `title` and `counts` where they differ from the spec's."""

    files: tuple[File, ...]
    read: Callable[[Sequence[Path]], Raw]
    title: str = ""
    counts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Spec:
    """All that is known about a data set before it is read.

    `counts` are the rows of each class (for regression: of the whole table), the official test set apart, which has
    `test_rows`. `values` is the digest of the numbers themselves, for an original without a published one.
    The first of `forms` is the public original, which `fetch` downloads.
    """

    name: str
    title: str
    shape: tuple[int, ...]
    counts: tuple[int, ...]
    target: str
    licence: str
    citation: str
    forms: tuple[Form, ...]
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    test_rows: int = 0
    values: str = ""

    @property
    def task(self) -> Task:
        return "classification" if self.classes else "regression"

    def rows(self, form: Form) -> tuple[int, ...]:
        """The rows of each class that `form` should hold."""
        return form.counts or self.counts

    def fault(self, form: Form, raw: Raw) -> str:
        """What is wrong with the arrays read from `form`, in a few words; empty when nothing is."""
        found = tuple(int((raw.y == k).sum()) for k in range(len(self.classes))) or (len(raw.y),)
        expected = self.rows(form)
        for x, y, rows in [
            (raw.x, raw.y, sum(expected)),
            (*(raw.test or (raw.x[:0], raw.y[:0])), self.test_rows),
        ]:
            if x.shape != (rows, *self.shape) or len(y) != rows:
                return f"{_by(x.shape)} values and {len(y)} targets instead of {_by((rows, *self.shape))}"
        if found != expected:
            return f"class counts {_slashed(found)} instead of {_slashed(expected)}"
        if raw.x.dtype.kind == "f" and not (np.isfinite(raw.x).all() and np.isfinite(raw.y).all()):
            return "missing or infinite values"
        if self.values and value_digest(raw) != self.values:
            return "other numbers than the published ones"
        return ""

    def summary(self, form: Form) -> str:
        """The expected shape in a few words.

        Example:
            >>> from headstart.data.specs import SPECS
            >>> SPECS["spam"].summary(SPECS["spam"].forms[0])
            '4601 × 57, classes 2788/1813'
        """
        rows = self.rows(form)
        test = f" + {self.test_rows}" if self.test_rows else ""
        return f"{sum(rows)}{test} × {_by(self.shape)}" + (
            f", classes {_slashed(rows)}" if self.classes else ""
        )


def value_digest(raw: Raw) -> str:
    """The digest of a table's numbers, columns then target, as little-endian float64 rounded to six decimals.

    The rounding absorbs how a workbook or a csv happens to spell the same number; the zero turns −0 into 0.

    Example:
        >>> table = Raw(np.array([[0.3]]), np.array([[1.0]]))
        >>> value_digest(table) == value_digest(table._replace(x=np.array([[0.1 + 0.2]])))
        True
    """
    values = np.round(np.hstack([raw.x, raw.y]).astype("<f8"), 6) + 0.0
    return (
        "sha256:" + hashlib.sha256(np.ascontiguousarray(values, dtype="<f8").tobytes()).hexdigest()
    )


Table = Callable[[Path], Float64]


def regression(read: Table, target: int = -1) -> Callable[[Sequence[Path]], Raw]:
    """A table whose column `target` is to be predicted; y is (N, 1)."""

    def form(paths: Sequence[Path]) -> Raw:
        table = read(paths[0])
        return Raw(np.delete(table, target, axis=1), table[:, [target]])

    return form


def classification(read: Table, first_label: int = 0) -> Callable[[Sequence[Path]], Raw]:
    """A table whose last column holds the class, counted from `first_label`; y is (N,)."""

    def form(paths: Sequence[Path]) -> Raw:
        table = read(paths[0])
        return Raw(table[:, :-1], table[:, -1].astype(np.int64) - first_label)

    return form


def idx_images(paths: Sequence[Path]) -> Raw:
    """Grey images and labels from idx files: images, labels and, where there are four, the test set's."""
    pairs = [
        (read_idx(images)[:, None], read_idx(labels).astype(np.int64))
        for images, labels in zip(paths[::2], paths[1::2], strict=True)
    ]
    return Raw(*pairs[0], test=pairs[1] if len(pairs) > 1 else None)


def spikes(x: Float64, *, threshold: float = 100.0) -> npt.NDArray[np.bool_]:
    """The rows with a value more than `threshold` median absolute deviations from the median of its column.

    Example:
        >>> spikes(np.array([[1.0], [2.0], [3.0], [715897.0]])).tolist()
        [False, False, False, True]
    """
    deviation = np.abs(x - np.median(x, axis=0))
    rows: npt.NDArray[np.bool_] = np.any(
        deviation > threshold * np.median(deviation, axis=0), axis=1
    )
    return rows


def without_spikes(read: Table) -> Table:
    """The rows of a table that hold no spike in any column but the last (the class)."""

    def table(path: Path) -> Float64:
        values = read(path)
        return values[~spikes(values[:, :-1])]

    return table


def _by(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


def _slashed(counts: Sequence[int]) -> str:
    return "/".join(map(str, counts))
