"""What a page says about the code that made its numbers, and whether that is the code of today."""

from __future__ import annotations

import re
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import NamedTuple

from headstart.errors import HeadstartError
from headstart.experiments.code import RUN_MODULE, code_hash, is_module

NO_CODE = (
    "This page predates the code hash: which version of the code made its numbers is not known."
)
CODE_HAS_CHANGED = "The code has changed since."
_STAMP = re.compile(r"Code ([0-9a-f]{12}) \(([\w.]+), headstart ")


def page_stamp(
    code: str, left_out: int = 0, entry: str = RUN_MODULE, version: str | None = None
) -> str:
    """What a page says at its top about the code that made its numbers.

    Args:
        code: The hash in the rows of the page; empty where they have none.
        left_out: How many rows of other code the page does not show.
        entry: The module that the hash begins with.
        version: That of the package that made the rows; None: the one that is installed.

    Returns:
        One to three sentences: the hash, whether the code has changed since, what was left out.

    Example:
        >>> page_stamp("0123456789ab", left_out=4).partition(". ")[2]
        'The code has changed since. 4 rows of other code were left out.'
    """
    named = f"Code {code} ({entry}, headstart {version or installed_version('headstart')})."
    sentences = [named if code else NO_CODE]
    if code and code != code_hash(entry):
        sentences.append(CODE_HAS_CHANGED)
    if left_out:
        rows = "1 row of other code was" if left_out == 1 else f"{left_out} rows of other code were"
        sentences.append(f"{rows} left out.")
    return " ".join(sentences)


class PageAge(NamedTuple):
    """Whether a page is `current`, made by today's code, `older`, or `unknown`: it names none."""

    path: Path
    state: str
    code: str = ""

    @property
    def sentence(self) -> str:
        """The state in words."""
        said = {
            "current": f"made by today's code, {self.code}",
            "older": f"made by code {self.code}, which has changed since",
            "unknown": "names no code that made it",
        }
        return f"{self.path}: {said[self.state]}"


def check_pages(folder: Path) -> list[PageAge]:
    """Compare the hash that each Markdown page of a folder names with the code of today.

    Args:
        folder: The folder of the pages.

    Returns:
        The age of every page, by name.

    Raises:
        HeadstartError: The folder holds no page.
    """
    pages = sorted(folder.glob("*.md"))
    if not pages:
        raise HeadstartError(f"There are no Markdown pages in {folder}.")
    return [_age(path) for path in pages]


def _age(path: Path) -> PageAge:
    stamp = _STAMP.search(path.read_text(encoding="utf-8").replace("\\", ""))
    if stamp is None:
        return PageAge(path, "unknown")
    code, entry = stamp.groups()
    known = is_module(entry) and code == code_hash(entry)
    return PageAge(path, "current" if known else "older", code)
