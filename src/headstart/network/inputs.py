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
from headstart.nested import Nested, TensorTree, parts_of
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
            f"{what} must hold numbers; it holds {_not_numbers(values, array)}. Encode text and "
            "dates first, or use headstart.estimators, which read them in a data frame."
        )
    return torch.as_tensor(array if array.flags.writeable else array.copy())


def _not_numbers(values: Any, array: np.ndarray) -> str:
    """What an array or a data frame holds in place of numbers, for an error."""
    kinds = dict(values.dtypes) if hasattr(values, "columns") else {}
    other = [name for name, kind in kinds.items() if getattr(kind, "kind", "O") not in "fiub"]
    if not other:
        return f"{array.dtype} values"
    more = f" and {len(other) - 3} more" if len(other) > 3 else ""
    return f"other values in {', '.join(map(repr, other[:3]))}{more}"


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
        places = zip(found.keys, counts, strict=True)
        each = ", ".join(f"{rows} in {what}[{name}]" for name, rows in places)
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


def takes_tensor(forward: Callable[..., Any]) -> bool:
    """Whether a tensor alone may be given to a method; every prediction asks.

    Args:
        forward: the method.
    """
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
            "of it, hs.Collated(batches, collate), or pass ((a, b), y) if there are several "
            "inputs, and arrays or tensors in place of lists."
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
