"""Stochastic variational inference: Adam on the NELBO."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from headstart.inference.base import Inference, likelihood_apart, trainable
from headstart.kernels.adam import Adam
from headstart.likelihoods import Likelihood
from headstart.objective import Nelbo


class SVI(Inference):
    """Gradient steps on the NELBO with local reparameterisation (or `sampler="weights"`)."""

    name = "svi"
    pools = True

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
        self.model, self.likelihood, self.num_data, self.samples, self.clip = (
            model,
            likelihood,
            num_data,
            samples,
            clip,
        )
        self.optimizer = Adam(likelihood_apart(model, likelihood, lr), lr=lr)
        return self.optimizer

    def update(self, x: Tensor, y: Tensor, kl_weight: float) -> Nelbo:
        self.optimizer.zero_grad()
        loss = self.loss(x, y, kl_weight)
        loss.value.backward()
        loss = self.pool_(loss, len(x))
        if math.isfinite(
            float(loss.value)
        ):  # else the loop will say so; the parameters stay as they were
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(trainable(self.model, self.likelihood), self.clip)
            self.optimizer.step()
        return loss
