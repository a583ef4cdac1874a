"""Several tensors with the same rows: inputs of a net that takes more than one, and its heads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.network.net_errors import cannot_take, why_refused


@dataclass(frozen=True, eq=False)
class Nested:
    """TensorTree that have the same rows on axis 0, by position and by name.

    Args:
        args: those without a name.
        named: those with one.
        spread: whether a net takes each as an argument of its own; else it takes the collection.

    Example:
        >>> both = Nested((torch.zeros(4, 2),), {"mask": torch.ones(4, 3)})
        >>> len(both), [each.shape[1] for each in both[:2].tensors]
        (4, [2, 3])
    """

    args: tuple[Tensor, ...] = ()
    named: Mapping[str, Tensor] = field(default_factory=dict)
    spread: bool = True
    is_whole: ClassVar[bool] = False
    """Whether rows belong together, so that none may be taken alone, moved or repeated."""

    @property
    def tensors(self) -> list[Tensor]:
        """All of them."""
        return [*self.args, *self.named.values()]

    @property
    def keys(self) -> list[str]:
        """Their names; those without one are numbered from 0."""
        return [*map(str, range(len(self.args))), *self.named]

    def __len__(self) -> int:
        return self.tensors[0].shape[0]

    def __iter__(self) -> Iterator[Any]:
        # Python would else try the rows 0, 1, … one by one.
        raise TypeError("several tensors have no rows to iterate over: split them")

    def __getitem__(self, rows: Any) -> Nested:
        return self.map_rows(lambda part: part[rows])

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> Nested:
        """What becomes of the rows of each tensor.

        Args:
            change: what takes, moves or repeats rows of a tensor.
        """
        return self.map(change)

    def map(self, change: Callable[[Tensor], Tensor]) -> Nested:
        """The same collection of what becomes of each tensor.

        Args:
            change: what to do with a tensor.
        """
        return self.rebuilt([change(part) for part in self.tensors])

    def rebuilt(self, tensors: Sequence[Tensor]) -> Nested:
        """The same collection of other tensors.

        Args:
            tensors: in the order of `tensors`.
        """
        count = len(self.args)
        named = dict(zip(self.named, tensors[count:], strict=True))
        return replace(self, args=tuple(tensors[:count]), named=named)

    def part(self, name: str) -> Tensor:
        """One of them.

        Args:
            name: as in `keys`.
        """
        return self.named[name] if name in self.named else self.args[int(name)]

    def split(self, rows: int) -> list[Nested]:
        """Parts of so many rows.

        Args:
            rows: of a part; the last may have fewer.
        """
        parts = zip(*(part.split(rows) for part in self.tensors), strict=True)
        return [self.rebuilt(part) for part in parts]

    def numel(self) -> int:
        """How many numbers there are."""
        return sum(part.numel() for part in self.tensors)

    @property
    def device(self) -> torch.device:
        """Where the first of them is."""
        return self.tensors[0].device

    @property
    def is_meta(self) -> bool:
        """Whether they have shapes but no values."""
        return any(part.is_meta for part in self.tensors)

    def feed(self, net: nn.Module) -> Any:
        """What a net gives for them.

        Args:
            net: any module.

        Raises:
            RuntimeError: it cannot take a collection.
        """
        if self.spread:
            return net(*self.args, **self.named)
        try:
            return net(self.args if self.args else dict(self.named))
        # Most often a net of one tensor, which stumbles over the tuple somewhere inside.
        except (AttributeError, TypeError) as error:
            raise RuntimeError(str(error)) from error


@dataclass(frozen=True, eq=False)
class Whole(Nested):
    """Inputs that a net takes as a whole, as a graph: its rows are those of the first tensor."""

    is_whole: ClassVar[bool] = True

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> Nested:
        """All of them, whichever rows are asked for.

        Args:
            change: what would take, move or repeat rows.
        """
        return self

    def split(self, rows: int) -> list[Nested]:
        """One part, of all rows.

        Args:
            rows: makes no difference.
        """
        return [self]


def whole(*args: Tensor, **named: Tensor) -> Nested:
    """Inputs whose rows belong together, as the nodes of a graph with its edges beside them.

    The net gives an output for each row of the first tensor. Samples run one pass after another
    instead of being folded into the batch, and all rows go through together. Rows that are not
    trained on have the label `ignore_index`, or weight 0 (`hs.Weighted`).

    Args:
        args: tensors that `forward` takes by position, the first of them the rows.
        named: tensors that it takes by name.

    Example:
        >>> graph = whole(torch.randn(5, 3), edges=torch.tensor([[0, 1], [1, 2]]))
        >>> len(graph), len(graph[:2])
        (5, 5)
    """
    return Whole(args, named)


TensorTree = Tensor | Nested
"""A tensor, or several with the same rows."""


def feed(net: nn.Module, x: TensorTree) -> Any:
    """What a net gives for its inputs.

    Args:
        net: any module.
        x: its inputs.

    Raises:
        HeadstartError: a layer cannot take what reaches it, which torch says in other words.
    """
    try:
        return net(x) if isinstance(x, Tensor) else x.feed(net)
    except (RuntimeError, IndexError, KeyError) as error:
        if not (reason := why_refused(net, error)):
            raise
        raise cannot_take(x, reason) from error


def map_each(change: Callable[[Tensor], Tensor], x: TensorTree) -> Any:
    """What becomes of a tensor, or of each of several.

    Args:
        change: what to do with a tensor.
        x: the tensor or tensors.
    """
    return change(x) if isinstance(x, Tensor) else x.map(change)


def map_rows(change: Callable[[Tensor], Tensor], x: TensorTree) -> Any:
    """What becomes of the rows of a tensor, or of each of several.

    Args:
        change: what takes, moves or repeats rows of a tensor.
        x: the tensor or tensors.
    """
    return change(x) if isinstance(x, Tensor) else x.map_rows(change)


def is_whole(x: Any) -> bool:
    """Whether rows belong together.

    Args:
        x: anything.
    """
    return isinstance(x, Nested) and x.is_whole


def join_tensors(parts: Sequence[Any], dim: int = 0) -> Any:
    """`torch.cat` of tensors, or of each of several.

    Args:
        parts: tensors, or collections of the same structure.
        dim: the axis to join along.

    Raises:
        HeadstartError: rows have different shapes.

    Example:
        >>> join_tensors([Nested((torch.zeros(2),)), Nested((torch.ones(3),))]).args
        (tensor([0., 0., 1., 1., 1.]),)
    """
    first = parts[0]
    # Compared, not hashed: a compiled graph may keep sizes as symbols.
    if dim == 0 and any(row_kind(part) != row_kind(first) for part in parts):
        found = sorted({shapes_of(part[:1]) for part in parts})
        raise HeadstartError(
            f"Batches whose rows have different shapes cannot be joined ({found[0]} and "
            f"{found[-1]} for one row): pad all of them to the same length."
        )
    if isinstance(first, Tensor):
        return torch.cat(list(parts), dim)
    columns = zip(*(part.tensors for part in parts), strict=True)
    return first.rebuilt([torch.cat(column, dim) for column in columns])


def row_count(x: TensorTree) -> int:
    """The number of rows, which a compiled graph may keep as a symbol.

    Args:
        x: a tensor or several.
    """
    return x.shape[0] if isinstance(x, Tensor) else x.tensors[0].shape[0]


def parts_of(x: Any) -> list[Any]:
    """The tensors of a collection, or what is no collection alone.

    Args:
        x: anything.
    """
    return x.tensors if isinstance(x, Nested) else [x]


def of_head(x: Any, name: str | None) -> Any:
    """One tensor of a collection.

    Args:
        x: the collection.
        name: of the tensor; None: all of `x`.
    """
    return x if name is None else x.part(name)


def row_kind(x: TensorTree) -> Hashable:
    """What rows have in common: the shape of each tensor, axis 0 apart.

    Args:
        x: a tensor or several.
    """
    if isinstance(x, Tensor):
        return x.shape[1:]
    return tuple((name, part.shape[1:]) for name, part in zip(x.keys, x.tensors, strict=True))


def shapes_of(x: TensorTree) -> str:
    """The shapes, in words.

    Args:
        x: a tensor or several.

    Example:
        >>> shapes_of(torch.zeros(2, 3)), shapes_of(Nested(named={"mask": torch.zeros(2)}))
        ('(2, 3)', 'mask (2,)')
    """
    if isinstance(x, Tensor):
        return str(tuple(x.shape))
    named = zip(x.keys, x.tensors, strict=True)
    return ", ".join(f"{name} {tuple(part.shape)}" for name, part in named)


def heads_of(returned: Any) -> Any:
    """What a net returned, as a tensor or several.

    Of an object with `logits`, as Hugging Face's models return, it is these; a dictionary, tuple
    or list of tensors is a collection of heads. Anything else stays as it is.

    Args:
        returned: what the net gave.

    Example:
        >>> heads_of({"a": torch.zeros(2), "note": "b"}).keys
        ['a']
    """
    if isinstance(returned, Tensor):
        return returned
    logits = getattr(returned, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    if isinstance(returned, Mapping):
        named = {str(key): part for key, part in returned.items() if isinstance(part, Tensor)}
        return Nested(named=named) if named else returned
    several = isinstance(returned, (tuple, list)) and len(returned) > 0
    if several and all(isinstance(part, Tensor) for part in returned):
        return Nested(tuple(returned))
    return returned
