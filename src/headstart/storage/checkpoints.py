"""Where a training run stands, on disk: tensors and JSON in one file, written whole or not at all; the last few are kept."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from headstart.errors import HeadstartError
from headstart.storage.files import TensorFile, open_tensors, write_tensors

KIND = "checkpoint"
_NAME = re.compile(r"step-(\d{9})\.safetensors")
_TENSOR = "tensor:"


@dataclass(frozen=True)
class Keeper:
    """A folder of checkpoints: the last `keep` of them.

    Example:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     keeper = Keeper(Path(folder) / "run", keep=1)
        ...     for step in (1, 2):
        ...         keeper.save(step, {"mean": torch.ones(2), "lr": 0.1}, {"net": "mine"})
        ...     keeper.latest({"net": "mine"})["lr"], len(list((Path(folder) / "run").iterdir()))
        (0.1, 1)
    """

    folder: Path
    keep: int = 2

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise HeadstartError(f"At least one checkpoint must be kept, not {self.keep}.")

    def save(self, step: int, state: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
        """Write the state after a step, then let go of the oldest, and of later ones: they could not be read."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for leftover in self.folder.glob(".step-*"):  # a process was killed while it wrote
                leftover.unlink(missing_ok=True)
        except OSError as error:
            raise HeadstartError(f"The folder {self.folder} cannot be written: {error}.") from error
        tensors: dict[str, Tensor] = {}
        skeleton = pack(state, tensors)
        header = {"identity": identity, "state": skeleton}
        written = self.folder / f"step-{step:09d}.safetensors"
        write_tensors(written, tensors, KIND, header)
        found = self._found()
        here = found.index(written) + 1
        for path in (*found[: max(0, here - self.keep)], *found[here:]):
            path.unlink(missing_ok=True)

    def latest(self, identity: Mapping[str, Any]) -> dict[str, Any] | None:
        """The newest state that can be read, or None where there is none; another run's is refused by what differs."""
        found = self._found()
        damaged: HeadstartError | None = None
        for path in reversed(found):
            try:
                file = _open(path)
                _refuse_other(path, file.description["identity"], identity)
                state: dict[str, Any] = unpack(file.description["state"], file.read())
            except AnotherRun:
                raise
            except HeadstartError as error:
                damaged = error
                continue
            return state
        if damaged is not None:
            raise damaged
        return None

    def any(self) -> bool:
        """Whether there is a checkpoint."""
        return bool(self._found())

    def identity(self) -> dict[str, Any] | None:
        """What the newest readable checkpoint says of its run."""
        for path in reversed(self._found()):
            try:
                identity: dict[str, Any] = _open(path).description["identity"]
            except HeadstartError:
                continue
            return identity
        return None

    def clear(self) -> None:
        """Remove the checkpoints, and the folder if nothing else is in it."""
        for path in (*self._found(), *self.folder.glob(".step-*")):
            path.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _found(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if _NAME.fullmatch(path.name))


def pack(value: Any, tensors: dict[str, Tensor]) -> Any:
    """What JSON can hold of nested states, the tensors put aside under numbers.

    Example:
        >>> import torch
        >>> aside = {}
        >>> pack({"a": [1, torch.zeros(2)], 3: None}, aside), list(aside)
        ({'dict': [['a', {'list': [1, 'tensor:0']}], [3, None]]}, ['0'])
    """
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().contiguous().clone()
        return f"{_TENSOR}{name}"
    if isinstance(value, Mapping):
        return {"dict": [[key, pack(part, tensors)] for key, part in value.items()]}
    if isinstance(value, (list, tuple)):
        return {"list": [pack(part, tensors) for part in value]}
    if isinstance(value, str):
        return {"text": value}
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise TypeError(f"a state holds {type(value).__name__}, which no checkpoint can")


def unpack(skeleton: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `pack`; what it cannot have made is refused."""
    try:
        return _unpacked(skeleton, dict(tensors))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise HeadstartError(
            f"The checkpoint is damaged: {type(error).__name__} {error}."
        ) from error


def _unpacked(skeleton: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(
        skeleton, str
    ):  # each is named once: a file must not grow by naming one again and again
        found = tensors.pop(skeleton.removeprefix(_TENSOR))
        return found.clone()  # aligned: BLAS adds in an order that depends on that
    if isinstance(skeleton, dict):
        ((kind, parts),) = skeleton.items()
        if kind == "text":
            return str(parts)
        if kind == "list":
            return [_unpacked(part, tensors) for part in parts]
        return {key: _unpacked(part, tensors) for key, part in parts}
    return skeleton


class AnotherRun(HeadstartError):
    """The checkpoint is whole, and of a run with other settings."""


def _open(path: Path) -> TensorFile:
    file = open_tensors(path, KIND)
    if not (isinstance(file.description.get("identity"), dict) and "state" in file.description):
        raise HeadstartError(
            f"{path} is damaged: what it says of itself is no checkpoint of headstart's."
        )
    return file


def _refuse_other(path: Path, theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    mine = json.loads(json.dumps(mine))
    for name in sorted(mine.keys() | theirs.keys()):
        if mine.get(name) != theirs.get(name):
            raise AnotherRun(
                f"{path.parent} holds the checkpoint of another run: its {name} is {theirs.get(name)!r}, here it is {mine.get(name)!r}. "
                "Go on with the same settings, or use another folder."
            )
