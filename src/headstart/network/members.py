"""One member of a mixture: the net as if it had that posterior alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from headstart.errors import HeadstartError
from headstart.network.layer import bayesian_layers, count_members
from headstart.network.samplers import Local
from headstart.posteriors.mixture import part


@contextmanager
def member(model: nn.Module, index: int) -> Iterator[None]:
    """Within this scope a mixture is one of its members, an ordinary Bayesian net.

    Whatever changes the net in place, an initializer or `fit`, changes this member alone, and what
    all members share. Of a net with a single posterior the member is the net itself.

    Args:
        model: A net from `bayesianize(..., members=K)`.
        index: Which member, from 0 to K − 1.

    Raises:
        HeadstartError: There is no such member.

    Example:
        >>> import torch, headstart as hs
        >>> model = hs.bayesianize(nn.Linear(3, 1), members=4)
        >>> with hs.member(model, 2):
        ...     hs.draw(model, torch.ones(5, 3)).shape
        torch.Size([1, 5, 1])
        >>> hs.draw(model, torch.ones(5, 3)).shape
        torch.Size([4, 5, 1])
    """
    count, layers = count_members(model), bayesian_layers(model).values()
    if not 0 <= index < count:
        raise HeadstartError(f"This model has {count} members, from 0 on: there is no {index}.")
    if count == 1:
        yield
        return
    before = [(layer, layer.posterior, layer.prior, layer.sampler) for layer in layers]
    try:
        for layer in layers:
            layer.posterior = part(layer.posterior, index, count)
            layer.prior = layer.prior.part(index, count)
            layer.members = 1
            layer.use(Local())
        yield
    finally:
        for layer, posterior, prior, sampler in before:
            layer.posterior, layer.prior, layer.members = posterior, prior, count
            layer.use(sampler)


def separate(model: nn.Module) -> list[nn.Module]:
    """The members of a mixture as nets of their own, on memory of their own.

    Args:
        model: A net from `bayesianize`.

    Example:
        >>> import headstart as hs
        >>> [net.posterior.units for net in separate(hs.bayesianize(nn.Linear(3, 2), members=4))]
        [2, 2, 2, 2]
    """
    found = []
    for index in range(count_members(model)):
        with member(model, index):
            found.append(copy.deepcopy(model))
    return found
