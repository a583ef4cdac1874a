"""One reader per file format: paths in, numpy arrays out. None knows which data set it reads.

Whatever is wrong with a file is raised as a `ValueError` (or by a library) under `reading`, which
names the file.
"""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from headstart.data.paths import read_bytes, reading

Float64 = npt.NDArray[np.float64]
UInt8 = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]
AnyArray = npt.NDArray[Any]
TableReader = Callable[[Path], Float64]

_CIFAR_SHAPE = (3, 32, 32)


class Raw(NamedTuple):
    """A data set as numpy arrays; `test` is the official test set where there is one."""

    x: AnyArray
    y: AnyArray
    test: tuple[AnyArray, AnyArray] | None = None


def read_csv(path: Path, *, header: bool = False, delimiter: str | None = ",") -> Float64:
    """A table of numbers; `delimiter=None` splits at white space; every field must be a number.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "table.csv"
        ...     _ = path.write_text("a,b\\n1,2\\n3,4.5\\n")
        ...     read_csv(path, header=True).tolist()
        [[1.0, 2.0], [3.0, 4.5]]
    """
    with reading(path):
        return _parse_numbers(read_bytes(path).decode().splitlines()[header:], delimiter)


def read_arff(path: Path) -> Float64:
    """The data of an ARFF file whose attributes are all numeric, or nominal with numeric names."""
    with reading(path):
        text = read_bytes(path).decode()
        marker = re.search(r"^@data\s*$", text, flags=re.IGNORECASE | re.MULTILINE)
        if marker is None:
            raise ValueError("no @data line")
        attributes = re.findall(
            r"^@attribute\s", text[: marker.start()], flags=re.IGNORECASE | re.MULTILINE
        )
        lines = [line for line in text[marker.end() :].splitlines() if not line.startswith("%")]
        table = _parse_numbers(lines, ",")
        if table.shape[1] != len(attributes):
            raise ValueError(f"{len(attributes)} attributes but {table.shape[1]} columns")
        return table


def read_workbook(path: Path, *, sheet: str, member: str | None = None) -> Float64:
    """A sheet of an xlsx workbook under a row of names; `member` names the workbook in a zip."""
    # Here, for only workbooks need it.
    import pandas as pd

    with reading(path):
        content = read_bytes(path)
        if member is not None:
            with zipfile.ZipFile(BytesIO(content)) as archive:
                content = archive.read(member)
        table: Float64 = pd.read_excel(
            BytesIO(content), sheet_name=sheet, engine="openpyxl"
        ).to_numpy(np.float64)
        return table


def read_idx(path: Path) -> UInt8:
    """The byte array of an idx file.

    It holds two zeros, type 8, the number of axes, their big-endian lengths, and the bytes.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "labels-idx1-ubyte"
        ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3]) + bytes([5, 0, 9]))
        ...     read_idx(path).tolist()
        [5, 0, 9]
    """
    with reading(path):
        content = read_bytes(path)
        if content[:3] != b"\x00\x00\x08" or content[3:4] in (b"", b"\x00"):
            raise ValueError("not an idx file of bytes")
        axes = content[3]
        shape = np.frombuffer(content, dtype=">u4", count=axes, offset=4).tolist()
        return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)


def read_cifar(paths: Sequence[Path]) -> tuple[UInt8, Int64]:
    """Images (N, 3, 32, 32) and labels (N,) of CIFAR-10's binary batches, in the order of paths."""
    # Decompression runs outside the interpreter lock.
    with ThreadPoolExecutor() as pool:
        return _cifar_stack(list(pool.map(_cifar_records, paths, pool.map(read_bytes, paths))))


def read_cifar_tar(path: Path, names: Sequence[str]) -> tuple[UInt8, Int64]:
    """The same, for the batches called `names` within the (compressed) tar archive at `path`."""
    with reading(path):
        batches = {
            member.name: content for member, content in _tar_files(path) if member.name in names
        }
        if missing := [name for name in names if name not in batches]:
            raise ValueError(f"no {', '.join(missing)} in it")
    return _cifar_stack([_cifar_records(path, batches[name]) for name in names])


def read_png_tar(path: Path) -> tuple[UInt8, Int64]:
    """Gray images (N, 1, H, W) and labels of a tar archive of `…/<label>/<name>.png`, in order.

    Empty files are passed over: notMNIST_small has two.
    """
    with reading(path):
        images = {
            member: content
            for member, content in _tar_files(path)
            if member.suffix == ".png" and content
        }
        if not images:
            raise ValueError("no PNG images in it")
        order = sorted(images, key=lambda member: (member.parent.name, member.name))
        classes = sorted({member.parent.name for member in order})
        x = np.stack(
            [np.asarray(Image.open(BytesIO(images[member])).convert("L")) for member in order]
        )
        return x[:, None], np.array(
            [classes.index(member.parent.name) for member in order], dtype=np.int64
        )


def regression_table(read: TableReader, target: int = -1) -> Callable[[Sequence[Path]], Raw]:
    """The reader of a table whose column `target` is to be predicted; y is (N, 1)."""

    def form(paths: Sequence[Path]) -> Raw:
        table = read(paths[0])
        return Raw(np.delete(table, target, axis=1), table[:, [target]])

    return form


def class_table(read: TableReader, first_label: int = 0) -> Callable[[Sequence[Path]], Raw]:
    """The reader of a table whose last column is the class, from `first_label` on; y is (N,)."""

    def form(paths: Sequence[Path]) -> Raw:
        table = read(paths[0])
        return Raw(table[:, :-1], table[:, -1].astype(np.int64) - first_label)

    return form


def idx_images(paths: Sequence[Path]) -> Raw:
    """Gray images and labels from idx files; of four files, the last two are the test set."""
    pairs = [
        (read_idx(images)[:, None], read_idx(labels).astype(np.int64))
        for images, labels in zip(paths[::2], paths[1::2], strict=True)
    ]
    return Raw(*pairs[0], test=pairs[1] if len(pairs) > 1 else None)


def has_spike(x: Float64, *, threshold: float = 100.0) -> npt.NDArray[np.bool_]:
    """Which rows have a value over `threshold` median absolute deviations from its column's median.

    Example:
        >>> has_spike(np.array([[1.0], [2.0], [3.0], [715897.0]])).tolist()
        [False, False, False, True]
    """
    deviation = np.abs(x - np.median(x, axis=0))
    rows: npt.NDArray[np.bool_] = np.any(
        deviation > threshold * np.median(deviation, axis=0), axis=1
    )
    return rows


def without_spikes(read: TableReader) -> TableReader:
    """The rows of a table that hold no spike in any column but the last (the class)."""

    def table(path: Path) -> Float64:
        values = read(path)
        return values[~has_spike(values[:, :-1])]

    return table


def _parse_numbers(lines: list[str], delimiter: str | None) -> Float64:
    if not any(line.strip() for line in lines):
        raise ValueError("no rows in it")
    return np.loadtxt(lines, dtype=np.float64, delimiter=delimiter, comments=None, ndmin=2)


def _cifar_records(path: Path, batch: bytes) -> UInt8:
    with reading(path):
        return np.frombuffer(batch, dtype=np.uint8).reshape(-1, 1 + int(np.prod(_CIFAR_SHAPE)))


def _cifar_stack(batches: list[UInt8]) -> tuple[UInt8, Int64]:
    """Records are a label, then planar RGB."""
    x = np.concatenate([batch[:, 1:] for batch in batches]).reshape(-1, *_CIFAR_SHAPE)
    return x, np.concatenate([batch[:, 0] for batch in batches]).astype(np.int64)


def _tar_files(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    with tarfile.open(path, "r:*") as archive:
        for member in archive:
            if (stream := archive.extractfile(member)) is not None:
                yield PurePosixPath(member.name), stream.read()
