"""The one walk over a net's layers: which come when, and what reaches each of them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headstart.kernels.noise import Noise, fresh
from headstart.linalg.affine import channel_axis
from headstart.nested import TensorTree, feed, heads_of, map_each, map_rows
from headstart.network.forward import check_outputs, drawing, forward
from headstart.network.layer import Bayesian, bayesian_layers, count_members
from headstart.network.net_errors import cannot_take, unknown_index
from headstart.network.probe import calls, check_rows, evaluating
from headstart.network.samplers import (
    Mean,
    WeightsOnDemand,
    check_output,
    for_every_row,
    repeat_rows,
)
from headstart.posteriors import Posterior


class _Reached(Exception):
    """Thrown out of a forward pass that has come far enough: torch has no other way to end one."""


def execution_order(model: nn.Module, x: TensorTree) -> dict[str, Bayesian]:
    """The Bayesian layers in the order in which a forward pass first calls them.

    Layers that it never calls are left out.

    Args:
        model: a net from `bayesianize`.
        x: a few rows of inputs.
    """
    check_rows(model, x)
    layers = bayesian_layers(model)
    return {name: layers[name] for name, _ in calls(model, x)}


def count_calls(model: nn.Module, x: TensorTree) -> Mapping[Bayesian, int]:
    """How often a forward pass calls each Bayesian layer.

    Args:
        model: a net from `bayesianize`.
        x: a few rows of inputs.
    """
    layers = bayesian_layers(model)
    return Counter(layers[name] for name, _ in calls(model, x))


@torch.no_grad()
def layer_inputs(
    model: nn.Module,
    layer: Bayesian,
    x: TensorTree,
    sampler: str = "local",
    noise: Noise = fresh,
    count: int = 1,
) -> list[Tensor]:
    """What reaches `layer` at each of its first calls, through one draw of the layers before it.

    The forward pass stops there. Batches that the net stacks, one under another, are as many calls.

    Args:
        model: a net from `bayesianize`.
        layer: one of its layers.
        x: the inputs of the net.
        sampler: how the layers before are drawn.
        noise: where their random numbers come from.
        count: how many calls (`count_calls`).
    """
    caught: list[Tensor] = []

    def catch(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        inputs = for_every_row(args[0] if args else named["input"], len(x))
        # The pass ends before the layer would refuse them.
        if reason := unknown_index(model, layer, inputs):
            raise cannot_take(x, reason)
        # Copies where the pass goes on: the net may overwrite its activations in place.
        caught.append(inputs if count == 1 else inputs.clone())
        if len(caught) == count:
            raise _Reached

    handle = layer.register_forward_pre_hook(catch, with_kwargs=True)
    by_weights = sampler == "weights"
    try:
        with evaluating(model), drawing(model, "mean" if by_weights else sampler, noise=noise):
            for each in bayesian_layers(model).values() if by_weights else ():
                each.sampler = WeightsOnDemand([])
            feed(model, x)
    except _Reached:
        pass
    finally:
        handle.remove()
    return [batch for inputs in caught for batch in inputs.split(len(x))]


Read = Callable[[Any], Tensor]
"""What a likelihood reads in what a net gave for N rows: (N, K), or (N, P, K) with P positions."""


def as_given(output: Any) -> Tensor:
    """An output of one tensor, (N, K), as it is.

    Args:
        output: what the net gave.
    """
    return check_outputs(output.unsqueeze(0) if isinstance(output, Tensor) else output)[0]


def mean_output(model: nn.Module, x: TensorTree, read: Read = as_given) -> Tensor:
    """What the mean network gives for a few rows, in evaluation mode.

    Args:
        model: a net from `bayesianize`.
        x: the rows.
        read: what the likelihood reads in it.
    """
    with evaluating(model), torch.no_grad():
        return read(map_each(lambda part: part[0], forward(model, x, 1, "mean")))


def count_outputs(model: nn.Module, x: TensorTree) -> int:
    """The number of outputs of the net for each row."""
    return mean_output(model, x).shape[-1]


class LinearHead(NamedTuple):
    """A layer at the end of a net whose output is `offset + Σ_p weights_p · layer_p`.

    The sum goes over the positions of every call of the layer, and is the same for each unit.
    Where the net has outputs at P positions there is no sum: the P positions of all calls, one
    call after another, are the net's.
    """

    calls: list[tuple[Tensor, Tensor]]
    """What reaches the layer at each call, and the weights of its positions, (N, P)."""
    offset: Tensor
    """What the net adds, (N, K) or (N, P, K)."""

    def gather(self, parts: Sequence[Tensor]) -> Tensor:
        """What the calls give together for each output of the net.

        Args:
            parts: of each call what belongs to its positions, (..., N, P, D), weighted.

        Returns:
            The sum over all positions, (..., N, D), or the positions of the net, (..., N, P, D).
        """
        if self.offset.ndim > 2:
            return torch.cat(list(parts), -2)
        sums = [part.sum(-2) for part in parts]
        return sum(sums[1:], sums[0])


@dataclass(frozen=True)
class _GivenOutput:
    """A layer whose output is given instead of computed; `seen` keeps its inputs and outputs.

    It switches gradients on: the caller's scope without them ends where the layers before have run.
    """

    make: Callable[[Tensor], Tensor]
    seen: list[tuple[Tensor, Tensor]]

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        output = self.make(Mean()(op, posterior, x).detach()).requires_grad_()
        self.seen.append((x, output))
        torch.set_grad_enabled(True)
        # A copy, since what follows may work in place.
        return output.clone()


def with_output(
    model: nn.Module,
    layer: Bayesian,
    x: TensorTree,
    make: Callable[[Tensor], Tensor],
    sampler: str = "mean",
    noise: Noise = fresh,
) -> tuple[list[tuple[Tensor, Tensor]], Any]:
    """Inputs and given outputs of the layer's calls, and the net's output, from one pass.

    Args:
        model: a net from `bayesianize`.
        layer: one of its layers.
        x: the rows.
        make: what gives an output of the layer, from another of the same shape.
        sampler: how the layers before are drawn.
        noise: where their random numbers come from.
    """
    given = _GivenOutput(make, [])
    with evaluating(model), torch.no_grad(), drawing(model, sampler, noise=noise):
        layer.sampler = given
        output = heads_of(feed(model, x))
    return given.seen, output


def linear_head(
    model: nn.Module,
    layer: Bayesian,
    x: TensorTree,
    sampler: str = "local",
    noise: Noise = fresh,
    read: Read = as_given,
) -> LinearHead:
    """The layer as the head of the net on these rows, through one draw of the layers before it.

    The weights of positions are the gradient of an output by the layer's.
    `is_linear_head` says whether that is all there is.

    Args:
        model: a net from `bayesianize`.
        layer: its last layer.
        x: the rows.
        sampler: how the layers before are drawn.
        noise: where their random numbers come from.
        read: what the likelihood reads in the net's output.
    """
    seen, given_output = with_output(model, layer, x, torch.zeros_like, sampler, noise)
    with torch.enable_grad():
        output = read(given_output)
    if output.requires_grad:
        outputs = [given for _, given in seen]
        with torch.enable_grad():
            slopes = torch.autograd.grad(output[..., 0].sum(), outputs, materialize_grads=True)
    else:
        slopes = tuple(torch.zeros_like(given) for _, given in seen)
    axis = channel_axis(layer.op)
    weights = [slope.select(axis, 0).reshape(len(slope), -1) for slope in slopes]
    return LinearHead(
        [(inputs, each) for (inputs, _), each in zip(seen, weights, strict=True)], output.detach()
    )


PROBES = (1.0, -1.0, 100.0, -100.0, 1e4, -1e4)
"""Scales of the outputs that `is_linear_head` gives to the layer.

What saturates or has a kink shows at one of them.
"""


def is_linear_head(model: nn.Module, layer: Bayesian, x: TensorTree, read: Read = as_given) -> bool:
    """Whether the net's output is what `linear_head` says of it, whatever the layer gives.

    A mean or sum over positions, a mask and a scale are linear.
    An activation, a softmax and a maximum are not.

    Args:
        model: a net from `bayesianize`.
        layer: its last layer.
        x: a few rows.
        read: what the likelihood reads in the net's output.
    """
    head = linear_head(model, layer, x, "mean", read=read)
    axis = channel_axis(layer.op)
    if any(len(weights) != len(x) for _, weights in head.calls):
        return False
    if head.offset.ndim > 2 and head.offset.shape[1] != sum(w.shape[1] for _, w in head.calls):
        return False
    if not any(bool(weights.any()) for _, weights in head.calls):
        return False
    generator = torch.Generator().manual_seed(0)
    for scale in PROBES:

        def rough(like: Tensor, scale: float = scale) -> Tensor:
            """Numbers of both signs, none near zero."""
            numbers = torch.rand(like.shape, generator=generator) - 0.5
            return (scale * (numbers.sign() + numbers)).to(like)

        seen, given_output = with_output(model, layer, x, rough)
        output, terms = read(given_output).detach(), list[Tensor]()
        for (_, given), (_, weights) in zip(seen, head.calls, strict=True):
            outputs = given.detach().movedim(axis, -1)
            terms.append(weights.unsqueeze(-1) * outputs.reshape(*weights.shape, -1))
        expected = head.offset + head.gather(terms)
        size = head.offset.abs() + head.gather([term.abs() for term in terms])
        tolerance = max(1e-4, 8 * torch.finfo(output.dtype).eps)
        if not bool(((output - expected).abs() <= tolerance * size).all()):
            return False
    return True


def warn_of_hidden_head(name: str) -> None:
    """Say that the last layer is not what `is_linear_head` asks for.

    Args:
        name: of the layer.
    """
    warnings.warn(
        "The net's output is not a fixed multiple, sum or mean of that of its last Bayesian layer "
        f"{name!r} (plus what does not depend on it), so I-BLM initializes this layer like a "
        "hidden one and cannot fit the labels before training. Let the net end in that layer: "
        "the likelihood applies the link function.",
        stacklevel=3,
    )


@torch.no_grad()
def observe_layers(
    model: nn.Module, x: TensorTree, see: Callable[[str, Tensor, Tensor], None]
) -> Any:
    """One sampled forward pass in which every Bayesian layer is seen.

    Args:
        model: a net from `bayesianize`.
        x: the rows.
        see: called with the name, the input and the output of each layer.

    Returns:
        The outputs of the net, (K, B, ...): those of each member of a mixture.
    """
    members = count_members(model)
    # Members know their rows of an input that is the same for all only where these are counted.
    constant = members > 1 and any(len(inputs) == 1 < len(x) for _, inputs in calls(model, x[:2]))
    handles = [
        layer.register_forward_hook(
            lambda module, args, named, out, name=name: see(
                name, for_every_row(args[0] if args else named["input"], len(x)), out
            ),
            with_kwargs=True,
        )
        for name, layer in bayesian_layers(model).items()
    ]
    rows = len(x) if constant else None
    try:
        with evaluating(model), drawing(model, "local", members, rows=rows) as once:
            fed = x if once else map_rows(lambda part: repeat_rows(part, members), x)
            output = heads_of(feed(model, fed))
    finally:
        for handle in handles:
            handle.remove()
    check_output(output, members * len(x))
    return map_each(lambda part: part.unflatten(0, (members, -1)), output)
