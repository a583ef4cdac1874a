"""A net that gives what its only Bayesian layer gives: the body before it need run only once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from headstart.kernels.fused import transformed
from headstart.nested import TensorTree, feed, heads_of, row_kind
from headstart.network.layer import Bayesian, bayesian_layers
from headstart.network.members import member
from headstart.network.probe import evaluating
from headstart.network.samplers import Mean
from headstart.posteriors import Posterior


class Head(NamedTuple):
    """The only Bayesian layer of a net, whose output is the net's, and what reaches it."""

    layer: Bayesian
    inputs: Tensor


def run_body(model: nn.Module, x: TensorTree) -> Head | None:
    """One pass of the body, with what gradients and modes the caller has set.

    Args:
        model: A converted net.
        x: The inputs of B rows.

    Returns:
        The head and its inputs; None where several layers are Bayesian, where the only one is
        called other than once on the B rows, or where the net goes on with what it gives.

    Example:
        >>> import torch, headstart as hs
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> run_body(hs.bayesianize(net, where="last"), torch.ones(5, 3)).inputs.shape
        torch.Size([5, 4])
        >>> run_body(hs.bayesianize(net), torch.ones(5, 3)) is None
        True
    """
    layers = list(bayesian_layers(model).values())
    if len(layers) > 1:
        return None
    seen: list[tuple[Tensor, Tensor]] = []

    def catch(op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        seen.append((x, Mean()(op, posterior, x)))
        return seen[-1][1]

    layer = layers[0]
    before = layer.sampler
    try:
        with member(model, 0):
            layer.use(catch)
            output = heads_of(feed(model, x))
    finally:
        layer.use(before)
    # The same tensor: whatever else a net might do with it would make another.
    if len(seen) != 1 or output is not seen[0][1] or len(seen[0][0]) != len(x):
        return None
    return Head(layer, seen[0][0])


def after_body(
    model: nn.Module, parts: Sequence[TensorTree]
) -> tuple[nn.Module, Sequence[TensorTree]]:
    """The last layer and what reaches it, where it alone is Bayesian; else the net as it is.

    Args:
        model: A converted net.
        parts: Its inputs, so many rows at a time.
    """
    if not ends_in_layer(model, parts[0]):
        return model, parts
    heads = [run_body(model, part) for part in parts]
    found = [head for head in heads if head is not None]
    if len(found) < len(heads):
        return model, parts
    return found[0].layer, [head.inputs for head in found]


_ENDS_IN_LAYER: WeakKeyDictionary[nn.Module, dict[Hashable, bool]] = WeakKeyDictionary()
"""The memo of `ends_in_layer`, which every step asks, by shape of a row."""


def ends_in_layer(model: nn.Module, x: TensorTree) -> bool:
    """Whether `run_body` finds a head, in a pass of two rows in evaluation mode.

    Within torch.compile and torch.func nothing is tried, and the answer is no.

    Args:
        model: A converted net.
        x: Its inputs.
    """
    if transformed() or len(x) == 0 or len(bayesian_layers(model)) > 1:
        return False
    known = _ENDS_IN_LAYER.setdefault(model, {})
    kind = row_kind(x)
    if kind not in known:
        with evaluating(model):
            known[kind] = run_body(model, x[:2]) is not None
    return known[kind]
