"""Where the samples of a row branch: the chain of layers that every path crosses, and the schedule.

Samples are folded into the batch. A layer through which alone the input reaches the rest of the
net may see each row once, and draw S samples from it. Where only an average over samples is wanted,
the samples may also share the draws of the first layers of the chain, and branch at later ones.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from torch import fx, nn

from headstart.kernels.members import Fold
from headstart.kernels.noise import Noise, Reused
from headstart.linalg.affine import is_dense
from headstart.network.layer import Bayesian, bayesian_layers


class Branch(NamedTuple):
    """What a layer does with the samples of a row."""

    received: int
    """How many samples reach the layer."""
    given: int
    """How many leave it."""
    enters: bool = False
    """Whether the layer sees the batch itself."""

    @property
    def draws(self) -> int:
        """How many samples the layer draws of each that it receives."""
        return self.given // self.received

    def noise(self, rows: int, members: int) -> Noise:
        """The noise of an average over rows and samples.

        Args:
            rows: The number of rows of the batch.
            members: The number of members of a mixture.
        """
        return Reused(self.given, rows, members)

    def fold(self, members: int, known_rows: bool = True) -> Fold | None:
        """How the samples of several members lie.

        Args:
            members: The number of members of a mixture.
            known_rows: Whether the number of rows is known. Of how many samples they are need only
                be known for noise that is used again.
        """
        if members == 1:
            return None
        return Fold(members, self.received if known_rows else 1, self.draws, self.enters)


Branching = dict[Bayesian, Branch]
"""The layers at which samples branch, or could; none: the input must be repeated S times."""


def branch_at_entry(layers: Mapping[str, Bayesian], samples: int) -> Branching:
    """All samples branch at the layer through which the input enters the net.

    Args:
        layers: The Bayesian layers of the net (`bayesian_layers`).
        samples: The number of samples S.
    """
    branch = Branch(1, samples, enters=True)
    # A layer without a name is the whole net.
    return {layer: branch for name, layer in layers.items() if layer.entry or not name}


def branch_along_chain(
    layers: Mapping[str, Bayesian], sampler: str, samples: int, members: int = 1
) -> Branching:
    """Samples share the draws of the first layers, and branch along the chain.

    Args:
        layers: The Bayesian layers of the net (`bayesian_layers`).
        sampler: How they draw. By weights samples share the first layer only, and only if it is a
            convolution, where that spares rows.
        samples: The number of samples S of each member.
        members: The number of members of a mixture.

    Returns:
        The branches of the chain; none where there is no such schedule.
    """
    chain = crossed_layers(layers)
    if sampler == "weights":
        chain = [] if not chain or is_dense(chain[0].op) else chain[:2]
    branches = schedule(len(chain), samples, members, bool(chain) and is_dense(chain[0].op))
    return dict(zip(chain, branches, strict=True)) if len(branches) > 0 else {}


def schedule(length: int, samples: int, members: int = 1, dense: bool = True) -> list[Branch]:
    """Where samples branch along a chain of layers.

    The first layer draws a quarter of the samples. The second layer and the last but one (the third
    at the earliest) draw two from each that they receive, with opposite noise: there are fewer rows
    up to there, and what is drawn last cancels best. In a chain of two, or for samples that are no
    multiple of eight, the second layer alone does so, which takes a multiple of four. In a chain of
    five and more whose first layer is not dense (a convolution, where rows are dearest, or an
    embedding), multiples of eight are doubled by the third layer too: the first draws an eighth.

    The members of a mixture divide the samples of a step, so that each has few and the rows of all
    count. There the layer that branches alone is the last but one; behind a convolution, where rows
    are dearest, both do, and the first layer draws a single sample for each member.

    Args:
        length: The number of layers of the chain.
        samples: The number of samples S that leave it, for each member.
        members: The number of members.
        dense: Whether the first layer is a dense one.

    Returns:
        The branch of each layer; none where there is no such schedule.

    Example:
        >>> [(branch.received, branch.given) for branch in schedule(6, 16)]
        [(1, 4), (4, 8), (8, 8), (8, 8), (8, 16), (16, 16)]
        >>> [(branch.received, branch.given) for branch in schedule(6, 4, members=4)]
        [(1, 2), (2, 2), (2, 2), (2, 2), (2, 4), (4, 4)]
        >>> [(branch.received, branch.given) for branch in schedule(5, 8, dense=False)]
        [(1, 1), (1, 2), (2, 4), (4, 8), (8, 8)]
    """
    doubling = _doubling(length, samples, members, dense)
    if not doubling:
        return []
    received = samples >> len(doubling)
    branches = [Branch(1, received, enters=True)]
    for position in range(1, length):
        given = 2 * received if position in doubling else received
        branches.append(Branch(received, given))
        received = given
    return branches


def branches_of_chain(length: int, samples: int, members: int = 1) -> list[Branch]:
    """What each dense layer does in a net that is a chain of them, for an average over samples.

    Args:
        length: The number of layers.
        samples: The number of samples S, for each member.
        members: The number of members.

    Returns:
        The schedule; where there is none, all samples branch at the first layer.
    """
    shared = schedule(length, samples, members)
    if shared:
        return shared
    return [Branch(1, samples, enters=True), *[Branch(samples, samples)] * (length - 1)]


def _doubling(length: int, samples: int, members: int, dense: bool) -> list[int]:
    """The layers that draw two samples from each that they receive."""
    if length < 2 or samples % 4:
        return []
    late = max(2, length - 2)
    if length > 2 and (samples % 8 == 0 or (members > 1 and not dense)):
        return [1, late] if dense or members > 1 else sorted({1, 2, late})
    return [late] if length > 2 and members > 1 else [1]


# A net that torch.compile has wrapped is the net itself; any other wrapper is another net.
_SAME_NET = ("", "_orig_mod.")


def crossed_layers(layers: Mapping[str, Bayesian]) -> list[Bayesian]:
    """The first layers of a converted net that every path crosses, one after another.

    Args:
        layers: The Bayesian layers of the net (`bayesian_layers`).

    Returns:
        The chain; empty for a net that is built around a converted one, or has lost a layer of it.
    """
    for name, layer in layers.items():
        if layer.chain:
            prefix = name.removesuffix(layer.chain[0])
            names = [prefix + other for other in layer.chain]
            chain = [layers[other] for other in names if other in layers]
            return chain if prefix in _SAME_NET and len(chain) == len(names) else []
    return []


def mark_chain_(model: nn.Module) -> None:
    """Let the layer through which the input enters a converted net know the net's chain.

    The chain is the first layers through each of which alone the input reaches the output, in
    training mode and in evaluation mode. No layer is marked where tracing cannot tell.

    Args:
        model: What `bayesianize` is about to return.
    """
    layers = bayesian_layers(model)
    if "" in layers:
        layers[""].chain = ("",)
        return
    # Tracing runs the user's own forward, which may keep what it sees: so it runs on a copy.
    traced = copy.deepcopy(model)
    by_mode = [_trace_chain(traced.train(mode)) for mode in (True, False)]
    same = takewhile(lambda pair: pair[0] == pair[1], zip(*by_mode, strict=False))
    chain = tuple(name for name, _ in same)
    if chain:
        model.get_submodule(chain[0]).chain = chain  # type: ignore[assignment]


class LayerTracer(fx.Tracer):
    """Traces down to the Bayesian layers, and no further than modules without any."""

    def __init__(self, layers: set[nn.Module]) -> None:
        super().__init__()
        self.layers = layers

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return m in self.layers or self.layers.isdisjoint(m.modules())


def _trace_chain(model: nn.Module) -> list[str]:
    """The layers that every path from input to output crosses before any other, in order."""
    bayesian: set[nn.Module] = set(bayesian_layers(model).values())
    try:
        graph = LayerTracer(bayesian).trace(model)
    except Exception:
        # A user's forward may raise anything under fx. Such a net simply repeats its input.
        return []
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    modules = [node for node in graph.nodes if node.op == "call_module"]
    calls = {node: model.get_submodule(node.target) for node in modules}
    calls = {node: module for node, module in calls.items() if module in bayesian}
    # A layer that does not see the input, of positions say, has no place on its way.
    if len(inputs) != 1 or not set(calls) <= _reachable(inputs[0]):
        return []
    return _crossed_names(inputs[0], calls)


def _crossed_names(start: fx.Node, calls: Mapping[fx.Node, nn.Module]) -> list[str]:
    """The names of the first calls that every path from the input crosses, each of a new layer."""
    names: list[str] = []
    nodes, targets = list(calls), list(calls.values())
    for node, target in calls.items():
        if targets.count(target) > 1 or _is_bypassed(start, node, nodes[len(names) + 1 :]):
            break
        names.append(str(node.target))
    return names


def _is_bypassed(start: fx.Node, node: fx.Node, later: Sequence[fx.Node]) -> bool:
    """Whether the output, or a later layer that may not even lead there, is reached without it."""
    return any(other.op == "output" or other in later for other in _reachable(start, node))


def _reachable(start: fx.Node, without: fx.Node | None = None) -> set[fx.Node]:
    """The nodes that are reached from one, on ways that do not cross another."""
    reached, frontier = {start}, [start]
    while frontier:
        for user in frontier.pop().users:
            if user is not without and user not in reached:
                reached.add(user)
                frontier.append(user)
    return reached
