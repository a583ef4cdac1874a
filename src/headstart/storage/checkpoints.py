"""The state of a training run on disk: tensors and JSON in one file; the last few are kept."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from headstart.errors import HeadstartError
from headstart.storage.files import TensorFile, open_tensors, write_tensors

CHECKPOINT_KIND = "checkpoint"
_CHECKPOINT_NAME = re.compile(r"step-(\d{9})\.safetensors")
_TENSOR_PREFIX = "tensor:"


@dataclass(frozen=True)
class Keeper:
    """A folder of checkpoints, of which the latest are kept.

    Args:
        folder: Where they are; `save` makes it.
        keep: How many are kept.

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
        """Write the state after a step, then remove the oldest ones.

        Later ones go too: a run that has come back to this step could not read them.

        Args:
            step: The step's number.
            state: Nested mappings and lists of tensors, text and numbers.
            identity: What a run must have in common with this one to go on from here.

        Raises:
            HeadstartError: The folder cannot be written; what was there before is as it was.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # What a process that was killed had begun to write.
            for leftover in self.folder.glob(".step-*"):
                leftover.unlink(missing_ok=True)
        except OSError as error:
            raise HeadstartError(f"The folder {self.folder} cannot be written: {error}.") from error
        tensors: dict[str, Tensor] = {}
        skeleton = pack(state, tensors)
        header = {"identity": identity, "state": skeleton}
        written = self.folder / f"step-{step:09d}.safetensors"
        write_tensors(written, tensors, CHECKPOINT_KIND, header)
        found = self._found()
        here = found.index(written) + 1
        for path in (*found[: max(0, here - self.keep)], *found[here:]):
            path.unlink(missing_ok=True)

    def latest(self, identity: Mapping[str, Any]) -> dict[str, Any] | None:
        """The newest state that can be read.

        Args:
            identity: What it must have in common with the run that asks.

        Returns:
            The state; None where there is no checkpoint.

        Raises:
            HeadstartError: It is another run's, or every checkpoint is damaged.
        """
        damaged: HeadstartError | None = None
        for path in reversed(self._found()):
            try:
                file = _open_checkpoint(path)
                difference = _other_setting(file.description["identity"], identity)
                state = None if difference else unpack(file.description["state"], file.read())
            except HeadstartError as error:
                damaged = error
                continue
            if difference:
                raise HeadstartError(
                    f"{path.parent} holds the checkpoint of another run: {difference}. "
                    "Go on with the same settings and version of headstart, or use another folder."
                )
            return cast(dict[str, Any], state)
        if damaged is not None:
            raise damaged
        return None

    def any(self) -> bool:
        """Whether there is a checkpoint, here or in a folder below."""
        return bool(self._found()) or any(below.any() for below in self._below())

    def identity(self) -> dict[str, Any] | None:
        """What the newest readable checkpoint says of its run."""
        for path in reversed(self._found()):
            try:
                identity: dict[str, Any] = _open_checkpoint(path).description["identity"]
            except HeadstartError:
                continue
            return identity
        return None

    def clear(self) -> None:
        """Remove the checkpoints, also those below, and each folder if nothing else is in it."""
        for below in self._below():
            below.clear()
        for path in (*self._found(), *self.folder.glob(".step-*")):
            path.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _below(self) -> list[Keeper]:
        if not self.folder.is_dir():
            return []
        return [Keeper(path) for path in sorted(self.folder.iterdir()) if path.is_dir()]

    def _found(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return sorted(
            path for path in self.folder.iterdir() if _CHECKPOINT_NAME.fullmatch(path.name)
        )


def pack(value: Any, tensors: dict[str, Tensor]) -> Any:
    """What JSON can hold of nested states, the tensors put aside under numbers.

    Args:
        value: Nested mappings and lists of tensors, text and numbers.
        tensors: Receives the tensors.

    Returns:
        A skeleton of lists, dictionaries, text and numbers.

    Example:
        >>> import torch
        >>> aside = {}
        >>> pack({"a": [1, torch.zeros(2)], 3: None}, aside), list(aside)
        ({'dict': [['a', {'list': [1, 'tensor:0']}], [3, None]]}, ['0'])
    """
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().contiguous().clone()
        return f"{_TENSOR_PREFIX}{name}"
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
    """The inverse of `pack`.

    Args:
        skeleton: What `pack` returned.
        tensors: The tensors that it put aside.

    Raises:
        HeadstartError: `pack` cannot have made this.
    """
    try:
        return _unpacked(skeleton, dict(tensors))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise HeadstartError(
            f"The checkpoint is damaged: {type(error).__name__} {error}."
        ) from error


def _unpacked(skeleton: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(skeleton, str):
        # Each is named once: a file must not grow by naming one again and again.
        found = tensors.pop(skeleton.removeprefix(_TENSOR_PREFIX))
        # The copy is aligned: BLAS adds in an order that depends on that.
        return found.clone()
    if isinstance(skeleton, dict):
        ((kind, parts),) = skeleton.items()
        if kind == "text":
            return str(parts)
        if kind == "list":
            return [_unpacked(part, tensors) for part in parts]
        return {key: _unpacked(part, tensors) for key, part in parts}
    return skeleton


def _open_checkpoint(path: Path) -> TensorFile:
    file = open_tensors(path, CHECKPOINT_KIND)
    if not (isinstance(file.description.get("identity"), dict) and "state" in file.description):
        raise HeadstartError(
            f"{path} is damaged: what it says of itself is no checkpoint of headstart's."
        )
    return file


def _other_setting(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
    """The setting of a checkpoint's run that is not this one's, in words; empty: none."""
    mine = json.loads(json.dumps(mine))
    for name in sorted(mine.keys() | theirs.keys()):
        if mine.get(name) != theirs.get(name):
            return f"its {name} is {theirs.get(name)!r}, here it is {mine.get(name)!r}"
    return ""
