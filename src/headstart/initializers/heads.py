"""Which layers of a net are its read-outs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import nn

from headstart.initializers.linear_tail import is_linear_tail
from headstart.initializers.walk import is_linear_head, mean_output, warn_of_hidden_head
from headstart.likelihoods import Likelihood
from headstart.nested import TensorTree, map_each
from headstart.network.layer import Bayesian


class Found(NamedTuple):
    """A read-out."""

    head: str | None
    """The name of its head; None where the net has but one."""
    mixes: bool
    """Whether the net mixes its rows or positions (`headstart.initializers.linear_tail`)."""


def find_heads(
    model: nn.Module, likelihood: Likelihood, x: TensorTree, order: Mapping[str, Bayesian]
) -> dict[str, Found]:
    """The layers whose output, or a linear map of it, is that of a head of the net.

    Of a net with one head it can only be the last layer; of several each may have one anywhere.

    Args:
        model: a net from `bayesianize`.
        likelihood: the likelihood of its labels.
        x: a few rows.
        order: its layers in the order of their calls.
    """
    found: dict[str, Found] = {}
    last_first = list(reversed(list(order)))
    several = len(likelihood.heads()) > 1
    for head in likelihood.heads():
        read = likelihood.reader(head)
        width = mean_output(model, x, read).shape[-1]
        free = [name for name in last_first if name not in found]
        for name in free if several else free[:1]:
            if not order[name].may_give(width):
                continue
            simple = is_linear_head(model, order[name], x, read)
            if simple or is_linear_tail(model, order[name], x, read):
                found[name] = Found(head, not simple)
                break
        else:
            warn_of_hidden_head(last_first[0])
    return found


def label_outputs(model: nn.Module, likelihood: Likelihood, x: TensorTree, y: TensorTree) -> Any:
    """What the likelihood's `check` is told of the net's outputs, from a pass of a few rows.

    Args:
        model: the net.
        likelihood: the likelihood of its labels.
        x: the rows.
        y: their labels.

    Raises:
        HeadstartError: labels have other axes than the outputs.
    """

    def read(output: Any) -> Any:
        found = likelihood.read_rows(output)
        draws = map_each(lambda part: part.unsqueeze(0), output)
        likelihood.check_layout(y, likelihood.layout(draws))
        return found

    return likelihood.outputs_of(mean_output(model, x, read))
