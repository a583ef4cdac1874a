"""Downloads: to a temporary name, checked, then renamed; a failure leaves nothing behind."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pooch
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from headstart.data.datasets import Located, check_files, find, read, spec_of
from headstart.data.paths import destination, file_digest
from headstart.data.specs import File
from headstart.errors import HeadstartError

MAX_ROUNDS = 2
TIMEOUT_SECONDS = 30


def fetch(
    name: str,
    data_dir: str | Path | None = None,
    *,
    base_url: str | None = None,
    progress: bool = True,
) -> Path:
    """Download the public original of a data set; what is there and right is not fetched again.

    Args:
        name: One of `headstart.data.NAMES`.
        data_dir: The folder to write to, in a folder called `name`; without it the one that
            `HEADSTART_DATA` names, or else the user cache.
        base_url: Replaces the scheme and host of the public addresses.
        progress: Whether a progress bar is shown.

    Returns:
        The folder of the data set.

    Raises:
        HeadstartError: If no mirror, each asked twice, gives the right bytes.
    """
    spec = spec_of(name)
    original = spec.forms[0]
    if not original.files:
        raise HeadstartError(f"The data set {name!r} is built in: there is nothing to fetch.")
    root = destination(data_dir)
    found = find(spec, [root])
    whole = found is not None and spec.rows(found.form) == spec.rows(original)
    if not (found and whole and all(check.ok for check in check_files(spec, found))):
        for file in original.files:
            download(
                file,
                root / spec.place,
                lambda path: read(spec, Located(original, [path])),
                base_url,
                progress,
            )
    return root / spec.place


def download(
    file: File,
    folder: Path,
    read_original: Callable[[Path], object],
    base_url: str | None = None,
    progress: bool = False,
) -> Path:
    """Bring one file into `folder`, unless it is there and right.

    It is right if its digest is; without a published digest, if `read_original` reads it without
    an error.
    """
    path = folder / file.name
    if path.is_file() and not _file_fault(file, path, read_original):
        return path
    failures: dict[str, str] = {}
    with (
        _writing_to(folder),
        tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as temporary,
    ):
        partial = Path(temporary) / file.name
        for url in [_rehosted(url, base_url) for url in file.urls] * MAX_ROUNDS:
            failures[url] = _transfer(url, partial, progress) or _file_fault(
                file, partial, read_original
            )
            if not failures[url]:
                os.replace(partial, path)
                return path
    tried = "; ".join(f"{url} {failure}" for url, failure in failures.items())
    raise HeadstartError(
        f"Could not download {file.name}: {tried}. Check the connection and try again later, "
        f"or put the file into {folder} yourself."
    )


def _rehosted(url: str, base_url: str | None) -> str:
    return url if base_url is None else base_url.rstrip("/") + urlsplit(url).path


def _transfer(url: str, path: Path, progress: bool) -> str:
    """Download `url` to `path`; what went wrong on the way, in a few words, or nothing."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(
        *columns, TimeRemainingColumn(), console=Console(stderr=True), disable=not progress
    ) as bars:
        get = pooch.HTTPDownloader(
            progressbar=_TransferBar(bars, path.name),
            chunk_size=1 << 16,
            timeout=TIMEOUT_SECONDS,
            # Otherwise a server may unpack a .gz on the way.
            headers={"Accept-Encoding": "identity"},
        )
        try:
            get(url, str(path), None)
        except OSError as error:
            # All of requests' errors are of this type; the system's own have a number.
            if error.errno is not None:
                raise
            response = getattr(error, "response", None)
            if response is not None:
                return f"answered {response.status_code}"
            if "IncompleteRead" in str(error):
                return "broke off before the end"
            return f"gave no answer ({type(error).__name__})"
    return ""


def _file_fault(file: File, path: Path, read_original: Callable[[Path], object]) -> str:
    """What is wrong with a file on disk, in a few words, or nothing."""
    expected = file.stored or file.content
    if expected:
        actual = file_digest(path, expected.partition(":")[0], stored=True)
        return "" if actual == expected else f"sent other bytes ({actual} instead of {expected})"
    try:
        read_original(path)
    except HeadstartError as error:
        return f"sent something else ({error.__cause__ or error})"
    return ""


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise HeadstartError(
            f"Cannot write to {folder} ({error.strerror}): make room or choose another one."
        ) from error


class _TransferBar:
    """A line of rich's progress display with the face that pooch asks for."""

    total: int | None = None

    def __init__(self, bars: Progress, label: str) -> None:
        self._bars = bars
        self._task = bars.add_task(label, total=None)

    def update(self, advance: int) -> None:
        self._bars.update(self._task, total=self.total, advance=advance)

    def reset(self) -> None:
        self._bars.reset(self._task)

    def close(self) -> None:
        """The display closes itself."""
