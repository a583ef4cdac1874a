"""Data sets as tensors: load, verify, catalogue."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from headstart.data.paths import file_digest, reading, roots, variants
from headstart.data.readers import AnyArray, Raw
from headstart.data.registry import NAMES, SPECS
from headstart.data.specs import File, Form, Spec, TaskKind
from headstart.errors import HeadstartError, unknown


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set as tensors.

    Args:
        name: The name under which it was loaded.
        title: What precisely this is, a subset for instance.
        task: `regression` or `classification`.
        x: Tables as float32 (N, D), images as uint8 (N, C, H, W).
        y: Targets as float32 (N, 1), or labels as int64 (N,).
        test: The inputs and targets of the official test set, where there is one.
        feature_names: The names of the columns; none for images.
        target_name: The name of what is predicted.
        class_names: The names of the classes; none for regression.
    """

    name: str
    title: str
    task: TaskKind
    x: Tensor
    y: Tensor
    test: tuple[Tensor, Tensor] | None
    feature_names: tuple[str, ...]
    target_name: str
    class_names: tuple[str, ...]

    @property
    def num_classes(self) -> int | None:
        """The number of classes; None for regression."""
        return len(self.class_names) or None


class Located(NamedTuple):
    """A form of a data set and its files on disk (none where it is built in)."""

    form: Form
    paths: list[Path]

    @property
    def where(self) -> str:
        return str(self.paths[0].parent) if self.paths else "built in"


class FileCheck(NamedTuple):
    """One line of `verify`: what was checked, whether it is right, and what was found."""

    file: str
    ok: bool
    detail: str


class CatalogueRow(NamedTuple):
    """A line of `catalogue`; `n` is without the official test set, `d` the numbers per example."""

    name: str
    title: str
    task: TaskKind
    n: int
    d: int
    classes: int | None
    license: str
    citation: str
    where: str

    @property
    def licence(self) -> str:
        """The license by its old name, for one release."""
        warnings.warn("licence is now license.", DeprecationWarning, stacklevel=2)
        return self.license


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Read a data set.

    The files lie in a folder called `name`, in their public form or a repackaged one, plain, .gz or
    .xz alike. `toy`, `digits` and `diabetes` need no files. From `eeg`, the four rows (898, 10386,
    11509 and 13179 of the original) with spikes up to 7e5 are dropped; `eeg-spikes` is the same
    file with them. `notmnist` is all of
    notMNIST_small or a balanced subset of 10000 images, whichever is there, the former first:
    `title` tells.

    Args:
        name: One of `headstart.data.NAMES`.
        data_dir: Where to look first; then the folder that `HEADSTART_DATA` names, then the user
            cache.

    Returns:
        Its tensors and names.

    Raises:
        HeadstartError: If it is not there, or its files are not what they should be.

    Example:
        >>> data = load("diabetes")
        >>> data.task, tuple(data.x.shape), tuple(data.y.shape), data.feature_names[:3]
        ('regression', (442, 10), (442, 1), ('age', 'sex', 'bmi'))
    """
    spec = spec_of(name)
    found = _locate(spec, data_dir)
    raw = read(spec, found)
    return Dataset(
        name=name,
        title=found.form.title or spec.title,
        task=spec.task,
        x=_as_tensor(raw.x),
        y=_as_tensor(raw.y),
        test=(_as_tensor(raw.test[0]), _as_tensor(raw.test[1])) if raw.test else None,
        feature_names=spec.features,
        target_name=spec.target,
        class_names=spec.classes,
    )


def verify(name: str, data_dir: str | Path | None = None) -> list[FileCheck]:
    """Check the files that `load` would read: digests of decompressed bytes, then the contents.

    Args:
        name: One of `headstart.data.NAMES`.
        data_dir: Where to look first, as in `load`.

    Returns:
        A line for each file, and one for shape and class counts.

    Example:
        >>> (check,) = verify("digits")
        >>> check.ok, check.detail
        (True, '1797 × 64, classes 178/182/177/183/181/182/181/179/174/180')
    """
    spec = spec_of(name)
    return check_files(spec, _locate(spec, data_dir))


def catalogue(data_dir: str | Path | None = None) -> list[CatalogueRow]:
    """Every data set, with where it was found or how to get it.

    Args:
        data_dir: Where to look first, as in `load`.

    Example:
        >>> row = catalogue()[0]
        >>> row.name, row.n, row.d, row.where
        ('toy', 512, 1, 'built in')
    """
    return [_catalogue_row(spec, find(spec, roots(data_dir))) for spec in SPECS.values()]


def spec_of(name: str) -> Spec:
    """The description of the data set `name`."""
    if name not in SPECS:
        raise unknown("data set", name, NAMES)
    return SPECS[name]


def find(spec: Spec, folders: Iterable[Path]) -> Located | None:
    """The first complete form of `spec` in the first of `folders` that holds one."""
    if not spec.forms[0].files:
        return Located(spec.forms[0], [])
    for folder in folders:
        for form in spec.forms:
            paths = [path for file in form.files if (path := _on_disk(folder / spec.place, file))]
            if len(paths) == len(form.files):
                return Located(form, paths)
    return None


def read(spec: Spec, found: Located) -> Raw:
    """The arrays of `found`, or one sentence about what is wrong with them."""
    raw = found.form.read(found.paths)
    if fault := spec.fault(found.form, raw):
        with reading(found.paths[0]):
            raise ValueError(fault)
    return raw


def check_files(spec: Spec, found: Located) -> list[FileCheck]:
    """Digests of the files of `found`, then shape and class counts of what is in them."""
    files = [
        _check_file(file, path) for file, path in zip(found.form.files, found.paths, strict=True)
    ]
    try:
        read(spec, found)
    except HeadstartError as error:
        return [*files, FileCheck(spec.name, False, str(error))]
    return [*files, FileCheck(spec.name, True, spec.summary(found.form))]


def _check_file(file: File, path: Path) -> FileCheck:
    stored = not file.content and path.name == file.name
    expected = file.stored if stored else file.content
    if not expected:
        return FileCheck(str(path), True, "no published digest: checked by its contents")
    try:
        actual = file_digest(path, expected.partition(":")[0], stored=stored)
    except HeadstartError as error:
        return FileCheck(str(path), False, str(error))
    return FileCheck(
        str(path),
        actual == expected,
        actual if actual == expected else f"{actual} instead of {expected}",
    )


def _locate(spec: Spec, data_dir: str | Path | None) -> Located:
    found = find(spec, roots(data_dir))
    if found is None:
        places = ", ".join(str(folder / spec.place) for folder in roots(data_dir))
        wanted = " or ".join(" + ".join(file.name for file in form.files) for form in spec.forms)
        raise HeadstartError(
            f"The data set {spec.name!r} is not in {places}: "
            f"run `headstart data fetch {spec.name}`, or put there {wanted} (plain, .gz or .xz)."
        )
    return found


def _on_disk(folder: Path, file: File) -> Path | None:
    return next((folder / name for name in variants(file.name) if (folder / name).is_file()), None)


def _catalogue_row(spec: Spec, found: Located | None) -> CatalogueRow:
    form = found.form if found else spec.forms[0]
    return CatalogueRow(
        name=spec.name,
        title=form.title or spec.title,
        task=spec.task,
        n=sum(spec.rows(form)),
        d=math.prod(spec.shape),
        classes=len(spec.classes) or None,
        license=spec.license,
        citation=spec.citation,
        where=found.where if found else f"not here: headstart data fetch {spec.name}",
    )


def _as_tensor(array: AnyArray) -> Tensor:
    """float64 becomes float32; bytes and labels stay. A read-only view of a file is copied."""
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))
