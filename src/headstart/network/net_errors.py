"""Why a net cannot take its inputs, in the terms of the layer that refused them."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from headstart.errors import HeadstartError

WIDTHS = {
    **dict.fromkeys(["in_features", "input_size", "embed_dim", "nx"], ("features", -1)),
    **dict.fromkeys(["in_channels", "num_features"], ("channels", 1)),
}
"""What a layer's setting says that it takes, and on which axis."""
STOCK = ("torch.nn.modules.", "transformers.pytorch_utils", "headstart.network.")
"""Modules of Python in whose layers these settings mean just that."""


class _Call(NamedTuple):
    """A call of a module's `forward` that did not return."""

    module: nn.Module
    given: Any
    """Its first argument."""
    is_last: bool
    """Whether the error arose in `forward` itself, and in nothing that it calls."""


def why_refused(net: nn.Module, error: BaseException) -> str:
    """Which layer refused what, where that can be told; else an empty string.

    Args:
        net: the net that was called.
        error: what came of it.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(3, 2))
        >>> try:
        ...     net(torch.zeros(1, 4))
        ... except RuntimeError as error:
        ...     print(why_refused(net, error))
        layer '0' (Linear) takes 3 features and is given 4; change the inputs or the layer
    """
    call = _innermost_call(error)
    if call is None:
        return ""
    op = _stock_layer(call.module)
    if call.is_last and (said := _lacking_key(error, call)):
        return said
    if not isinstance(call.given, Tensor):
        return ""
    reason = _unknown_index(op, call.given) or _wrong_width(op, call.given)
    return f"{_layer_in_words(net, call.module)} {reason}" if reason else ""


def unknown_index(net: nn.Module, layer: nn.Module, given: Tensor) -> str:
    """Which index a table does not have, before it is called; an empty string for other layers.

    Args:
        net: the net that the layer is in.
        layer: any layer, Bayesian or not.
        given: what is about to reach it.
    """
    reason = _unknown_index(_stock_layer(layer), given)
    return f"{_layer_in_words(net, layer)} {reason}" if reason else ""


def where_refused(net: nn.Module, error: BaseException) -> str:
    """`why_refused`, or what torch says with the layer's name before it.

    Args:
        net: the net that was called.
        error: what came of it.
    """
    reason = why_refused(net, error)
    call = _innermost_call(error)
    if reason or call is None or call.module is net or not _name(net, call.module):
        return reason or str(error)
    return f"{_layer_in_words(net, call.module)} says: {error}"


def cannot_take(x: Any, reason: str) -> HeadstartError:
    """The error of a net that cannot take its inputs.

    Args:
        x: the inputs, a tensor or several; of how many rows does not matter.
        reason: why not.

    Example:
        >>> import torch
        >>> print(cannot_take(torch.zeros(7), "a mismatch"))
        The net cannot take inputs of shape (rows): a mismatch. They have no columns: ...
    """
    hint = ""
    if not isinstance(x, Tensor):
        hint = "" if x.spread else " It takes one tensor: pass the inputs alone, without labels."
    elif x.ndim == 1:
        hint = (
            " They have no columns: pass (rows, columns), as in x.unsqueeze(1) for one column or "
            "x.unsqueeze(0) for one row."
        )
    said = reason.rstrip(".")
    return HeadstartError(f"The net cannot take inputs of shape {_row_shapes(x)}: {said}.{hint}")


def _row_shapes(x: Any) -> str:
    """The shapes in words, whatever the number of rows."""
    if isinstance(x, Tensor):
        return f"({', '.join(['rows', *map(str, x.shape[1:])])})"
    return ", ".join(f"{name} {_row_shapes(x.part(name))}" for name in x.keys)


def unfitting_inputs(net: nn.Module, args: int, named: Sequence[str]) -> str:
    """What to say of inputs that `forward` does not take: what is missing, what it does not know.

    Args:
        net: the net.
        args: how many inputs have no name.
        named: the names of the others.

    Example:
        >>> print(unfitting_inputs(nn.Bilinear(1, 2, 3), 0, ["input1"]).split(": ")[0])
        Bilinear.forward takes (input1, input2), and the inputs (input1) lack 'input2'
    """
    parameters = inspect.signature(net.forward).parameters
    needed = [each for each in list(parameters.values())[args:] if each.default is each.empty]
    lacking = [
        each.name
        for each in needed
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) and each.name not in named
    ]
    unknown = [name for name in named if name not in parameters]
    said = [f"lack {', '.join(map(repr, lacking))}"] if lacking else []
    said += [f"have {', '.join(map(repr, unknown))} besides"] if unknown else []
    given = ", ".join([*map(str, range(args)), *named])
    return (
        f"{type(net).__name__}.forward takes ({', '.join(parameters)}), and the inputs ({given}) "
        f"{' and '.join(said) or 'do not fit'}: pass what it takes, or name what makes (x, y) of "
        "a batch, hs.Collated(batches, collate)."
    )


def _innermost_call(error: BaseException) -> _Call | None:
    """The last call of a module on the way to the error."""
    found = None
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in frames:
        code = frame.f_code
        if code.co_name != "forward" or code.co_argcount < 2:
            continue
        module, given = (frame.f_locals.get(name) for name in code.co_varnames[:2])
        if isinstance(module, nn.Module):
            found = _Call(module, given, frame is frames[-1])
    return found


def _stock_layer(module: nn.Module) -> nn.Module:
    """What a Bayesian layer computes."""
    op = getattr(module, "op", None)
    # Others may call anything `op`.
    holds = getattr(type(module), "holds_posterior", False)
    return op if holds and isinstance(op, nn.Module) else module


def _name(net: nn.Module, module: nn.Module) -> str:
    return next((name for name, each in net.named_modules() if each is module), "")


def _layer_in_words(net: nn.Module, module: nn.Module) -> str:
    return f"layer {_name(net, module)!r} ({type(_stock_layer(module)).__name__})"


def _lacking_key(error: BaseException, call: _Call) -> str:
    """What a net that takes a dictionary does not find in its inputs."""
    name = type(call.module).__name__
    if isinstance(error, KeyError) and isinstance(call.given, Mapping):
        key = error.args[0] if error.args else None
        if key not in call.given:
            keys = ", ".join(map(str, call.given))
            return f"{name}.forward asks for {key!r}, which is not among {keys}"
    # So torch refuses the key of a dictionary, but also one axis too many.
    if isinstance(error, IndexError) and "too many indices" in str(error):
        return (
            f"{name}.forward asks for parts of its input, which is a single tensor ({error}); "
            "where it takes a dictionary, pass all of its keys"
        )
    return ""


def _unknown_index(op: nn.Module, given: Tensor) -> str:
    """Which index a table does not have."""
    rows = getattr(op, "num_embeddings", None)
    # After an assertion on a device nothing there can be read.
    if rows is None or given.is_floating_point() or not given.is_cpu or given.is_meta:
        return ""
    unknown = given[(given < 0) | (given >= rows)]
    if not len(unknown):
        return ""
    index = int(unknown[0])
    return (
        f"is a table of {rows} rows, 0 to {rows - 1}, and is given the index {index}; mend the "
        "input, or let the table have more rows"
    )


def _wrong_width(op: nn.Module, given: Tensor) -> str:
    """How wide a layer is, and how wide what reaches it.

    Nets and blocks of one's own may mean something else by the same names.
    """
    if not type(op).__module__.startswith(STOCK):
        return ""
    for setting, (what, axis) in WIDTHS.items():
        wanted = getattr(op, setting, None)
        if isinstance(wanted, int) and given.ndim > max(axis, 0):
            found = given.shape[axis]
            said = f"takes {wanted} {what} and is given {found}; change the inputs or the layer"
            return said if found != wanted else ""
    return ""
