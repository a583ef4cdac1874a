"""Which layers of a net are its read-outs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import nn

from headstart.initializers.linear_tail import is_linear_tail
from headstart.initializers.walk import is_linear_head, mean_output, warn_of_hidden_head
from headstart.likelihoods import Likelihood
from headstart.nested import TensorTree
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
