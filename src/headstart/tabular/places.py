"""Places to write to: one that cannot be made is refused before any work, in a sentence."""

from __future__ import annotations

import os
from pathlib import Path

from headstart.errors import HeadstartError


def refuse_place(folder: Path, what: Path) -> None:
    """Refuse what cannot be written, because its folder neither takes it nor can be made.

    Args:
        folder: The folder to write into; those above it need not exist either.
        what: What is to be written there, for the sentence.

    Raises:
        HeadstartError: A file is in the way, or permission is missing.
    """
    real = Path(os.path.realpath(folder))
    # What may not be looked at does not exist here: then the folder that hides it is judged.
    above = next(each for each in (real, *real.parents) if os.path.lexists(each))
    if not above.is_dir():
        raise HeadstartError(
            f"{what} cannot be written: {above} is a file, not a folder. Name another place."
        )
    if not os.access(above, os.W_OK | os.X_OK):
        raise HeadstartError(
            f"{what} cannot be written: you may not write into the folder {above}. "
            "Name another place, or change the permissions of that folder."
        )


def refuse_new_folder(folder: Path) -> None:
    """Refuse a folder that cannot be made, or moved to its place, in the one above it.

    Args:
        folder: The folder; one that is a link is where that leads.

    Raises:
        HeadstartError: A file is in the way, or permission is missing.
    """
    refuse_place(Path(os.path.realpath(folder)).parent, folder)


def refuse_file(path: Path) -> None:
    """Refuse a file that cannot be written.

    Args:
        path: The file; its folder must exist.

    Raises:
        HeadstartError: It is a folder, its folder does not exist, or permission is missing.
    """
    if os.path.isdir(path):
        raise HeadstartError(f"{path} is a folder; name a file to write to.")
    refuse_place(path.parent, path)
    if not os.path.isdir(path.parent):
        raise HeadstartError(
            f"There is no folder {path.parent} to write {path.name} into; make it first."
        )


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, if they do not exist.

    Args:
        folder: The folder.

    Raises:
        HeadstartError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeadstartError(
            f"The folder {folder} cannot be made: {error.strerror}. Name another place."
        ) from error
