"""A mixture: K posteriors of one family, stacked along their units.

`q(W) = 1/K Σ_k q_k(W)`. Where units are independent, the units of K posteriors, one after another,
are those of one posterior of the family, `(K · units, size)`. Its KL is the sum of theirs, and its
draws are draws of each: nothing is stored or computed member by member.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.kernels.noise import Noise, fresh
from headstart.posteriors.base import KnownMoments, Posterior


def refuse_stacking(posterior: Posterior) -> None:
    """Refuse a family whose members cannot be stacked.

    Args:
        posterior: A posterior of it.

    Raises:
        HeadstartError: Its units are not independent.
    """
    if posterior.unit_axes is None:
        raise HeadstartError(
            f"A {posterior.name} posterior correlates units and cannot have members; "
            "choose another family, or members=1."
        )


def sample_each(
    law: Posterior | KnownMoments, samples: int, members: int, noise: Noise = fresh
) -> Tensor:
    """Draws of the weights of every member, (K·S, units, size), those of a member together.

    Args:
        law: The K posteriors, stacked.
        samples: The draws of each, S.
        members: K.
        noise: Where the noise comes from.

    Example:
        >>> from headstart.posteriors import MeanField
        >>> sample_each(MeanField(units=2 * 3, size=5), samples=4, members=2).shape
        torch.Size([8, 3, 5])
    """
    draws = law.sample(samples, noise)
    if members == 1:
        return draws
    return draws.unflatten(1, (members, -1)).transpose(0, 1).flatten(0, 1)


def part(posterior: Posterior, index: int, members: int) -> Posterior:
    """One of K posteriors, on the memory of the stack: to change it in place changes that.

    Args:
        posterior: The K posteriors, stacked.
        index: Which of them.
        members: K.

    Returns:
        A posterior of (units / K, size). Gradients do not flow from it to the stack.

    Example:
        >>> from headstart.posteriors import MeanField
        >>> stack = MeanField(units=2 * 3, size=5)
        >>> part(stack, 1, 2).mean.data.fill_(7.0).shape, stack.mean[:, 0].tolist()
        (torch.Size([3, 5]), [0.0, 0.0, 0.0, 7.0, 7.0, 7.0])
    """
    refuse_stacking(posterior)
    assert posterior.unit_axes is not None
    units = posterior.units // members
    found = type(posterior)(units, posterior.size, **posterior.config(), device="meta")
    for name, parameter in posterior.named_parameters():
        owner, _, key = name.rpartition(".")
        axis = posterior.unit_axes.get(name, 0)
        count = parameter.shape[axis] // members
        view = parameter.detach().narrow(axis, index * count, count)
        mine = nn.Parameter(view, requires_grad=parameter.requires_grad)
        setattr(found.get_submodule(owner), key, mine)
    return found.train(posterior.training)


@torch.no_grad()
def stack(posterior: Posterior, members: int) -> Posterior:
    """K copies of a posterior, as one.

    Args:
        posterior: What all of them are to be.
        members: K.

    Returns:
        A posterior of (K · units, size); the same one where K is 1.
    """
    if members == 1:
        return posterior
    refuse_stacking(posterior)
    assert posterior.unit_axes is not None
    mean = posterior.mean
    factory = {"dtype": mean.dtype, "device": mean.device}
    found = type(posterior)(
        members * posterior.units, posterior.size, **posterior.config(), **factory
    )
    for name, parameter in posterior.named_parameters():
        axis = posterior.unit_axes.get(name, 0)
        found.get_parameter(name).copy_(torch.cat([parameter] * members, dim=axis))
    return found
