"""Files on disk: where data sets are sought, reading through compression, digests."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import pooch

from headstart.errors import HeadstartError

ENV_VAR = "HEADSTART_DATA"
_COMPRESSIONS = ("", ".gz", ".xz")
_READ_ERRORS = (
    # gzip's BadGzipFile and a missing file among them.
    OSError,
    EOFError,
    # numpy's, pandas' and unicode errors among them.
    ValueError,
    # Pillow's and the xml parser's.
    SyntaxError,
    # A member or sheet that is not there.
    KeyError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    tarfile.TarError,
)


def roots(data_dir: str | Path | None = None) -> Iterator[Path]:
    """The folders to look in, in order: `data_dir`, the one `HEADSTART_DATA` names, the user cache.

    The first two have to exist once they are reached: a misspelled folder should not pass for an
    empty one.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     next(roots(folder)) == Path(folder)
        True
    """
    if data_dir is not None:
        yield _existing(Path(data_dir), "the data folder given")
    if os.environ.get(ENV_VAR):
        yield _existing(Path(os.environ[ENV_VAR]), f"named by {ENV_VAR}")
    yield cache()


def destination(data_dir: str | Path | None = None) -> Path:
    """Where downloads go: the first of `roots`, whether it exists or not."""
    return Path(data_dir or os.environ.get(ENV_VAR) or cache())


def cache() -> Path:
    """The user cache of this operating system."""
    return Path(pooch.os_cache("headstart"))


def _existing(folder: Path, what: str) -> Path:
    if not folder.is_dir():
        raise HeadstartError(
            f"There is no folder {folder} ({what}): create it or name another one."
        )
    return folder


def variants(name: str) -> tuple[str, ...]:
    """The names under which a file may lie on disk: its own, then plain, gzipped, xz-compressed.

    Example:
        >>> variants("CASP.csv")
        ('CASP.csv', 'CASP.csv.gz', 'CASP.csv.xz')
        >>> variants("train-labels-idx1-ubyte.gz")
        ('train-labels-idx1-ubyte.gz', 'train-labels-idx1-ubyte', 'train-labels-idx1-ubyte.xz')
    """
    plain = name.removesuffix(".gz").removesuffix(".xz")
    return tuple(dict.fromkeys([name, *(plain + suffix for suffix in _COMPRESSIONS)]))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong while `path` is read into one `HeadstartError` that names it.

    Example:
        >>> with reading(Path("labels.gz")):
        ...     raise EOFError("stream ended")
        Traceback (most recent call last):
        headstart.errors.HeadstartError: Cannot read labels.gz (stream ended): delete it ...
    """
    try:
        yield
    except HeadstartError:
        raise
    except _READ_ERRORS as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason = " ".join(reason.strip("'\"").split()).rstrip(".") or type(error).__name__
        raise HeadstartError(
            f"Cannot read {path} ({reason}): delete it and fetch it again."
        ) from error


def open_plain(path: Path) -> BinaryIO:
    """The decompressed bytes of a plain, .gz or .xz file, as a stream."""
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path, "rb"))
    return path.open("rb")


def read_bytes(path: Path) -> bytes:
    """The decompressed bytes of a plain, .gz or .xz file."""
    with reading(path), open_plain(path) as stream:
        return stream.read()


def file_digest(path: Path, algorithm: str, *, stored: bool = False) -> str:
    """`algorithm:hex` of the decompressed bytes of `path`, or with `stored` of the file itself.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "empty"
        ...     path.touch()
        ...     file_digest(path, "md5")
        'md5:d41d8cd98f00b204e9800998ecf8427e'
    """
    hasher = hashlib.new(algorithm, usedforsecurity=False)
    with reading(path), path.open("rb") if stored else open_plain(path) as stream:
        while chunk := stream.read(1 << 20):
            hasher.update(chunk)
    return f"{algorithm}:{hasher.hexdigest()}"
