"""Stochastic variational inference: Adam on the NELBO."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from headstart.inference.base import Inference, likelihood_apart, trainable
from headstart.kernels.adam import Adam
from headstart.likelihoods import Likelihood
from headstart.network.layer import count_members
from headstart.objective import Nelbo


class SVI(Inference):
    """Gradient steps on the NELBO with Adam.

    Of a mixture they follow the sum of the members' NELBOs: the parameters of a member get the
    gradient of its own, whatever the number of members. What members share gets the sum.

    Args:
        sampler: "local" for the local reparameterization, or "weights".

    Example:
        >>> SVI("weights").sampler
        'weights'
    """

    name = "svi"
    pools = True
    trains_members = True

    def __init__(self, sampler: str = "local") -> None:
        self.sampler = sampler

    def bind(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        *,
        num_data: int,
        samples: int,
        lr: float,
        clip: float | None,
    ) -> torch.optim.Optimizer:
        """Take a model to train, by Adam.

        Args:
            model: a net from `bayesianize`.
            likelihood: p(y | f), trained along.
            num_data: the rows of the data set.
            samples: draws of the net for each step.
            lr: the learning rate; the likelihood's own is larger.
            clip: the largest norm of a gradient; None: no bound.
        """
        self.model, self.likelihood, self.members = model, likelihood, count_members(model)
        # So that it bounds the root mean square of the members' norms.
        self.clip = None if clip is None else clip * math.sqrt(self.members)
        self.num_data, self.samples = num_data, samples
        self.optimizer = Adam(likelihood_apart(model, likelihood, lr), lr=lr)
        return self.optimizer

    def update(self, x: Tensor, y: Tensor, kl_weight: float) -> Nelbo:
        """One step on one batch.

        Args:
            x: its inputs.
            y: its labels.
            kl_weight: the weight of the KL.
        """
        self.optimizer.zero_grad()
        loss = self.loss(x, y, kl_weight)
        (loss.value if self.members == 1 else self.members * loss.value).backward()
        loss = self.pool_(loss, len(x))
        # Else the loop will say so; the parameters stay as they were.
        if math.isfinite(float(loss.value)):
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(trainable(self.model, self.likelihood), self.clip)
            self.optimizer.step()
        return loss
