"""Files of tensors and files of JSON: written atomically, and sealed by a checksum.

What is wrong with a file is said in a sentence.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from headstart.errors import HeadstartError

FORMAT = 2
"""What is written. 2 added the checksum; 1 is read without one; a later one is refused by name."""
MAX_JSON_BYTES = 2**27
"""Bytes of a JSON file beyond which it is none of ours."""
_CHECKSUM_KEY = "sha256"
_HEADERS = {"model": "headstart"}
"""Where a kind's description stands in the header, if not under its own name."""


@dataclass(frozen=True)
class TensorFile:
    """The header of a safetensors file of ours; `read` fetches its tensors.

    Args:
        path: The file.
        description: What it says of itself.
        shapes: The shapes of its tensors by name.
        checksum: That of its content; the first format had none.
    """

    path: Path
    description: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    checksum: str | None

    def read(self) -> dict[str, Tensor]:
        """Every tensor by name.

        Raises:
            HeadstartError: They are not what was written.
        """
        with _readable(self.path), safe_open(self.path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in self.shapes}
        if self.checksum is not None and self.checksum != _checksum(self.description, tensors):
            raise HeadstartError(
                f"{self.path} is damaged: its checksum is not that of its content."
            )
        return tensors


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], kind: str, description: Mapping[str, Any]
) -> None:
    """Write a safetensors file with a JSON description in its header.

    Args:
        path: The file.
        tensors: Its tensors by name.
        kind: What the file is: a model, a checkpoint.
        description: What the header says, beside the format and the version.

    Raises:
        HeadstartError: It cannot be written; what was there before is as it was.
    """
    described = _as_json({**_origin(), **description})
    own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    sealed = json.dumps({**described, _CHECKSUM_KEY: _checksum(described, own)})
    # One entry: the order of several is not kept.
    metadata = {_HEADERS.get(kind, kind): sealed}
    with atomic_write(path) as temporary:
        save_file(own, temporary, metadata)


def open_tensors(path: Path, kind: str) -> TensorFile:
    """Read the header of a file that `write_tensors` wrote, and not yet its tensors.

    Args:
        path: The file.
        kind: What it should be.

    Raises:
        HeadstartError: There is no such file, it is something else, or it is damaged.
    """
    if not path.is_file():
        raise HeadstartError(f"There is no file {path}.")
    with _readable(path), safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        names = list(file.keys())
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
    header = _HEADERS.get(kind, kind)
    if header not in metadata:
        raise HeadstartError(f"{path} is a safetensors file, but not a {kind} of headstart's.")
    description = _parse(path, metadata[header], kind)
    return TensorFile(path, description, shapes, _take_checksum(path, description))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object, for people to read too.

    Args:
        path: The file.
        content: The object.

    Raises:
        HeadstartError: It cannot be written; what was there before is as it was.
    """
    described = _as_json({**_origin(), **content})
    sealed = {**described, _CHECKSUM_KEY: _checksum(described, {})}
    text = json.dumps(sealed, ensure_ascii=False, allow_nan=False, indent=1)
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json(path: Path, kind: str) -> dict[str, Any]:
    """Read the object that `write_json` wrote.

    Args:
        path: The file.
        kind: What it should be, for error messages.

    Raises:
        HeadstartError: It cannot be read, or is not what was written.
    """
    with _readable(path, "JSON"):
        if path.stat().st_size > MAX_JSON_BYTES:
            raise HeadstartError(
                f"{path} has {path.stat().st_size} bytes: too many for a {kind} of headstart's."
            )
        content = _parse(path, path.read_text(encoding="utf-8"), kind)
    checksum = _take_checksum(path, content)
    if checksum is not None and checksum != _checksum(content, {}):
        raise HeadstartError(f"{path} is damaged: its checksum is not that of its content.")
    return content


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Write a file atomically: a reader sees the old one or the new one, never half of it.

    Args:
        path: The file.

    Yields:
        A temporary file in the same folder, which takes the file's place in the end.

    Raises:
        HeadstartError: It cannot be written; what was there before is as it was.
    """
    if path.is_dir():
        raise HeadstartError(f"{path} is a folder; name a file to write to.")
    if not path.parent.is_dir():
        raise HeadstartError(
            f"There is no folder {path.parent} to write {path.name} into; make it first."
        )
    temporary = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        temporary = Path(name)
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    except (SafetensorError, OSError) as error:
        raise HeadstartError(
            f"{path} could not be written: {error}. What was there before is as it was."
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _origin() -> dict[str, Any]:
    return {"format": FORMAT, "headstart": version("headstart")}


def _parse(path: Path, text: str, kind: str) -> dict[str, Any]:
    """The description, of a format that can be read."""
    try:
        description = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HeadstartError(f"{path} is damaged: {error}.") from error
    if not isinstance(description, dict):
        raise HeadstartError(
            f"{path} is damaged: what it says of itself is no {kind} of headstart's."
        )
    # Not every file of the first format said so.
    form = description.setdefault("format", 1)
    if form not in range(1, FORMAT + 1):
        raise HeadstartError(
            f"{path} is in format {form!r}; this headstart reads formats up to {FORMAT}. "
            f"Use the version that wrote it ({description.get('headstart', 'unknown')}) "
            "or a later one."
        )
    return description


def _take_checksum(path: Path, description: dict[str, Any]) -> str | None:
    """The checksum that a file says it has, out of its description; the first format had none."""
    checksum = description.pop(_CHECKSUM_KEY, None)
    if description["format"] > 1 and not isinstance(checksum, str):
        raise HeadstartError(f"{path} is damaged: its checksum is missing.")
    return checksum


def _checksum(description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """The checksum of everything a file says."""
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _as_json(description: Mapping[str, Any]) -> dict[str, Any]:
    """As it will come back: tuples as lists, keys as text."""
    plain: dict[str, Any] = json.loads(json.dumps(description))
    return plain


@contextmanager
def _readable(path: Path, kind: str = "safetensors") -> Iterator[None]:
    """Errors of reading as a sentence."""
    try:
        yield
    except HeadstartError:
        raise
    except (SafetensorError, OSError, ValueError) as error:
        raise HeadstartError(
            f"{path} is not a whole {kind} file: {error}. "
            "It is damaged, cut short or something else."
        ) from error
