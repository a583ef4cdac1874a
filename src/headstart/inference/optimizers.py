"""Optimizers of the user's own."""

from __future__ import annotations

import torch
from torch import nn

from headstart.errors import HeadstartError
from headstart.inference.base import LIKELIHOOD_LR, MakeOptimizer, trainable
from headstart.likelihoods import Likelihood


def make_optimizer(
    make: MakeOptimizer, model: nn.Module, likelihood: Likelihood, lr: float | None
) -> torch.optim.Optimizer:
    """An optimizer of the user's own.

    Args:
        make: what makes it of groups of parameters.
        model: the net.
        likelihood: its likelihood, whose few parameters move `LIKELIHOOD_LR` times faster.
        lr: the learning rate of `fit`, which must not be given: the optimizer has its own.

    Raises:
        HeadstartError: it makes no optimizer of groups of parameters.
    """
    if lr is not None:
        raise HeadstartError(
            f"The optimizer that optimizer= makes has a learning rate of its own: leave out "
            f"lr={lr:g}."
        )
    groups = [{"params": trainable(each)} for each in (model, likelihood)]
    try:
        made = make([group for group in groups if group["params"]])
    # torch says so by several errors, LBFGS by a ValueError.
    except (TypeError, ValueError) as error:
        raise HeadstartError(
            f"optimizer= makes no optimizer of groups of parameters: {error}."
        ) from error
    if not isinstance(made, torch.optim.Optimizer):
        raise HeadstartError(
            "optimizer= must make a torch.optim.Optimizer of groups of parameters, as "
            f"torch.optim.SGD does; it made a {type(made).__name__}."
        )
    own = {id(p) for p in trainable(likelihood)}
    for group in made.param_groups:
        # The maker may have divided those of the model into groups of its own.
        if own.issuperset(id(p) for p in group["params"]):
            group["lr"] *= LIKELIHOOD_LR
    return made
