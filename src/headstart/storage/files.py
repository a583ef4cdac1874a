"""Files of tensors and files of JSON: written whole or not at all, sealed by a checksum, read with a sentence about what is wrong."""

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
MOST_JSON = 2**27
"""Bytes of a JSON file beyond which it is none of ours."""
_SEAL = "sha256"
_HEADERS = {"model": "headstart"}
"""Where a kind's description stands in the header, if not under its own name."""


@dataclass(frozen=True)
class TensorFile:
    """The header of a safetensors file of ours: what it describes, and how large its tensors are; `read` fetches them."""

    path: Path
    description: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    seal: str | None

    def read(self) -> dict[str, Tensor]:
        """Every tensor, if they are what was written."""
        with _readable(self.path), safe_open(self.path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in self.shapes}
        if self.seal is not None and self.seal != _digest(self.description, tensors):
            raise HeadstartError(
                f"{self.path} is damaged: its checksum is not that of its content."
            )
        return tensors


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], kind: str, description: Mapping[str, Any]
) -> None:
    """A safetensors file with a JSON description of that kind in its header."""
    described = _plain({**_origin(), **description})
    own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    sealed = json.dumps({**described, _SEAL: _digest(described, own)})
    metadata = {_HEADERS.get(kind, kind): sealed}  # one entry: their order is not kept
    with whole(path) as temporary:
        save_file(own, temporary, metadata)


def open_tensors(path: Path, kind: str) -> TensorFile:
    """The header of a file that `write_tensors` wrote, its tensors not yet read."""
    if not path.is_file():
        raise HeadstartError(f"There is no file {path}.")
    with _readable(path), safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    header = _HEADERS.get(kind, kind)
    if header not in metadata:
        raise HeadstartError(f"{path} is a safetensors file, but not a {kind} of headstart's.")
    description = _parse(path, metadata[header], kind)
    return TensorFile(path, description, shapes, _take_seal(path, description))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """A JSON object as a file, for people to read too."""
    described = _plain({**_origin(), **content})
    sealed = {**described, _SEAL: _digest(described, {})}
    text = json.dumps(sealed, ensure_ascii=False, allow_nan=False, indent=1)
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json(path: Path, kind: str) -> dict[str, Any]:
    """The object that `write_json` wrote."""
    with _readable(path, "JSON"):
        if path.stat().st_size > MOST_JSON:
            raise HeadstartError(
                f"{path} has {path.stat().st_size} bytes: too many for a {kind} of headstart's."
            )
        content = _parse(path, path.read_text(encoding="utf-8"), kind)
    seal = _take_seal(path, content)
    if seal is not None and seal != _digest(content, {}):
        raise HeadstartError(f"{path} is damaged: its checksum is not that of its content.")
    return content


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary neighbour to write, which takes the file's place in the end: a reader sees the old file or the new one."""
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
    form = description.setdefault("format", 1)  # not every file of the first one said so
    if form not in range(1, FORMAT + 1):
        raise HeadstartError(
            f"{path} is in format {form!r}; this headstart reads formats up to {FORMAT}. Use the version that wrote it "
            f"({description.get('headstart', 'unknown')}) or a later one."
        )
    return description


def _take_seal(path: Path, description: dict[str, Any]) -> str | None:
    """The checksum that a file says it has, out of its description; the first format had none."""
    seal = description.pop(_SEAL, None)
    if description["format"] > 1 and not isinstance(seal, str):
        raise HeadstartError(f"{path} is damaged: its checksum is missing.")
    return seal


def _digest(description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Of everything a file says."""
    seal = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        seal.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        seal.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return seal.hexdigest()


def _plain(description: Mapping[str, Any]) -> dict[str, Any]:
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
            f"{path} is not a whole {kind} file: {error}. It is damaged, cut short or something else."
        ) from error
