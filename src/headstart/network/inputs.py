"""Batches as users have them, read as the inputs of a net and their labels."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.nested import Nested, TensorTree, map_each, parts_of
from headstart.network.net_errors import unfitting_inputs

LABEL_KEYS = ("labels", "label", "y", "targets", "target")
"""What the labels of a batch that is a dictionary may be called; the first that is there counts."""
WEIGHT_KEY = "sample_weight"
"""What the weights of its rows are called, which `hs.Weighted` reads."""


def to_tensor(values: Any, what: str = "x") -> Tensor:
    """A tensor of whatever holds numbers: a tensor, an array, a data frame, a list.

    Example:
        >>> to_tensor([[1.0, 2.0]]).shape
        torch.Size([1, 2])
    """
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise HeadstartError(
            f"{what} must hold numbers; it holds {array.dtype} values. Encode text and dates first."
        )
    return torch.as_tensor(array if array.flags.writeable else array.copy())


def is_array(part: Any) -> bool:
    """Whether this is a tensor, an array or a data frame with rows.

    Args:
        part: anything.
    """
    return hasattr(part, "__array__") and getattr(part, "ndim", 0) > 0


def is_collection(values: Any) -> bool:
    """Whether these are several arrays: a dictionary or a tuple of them, or a list of tensors.

    A list of anything else is an array that was written out.

    Args:
        values: anything.
    """
    if isinstance(values, Mapping):
        return len(values) > 0
    kind: Any = Tensor if isinstance(values, list) else object
    return (
        isinstance(values, (tuple, list))
        and len(values) > 0
        and all(isinstance(part, kind) and is_array(part) for part in values)
    )


def is_pair(data: Any) -> bool:
    """Whether these are two things with rows, inputs and labels; so are two batches, maybe.

    Args:
        data: anything.
    """
    if not (isinstance(data, (tuple, list)) and len(data) == 2):
        return False
    # Beside an array a list is labels that were written out.
    return (is_array(data[0]) and isinstance(data[1], list)) or all(
        is_array(part) or is_collection(part) for part in data
    )


def as_tensors(values: Any, what: str = "x") -> TensorTree:
    """A tensor, or several with the same rows where a dictionary, tuple or list holds them.

    Args:
        values: an array, or a collection of arrays.
        what: what to call it in an error.

    Raises:
        HeadstartError: they hold no numbers, or not the same number of rows.

    Example:
        >>> len(as_tensors({"ids": [[1, 2], [3, 4]], "mask": [[1, 1], [1, 0]]}))
        2
    """
    if isinstance(values, (Tensor, Nested)):
        return values
    if not is_collection(values):
        return to_tensor(values, what)
    if isinstance(values, Mapping):
        named = {str(key): to_tensor(part, f"{what}[{key!r}]") for key, part in values.items()}
        found = Nested(named=named)
    else:
        found = Nested(tuple(to_tensor(part, what) for part in values))
    counts = [len(part) if part.ndim else 0 for part in found.tensors]
    if len(set(counts)) > 1:
        each = ", ".join(f"{name} {rows}" for name, rows in zip(found.keys, counts, strict=True))
        raise HeadstartError(
            f"The tensors of {what} must have the same rows on axis 0, and have different numbers "
            f"of them: {each}."
        )
    return found


def fitted(x: TensorTree, model: nn.Module) -> TensorTree:
    """Inputs in the way in which the net's `forward` takes them.

    A dictionary becomes arguments by name and a tuple arguments by position, where `forward` takes
    these; else the collection is one argument, and a single tensor an argument without a name.

    Args:
        x: the inputs.
        model: the net.

    Raises:
        HeadstartError: `forward` takes none of these.
    """
    if isinstance(x, Tensor):
        return x
    signature = inspect.signature(model.forward)
    if _binds(signature, *x.args, **x.named):
        return x
    if len(x.tensors) == 1:
        return x.tensors[0]
    if _binds(signature, x):
        return replace(x, spread=False)
    raise HeadstartError(unfitting_inputs(model, len(x.args), list(x.named)))


def _takes_tensor(forward: Callable[..., Any]) -> bool:
    """Whether a tensor alone may be given to a method; every prediction asks."""
    # Only of methods of a class is it remembered: others, of one net, would keep that alive.
    function = getattr(forward, "__func__", None)
    return _binds(inspect.signature(forward), 0) if function is None else _takes_two(function)


@lru_cache(maxsize=128)
def _takes_two(function: Callable[..., Any]) -> bool:
    return _binds(inspect.signature(function), 0, 1)


def _binds(signature: inspect.Signature, *args: Any, **named: Any) -> bool:
    try:
        signature.bind(*args, **named)
    except TypeError:
        return False
    return True


def read_batch(batch: Any, place: str = "The batch") -> tuple[TensorTree, TensorTree]:
    """Inputs and labels of a batch.

    Args:
        batch: a pair `(x, y)`, or a dictionary of which one key is the labels' (`LABEL_KEYS`).
        place: what to call it in an error.

    Raises:
        HeadstartError: it is neither.

    Example:
        >>> x, y = read_batch({"input_ids": [[1, 2], [3, 4]], "labels": [0, 1]})
        >>> x.keys, y
        (['input_ids'], tensor([0, 1]))
    """
    if isinstance(batch, Mapping):
        batch = _split_mapping(batch, place)
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        many = f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
        raise HeadstartError(
            f"{place} is not a pair (x, y) but a {type(batch).__name__}{many}; name what makes one "
            "of it, hs.Collated(batches, collate)."
        )
    x, y = as_tensors(batch[0]), as_tensors(batch[1], "y")
    if any(part.ndim == 0 for part in [*parts_of(x), *parts_of(y)]):
        raise HeadstartError(f"{place} holds single numbers, not rows; pass arrays or tensors.")
    return x, y


def read_inputs(batch: Any, place: str = "The batch") -> TensorTree:
    """The inputs of a batch, whose labels are left aside where it has any.

    Args:
        batch: inputs, a list of nothing else, or what `read_batch` takes.
        place: what to call it in an error.
    """
    if isinstance(batch, Mapping):
        names = {*LABEL_KEYS, WEIGHT_KEY}
        return as_tensors({key: part for key, part in batch.items() if key not in names})
    if isinstance(batch, (tuple, list)):
        return as_tensors(batch[0]) if len(batch) == 1 else read_batch(batch, place)[0]
    return as_tensors(batch)


def has_labels(batch: Any) -> bool:
    """Whether this is a dictionary with labels.

    Args:
        batch: anything.
    """
    return isinstance(batch, Mapping) and any(key in batch for key in LABEL_KEYS)


def _split_mapping(batch: Mapping[str, Any], place: str) -> tuple[Any, Any]:
    label = next((key for key in LABEL_KEYS if key in batch), None)
    if label is None:
        raise HeadstartError(
            f"{place} is a dictionary without labels: none of its keys ({', '.join(batch)}) is "
            f"{', '.join(LABEL_KEYS[:-1])} or {LABEL_KEYS[-1]}."
        )
    x = {key: part for key, part in batch.items() if key not in (label, WEIGHT_KEY)}
    y = batch[label]
    if WEIGHT_KEY in batch:
        y = {"labels": y, WEIGHT_KEY: batch[WEIGHT_KEY]}
    return x, y


class Placement:
    """Where a net wants its batches, and in which dtype: found once, for many batches.

    Args:
        model: the net.
        move_labels: whether labels leave the device that they are on.

    Example:
        >>> placement = Placement(nn.Linear(3, 2).double())
        >>> placement.inputs(torch.ones(1, 3)).dtype, placement.labels(torch.tensor([1])).dtype
        (torch.float64, torch.int64)
    """

    def __init__(self, model: nn.Module, move_labels: bool = True) -> None:
        self.model, self.move_labels = model, move_labels
        self.like = next((p for p in model.parameters() if p.is_floating_point()), None)
        self.embeds = any(
            isinstance(each, (nn.Embedding, nn.EmbeddingBag)) for each in model.modules()
        )
        self.takes_tensor = _takes_tensor(model.forward)

    def inputs(self, x: TensorTree) -> Any:
        """Inputs as `place_inputs` returns them.

        Args:
            x: the inputs.

        Raises:
            HeadstartError: `forward` does not take them.
        """
        given, like = x, self.like
        x = fitted(x, self.model)
        if isinstance(x, Tensor) and not self.takes_tensor:
            if not isinstance(given, Tensor):
                said = unfitting_inputs(self.model, len(given.args), list(given.named))
                raise HeadstartError(said)
            raise HeadstartError(
                f"{type(self.model).__name__}.forward takes "
                f"{inspect.signature(self.model.forward)}, and x is a single tensor: pass a "
                "tuple or dictionary of tensors."
            )
        if like is None:
            return x
        if not isinstance(x, Tensor):
            return x.map(lambda part: _to(part, like))
        if self.embeds:
            return _to(x, like)
        return x.to(like.device, like.dtype, non_blocking=like.device.type != "cpu")

    def labels(self, y: TensorTree) -> Any:
        """Labels on the model's device; real numbers in its dtype, classes and counts as they are.

        Args:
            y: the labels.
        """
        like, move = self.like, self.move_labels
        return y if like is None else map_each(lambda part: _to(part, like, move), y)


def placing(
    model: nn.Module | None, move_labels: bool
) -> Callable[[TensorTree, TensorTree], tuple[Any, Any]]:
    """What brings batches of inputs and labels to a net, which is asked once for all of them.

    Args:
        model: the net; None leaves batches as they are.
        move_labels: whether labels leave the device that they are on.
    """
    if model is None:
        return lambda x, y: (x, y)
    to = Placement(model, move_labels)
    return lambda x, y: (to.inputs(x), to.labels(y))


def place_inputs(x: TensorTree, model: nn.Module) -> Any:
    """Inputs on the model's device, real numbers in its dtype, as its `forward` takes them.

    A single tensor of whole numbers becomes one of real numbers, unless an embedding wants it as it
    is; among several tensors whole numbers and truth values stay what they are.

    Args:
        x: the inputs.
        model: the net.

    Raises:
        HeadstartError: `forward` does not take them.
    """
    return Placement(model).inputs(x)


def _to(part: Tensor, like: Tensor, move: bool = True) -> Tensor:
    """On the device; in the dtype too where it holds real numbers.

    A copy from pinned memory to a device need not be waited for; one to the host must be.
    """
    kind = like.dtype if part.is_floating_point() else None
    device = like.device if move else part.device
    return part.to(device, kind, non_blocking=device.type != "cpu")


def check_finite(values: TensorTree, what: str) -> None:
    """Refuse NaN and inf, naming the first place.

    Example:
        >>> check_finite(torch.tensor([[0.0, float("nan")]]), "x")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        headstart.errors.HeadstartError: x holds nan at index [0, 1]; remove or impute ...
    """
    if not isinstance(values, Tensor):
        for name, part in zip(values.keys, values.tensors, strict=True):
            check_finite(part, f"{what}[{name!r}]")
        return
    # One pass over the values; only where their sum is not finite they are searched.
    if values.is_floating_point() and not torch.isfinite(values.sum()):
        bad = (~torch.isfinite(values)).nonzero()
        if len(bad):
            place = bad[0].tolist()
            raise HeadstartError(
                f"{what} holds {values[tuple(place)].item()} at index {place}; "
                "remove or impute such values first."
            )
