"""What a net does with the rows of a batch, found in passes of a few of them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.kernels.fused import transformed
from headstart.kernels.random_state import kept_random_state
from headstart.linalg.affine import is_dense
from headstart.nested import (
    TensorTree,
    feed,
    heads_of,
    is_whole,
    parts_of,
    row_kind,
)
from headstart.network.layer import bayesian_layers
from headstart.network.members import member
from headstart.network.net_errors import cannot_take, where_refused
from headstart.network.samplers import Local, Mean, Sampler
from headstart.posteriors import Posterior


class LayerCall(NamedTuple):
    """A call of a Bayesian layer: the layer's name, and what it was given."""

    name: str
    inputs: Tensor


@dataclass(frozen=True)
class _Recorder:
    """A sampler whose calls are recorded."""

    name: str
    calls: list[LayerCall]
    sampler: Sampler

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        # A copy: the net may go on to overwrite its activations in place.
        self.calls.append(LayerCall(self.name, x.detach().clone()))
        return self.sampler(op, posterior, x)


def _run_recorded(model: nn.Module, x: TensorTree, sampler: Sampler) -> tuple[list[LayerCall], Any]:
    """One pass in evaluation mode by `sampler`: the calls of Bayesian layers, and the output.

    The members of a mixture do the same with their rows, so the pass is that of the first.
    """
    with member(model, 0):
        return _record(model, x, sampler)


def _record(model: nn.Module, x: TensorTree, sampler: Sampler) -> tuple[list[LayerCall], Any]:
    calls: list[LayerCall] = []
    layers = bayesian_layers(model)
    before = [layer.sampler for layer in layers.values()]
    try:
        for name, layer in layers.items():
            layer.use(_Recorder(name, calls, sampler))
        with evaluating(model):
            return calls, heads_of(feed(model, x))
    finally:
        for layer, old in zip(layers.values(), before, strict=True):
            layer.use(old)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; every module gets its own mode back."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        # An assignment to a Module is slow, and most often there is nothing to change.
        if any(training for _, training in modes):
            model.eval()
        yield
    finally:
        for module, training in modes:
            if module.training != training:
                module.training = training


@torch.no_grad()
def calls(model: nn.Module, x: TensorTree) -> list[LayerCall]:
    """The calls of Bayesian layers in one pass of the mean network in evaluation mode, in order."""
    return _run_recorded(model, x, Mean())[0]


_APPROXIMATE: WeakKeyDictionary[nn.Module, dict[Hashable, bool]] = WeakKeyDictionary()
"""The memo of `local_is_approximate`, by kind of input."""


def local_is_approximate(model: nn.Module, x: TensorTree) -> bool:
    """Whether some layer uses its weights more than once on a row of `x`.

    So do convolutions, a Linear on sequences, a layer that is called twice, and nets of graphs.
    There local draws have the right marginals only; dropout is the exception, which is defined by
    them.
    """
    layers = bayesian_layers(model)
    if all(layer.posterior.law_is_local for layer in layers.values()):
        return False
    if is_whole(x):
        return True
    known = _APPROXIMATE.setdefault(model, {})
    kind = row_kind(x)
    if kind not in known or transformed():
        known[kind] = _reuses_weights(model, x)
    return known[kind]


def _reuses_weights(model: nn.Module, x: TensorTree) -> bool:
    """`local_is_approximate`, whatever is known already."""
    layers, seen = bayesian_layers(model), calls(model, x[:1])
    once = len({call.name for call in seen}) == len(seen)
    vectors = all(given.ndim == 2 and len(given) == len(x[:1]) for _, given in seen)
    return not (once and vectors and all(is_dense(layers[name].op) for name, _ in seen))


_ROW_BY_ROW: WeakKeyDictionary[nn.Module, dict[Hashable, frozenset[str]]] = WeakKeyDictionary()
"""The memo of `check_rows`, which every step asks: what it returned, by kind of input."""


def check_rows(model: nn.Module, x: TensorTree) -> frozenset[str]:
    """Refuse a net that does not keep the rows of a batch apart, along axis 0, from end to end.

    Samples are folded into axis 0, so every Bayesian layer and the output must have the batch there
    (or several batches, one under another), and what comes of a row must not depend on other rows.
    Sizes cannot tell: another axis may have as many entries. So the net is passed four rows of `x`,
    the first two of them, and the second four times, in evaluation mode, once for each shape of a
    row (hooks are called too). The random state stays what it was. Within torch.compile and
    torch.func nothing is checked, and of a single row only sizes.

    Args:
        model: A converted net.
        x: Its inputs.

    Returns:
        The names of tables that are looked up at the same places whatever the batch is.

    Raises:
        HeadstartError: The net cannot take the inputs, the batch leaves axis 0, or rows mix.

    Example:
        >>> import headstart as hs
        >>> check_rows(hs.bayesianize(nn.Linear(3, 2)), torch.randn(5, 3))
        frozenset()
        >>> model = hs.bayesianize(nn.Sequential(nn.Linear(3, 2), nn.Softmax(0)))
        >>> check_rows(model, torch.randn(5, 3))
        Traceback (most recent call last):
        ...
        headstart.errors.HeadstartError: What the output is for one row of the batch depends on ...
    """
    if transformed() or len(x) == 0 or is_whole(x):
        return frozenset()
    passed = _ROW_BY_ROW.setdefault(model, {})
    # A single row says nothing about the others.
    kind = row_kind(x), len(x) > 1
    if kind not in passed:
        try:
            passed[kind] = _probe(model, x)
        # An error of torch's own is most often the wrong number of features, or an unknown token.
        except (RuntimeError, IndexError) as error:
            raise cannot_take(x, where_refused(model, error)) from error
    return passed[kind]


OUTPUT = "the output"


class _Recorded(NamedTuple):
    """A tensor that is to have the batch on axis 0, and where in the net it is."""

    place: str
    value: Tensor
    layer: str = ""
    """The name of the layer that it is the input of."""


def _probe(model: nn.Module, x: TensorTree) -> frozenset[str]:
    """`check_rows`, whatever is known already."""
    rows = torch.arange(4) % len(x)
    four = _record_rows(model, x[rows])
    tables = _check_sizes(_record_rows(model, x[rows[:2]]), four)
    if x.is_meta:
        return tables
    mixed = _changed(four, _record_rows(model, x[rows[1:2].repeat(4)]))
    # A net with random numbers that are not torch's never gives the same twice: that says nothing.
    if mixed and not _changed(four, _record_rows(model, x[rows])):
        raise HeadstartError(
            f"What {mixed} is for one row of the batch depends on the other rows, so samples that "
            "are folded into the batch would mix; keep rows apart: batch_first=True in attention "
            "and recurrent layers, LayerNorm or GroupNorm in place of statistics of the batch."
        )
    return tables


def _record_rows(model: nn.Module, x: TensorTree) -> list[_Recorded]:
    """What layers see and the net gives in one pass of local draws, the same draws every time."""
    with kept_random_state(x):
        seen, output = _run_recorded(model, x, Local())
    found = [_Recorded(f"the input of layer {name!r}", inputs, name) for name, inputs in seen]
    # An output that is no tensor, or has no axis 0, is refused by the pass that is to come.
    for part in parts_of(output):
        if isinstance(part, Tensor) and part.ndim:
            found.append(_Recorded(OUTPUT, part.detach()))
    return found


def _check_sizes(two: Sequence[_Recorded], four: Sequence[_Recorded]) -> frozenset[str]:
    """Axis 0 must grow with the batch, from two rows to four, or be the same for all rows.

    So are a single entry, a learned query say, and whole numbers: positions in a table.

    Returns:
        The names of such tables, that are looked up nowhere else.
    """
    if [seen.place for seen in two] != [seen.place for seen in four]:
        raise HeadstartError(
            "The net calls its layers otherwise for two rows than for four, so samples cannot be "
            "folded into the batch; call each layer on the whole batch, whatever its size."
        )
    tables, of_rows = set[str](), set[str]()
    for (place, few, layer), (_, more, _) in zip(two, four, strict=True):
        constant = few.shape[0] == 1 or not few.is_floating_point()
        constant = constant and place != OUTPUT and few.shape == more.shape
        if few.shape[0] > 1:
            (tables if constant else of_rows).add(layer)
        if 2 * few.shape[0] != more.shape[0] and not constant:
            raise HeadstartError(
                f"Axis 0 of {place} is not the batch, into which samples are folded: it has "
                f"{few.shape[0]} entries for two rows and {more.shape[0]} for four; keep the batch "
                "first from end to end (batch_first=True in attention and recurrent layers), or "
                "leave such a layer out with bayesianize(..., where=)."
            )
    return frozenset(tables - of_rows)


def _changed(one: Sequence[_Recorded], other: Sequence[_Recorded]) -> str:
    """Where the second of four rows is not what it was; nowhere: an empty string."""
    for (place, before, _), (_, after, _) in zip(one, other, strict=False):
        if before.shape != after.shape:
            continue
        # An input of one row is to be the same whatever the batch is.
        row = {1: 0, 4: 1}.get(before.shape[0])
        if row is not None and not _nearly_equal(before[row], after[row]):
            return place
    return ""


def _nearly_equal(one: Tensor, other: Tensor) -> bool:
    """Equal up to half of the digits, beside the size of the whole."""
    if not one.is_floating_point():
        return torch.equal(one, other)
    half = math.sqrt(torch.finfo(one.dtype).eps)
    size = float(one.nan_to_num(0.0, 0.0, 0.0).abs().sum()) / max(1, one.numel())
    return torch.allclose(one, other, rtol=half, atol=half * size, equal_nan=True)
