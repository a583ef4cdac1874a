"""Files of tensors: safetensors, written whole or not at all, and read with a sentence about what is wrong."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from headstart.errors import HeadstartError


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """A safetensors file by way of a temporary neighbour and an atomic rename."""
    if not path.parent.is_dir():
        raise HeadstartError(f"There is no folder {path.parent} to write {path.name} into; make it first.")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        save_file(tensors, temporary, metadata)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except (SafetensorError, OSError) as error:
        Path(temporary).unlink(missing_ok=True)
        raise HeadstartError(f"{path} could not be written: {error}. What was there before is as it was.") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Every tensor and the header of a safetensors file, or a sentence about what is wrong with it."""
    if not path.is_file():
        raise HeadstartError(f"There is no file {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise HeadstartError(
            f"{path} is not a whole safetensors file: {error}. It is damaged, cut short or something else."
        ) from error
