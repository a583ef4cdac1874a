"""Many draws of many rows, in forward passes of bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.kernels.few_rows import are_few
from headstart.nested import TensorTree, join_tensors, map_each
from headstart.network.chain import channels_last
from headstart.network.forward import draw_weights, forward
from headstart.network.head import after_body
from headstart.network.layer import count_members
from headstart.network.probe import check_rows
from headstart.network.single_row import draw_chain, single_row_chain

MAX_PASS_ROWS = 16_384
"""Rows × samples in one forward pass: a bound on its memory."""
MAX_PASS_ELEMENTS = 2**22
"""Elements of the inputs of one forward pass, times samples."""
CACHED_PASS_ELEMENTS = 2**19
"""Elements of the inputs of a pass by one drawn function: its feature maps stay in the cache."""
MAX_PASS_SAMPLES = 16
"""Samples in one forward pass."""
FULL_PASS_ROWS = 256
"""With so many rows a drawn function runs alone, as fast as a plain net.

Several functions at once need grouped convolutions, which pay only where rows are few.
"""


def draw_in_chunks(
    model: nn.Module, x: TensorTree, samples: int, sampler: str, functions: bool = True
) -> Any:
    """Draws of the outputs, (S, B, ...), those of a member together.

    A chunk of samples keeps its weights over all chunks of rows, so that draws are functions.

    Args:
        model: A converted net, in evaluation mode.
        x: The inputs of B rows.
        samples: The number of samples S, rounded up to a multiple of the members'.
        sampler: `"local"`, `"weights"` or `"mean"`.
        functions: Whether draws by weights are to be functions of any row; else draws of a single
            row have only the law of such.

    Raises:
        HeadstartError: S is below 1.
    """
    samples = check_samples(samples)
    if not len(x):
        raise HeadstartError("There is not a single row to predict.")
    pass_rows = max(1, min(MAX_PASS_ROWS, MAX_PASS_ELEMENTS // max(1, x[:1].numel())))
    few = -(-FULL_PASS_ROWS // max(1, len(x)))
    members = count_members(model)
    each = -(-samples // members)
    limit = min(MAX_PASS_SAMPLES, few if sampler == "weights" else samples)
    functions = functions or len(x) != 1
    if not functions:
        limit = min(few, pass_rows)
    at_once = min(each, max(1, limit // members))
    x, pass_rows = _cached(model, x, pass_rows, sampler, members * at_once)
    row_chunks: Sequence[TensorTree] = x.split(max(1, pass_rows // (members * at_once)))
    by_outputs = sampler == "weights" and not functions and members == 1
    chain = single_row_chain(model, x) if by_outputs else []
    if each > at_once and sampler != "mean" and not chain:
        check_rows(model, row_chunks[0])
        model, row_chunks = after_body(model, row_chunks)

    def run(count: int) -> Any:
        """(members, count, B, ...)."""
        found: Any = draw_chain(chain, x, count)
        if found is None:
            fixed = sampler == "weights" and functions
            weights = draw_functions(model, count, members) if fixed else None
            parts = [
                forward(model, part, members * count, sampler, weights, functions=functions)
                for part in row_chunks
            ]
            found = join_tensors(parts, dim=1)
        return map_each(lambda part: part.unflatten(0, (members, -1)), found)

    draws = [run(min(at_once, each - start)) for start in range(0, each, at_once)]
    return map_each(lambda part: part.flatten(0, 1), join_tensors(draws, dim=1))


def check_samples(samples: Any) -> int:
    """The number of samples, where it is one.

    Args:
        samples: The number of samples; one of numpy's is as good.

    Raises:
        HeadstartError: It is no whole number, or below 1.
    """
    if not isinstance(samples, Integral) or samples < 1:
        raise HeadstartError(f"samples is a whole number of at least one sample, not {samples!r}.")
    return int(samples)


def _cached(
    model: nn.Module, x: TensorTree, pass_rows: int, sampler: str, functions: int
) -> tuple[TensorTree, int]:
    """Inputs as they suit the convolutions of one drawn function, or of few rows by many.

    And the rows of a pass, as they suit the cache where one function takes them.
    """
    if sampler != "weights":
        return x, pass_rows
    if functions > 1:
        few = isinstance(x, Tensor) and are_few(x, functions, shared=True)
        return channels_last(model, x) if few else x, pass_rows
    cached = CACHED_PASS_ELEMENTS // max(1, x[:1].numel())
    return channels_last(model, x), min(pass_rows, max(FULL_PASS_ROWS, cached))


def draw_functions(model: nn.Module, samples: int, members: int) -> list[Tensor]:
    """`draw_weights`, sample after sample of every member.

    A seed so gives the same functions however many rows there are, and so chunks.

    Args:
        model: A converted net.
        samples: How many draws of every member.
        members: The number of members.

    Returns:
        A tensor (members · samples, units, size) for each layer, the draws of a member together.
    """
    return [
        torch.stack(draws, dim=1).flatten(0, 1)
        for draws in zip(*(draw_weights(model, members) for _ in range(samples)), strict=True)
    ]
