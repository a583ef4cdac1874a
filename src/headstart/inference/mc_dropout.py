"""MC dropout: stochastic gradient descent through dropout that stays on at prediction."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from headstart.inference.base import Inference, OptimizerChoice, trainable
from headstart.likelihoods import Likelihood
from headstart.network.convert import Where
from headstart.objective import Nelbo, expected_nll
from headstart.posteriors import Posterior


class MCDropout(Inference):
    """SGD with momentum and weight decay on the likelihood, for nets with `posterior="dropout"`.

    The method of Gal and Ghahramani (2016).
    The learning rate follows its authors: `base · (1 + decay · step)^(−power)`.
    A batch goes through the net once; `samples`, `lr`, `lr_schedule` and the weight of the KL,
    which is not its own, are not used.
    `MCDropout().convert(net)` is `bayesianize(net, posterior="dropout", where="!last")`.

    Args:
        base: the learning rate at the start.
        momentum: of the steps.
        weight_decay: half of the squared weights, times this, is added to the mean loss.
        decay: how fast the learning rate falls.
        power: its exponent.

    Example:
        >>> import headstart as hs
        >>> net = nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 1))
        >>> model, lik = hs.bayesianize(net, posterior="dropout", where="!last"), hs.Gaussian()
        >>> x = torch.randn(100, 3)
        >>> options = {"inference": "mc-dropout", "progress": False, "seed": 0}
        >>> len(hs.fit(model, lik, (x, x.sum(1)), steps=5, **options).steps)
        5
    """

    name = "mc-dropout"
    posterior = "dropout"
    test_sampler = "local"
    pools = True

    def __init__(
        self,
        base: float = 0.01,
        *,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        decay: float = 1e-4,
        power: float = 0.75,
    ) -> None:
        self.base, self.momentum, self.weight_decay = base, momentum, weight_decay
        self.decay, self.power = decay, power

    def convert(
        self,
        net: nn.Module,
        *,
        posterior: Any = None,
        prior: Any = 1.0,
        where: Where = "!last",
        members: int = 1,
    ) -> nn.Module:
        """A copy with dropout after every layer but the last.

        Args:
            net: the net.
            posterior: "dropout" or None.
            prior: as in `bayesianize`.
            where: as in `bayesianize`.
            members: 1.
        """
        return super().convert(net, posterior=posterior, prior=prior, where=where, members=members)

    def supports(self, posterior: Posterior) -> bool:
        """Whether the posterior has no density, and so no entropy that the loss would lack.

        Args:
            posterior: that of a layer.
        """
        return not posterior.has_density

    def bind(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        *,
        num_data: int,
        samples: int,
        lr: float | None,
        clip: float | None,
        optimizer: OptimizerChoice = None,
    ) -> torch.optim.Optimizer:
        """Take a net with dropout posteriors to train.

        Args:
            model: the net.
            likelihood: p(y | f), trained along.
            num_data: the rows of the data set.
            samples: not used.
            lr: not used.
            clip: the largest norm of a gradient; None: no bound.
            optimizer: not used.
        """
        self.check_posteriors(model)
        self.model, self.likelihood, self.num_data = model, likelihood, num_data
        self.clip, self.step = clip, 0
        learned = trainable(model, likelihood)
        self.optimizer = torch.optim.SGD(learned, lr=self.base, momentum=self.momentum)
        return self.optimizer

    def update(self, x: Tensor, y: Tensor, kl_weight: float) -> Nelbo:
        """One step of SGD on one batch.

        Args:
            x: its inputs.
            y: its labels.
            kl_weight: not used.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = self.base * (1 + self.decay * self.step) ** -self.power
        self.step += 1
        self.optimizer.zero_grad()
        with self.computing(x):
            nll = expected_nll(self.model, self.likelihood, x, y, num_data=self.num_data, samples=1)
        squares = torch.stack([p.square().sum() for p in trainable(self.model)]).sum()
        decay = 0.5 * self.num_data * self.weight_decay * squares
        value = nll + decay
        (value / self.num_data).backward()
        loss = self.pool_(Nelbo(value, nll, decay), len(x)).on_host()
        # Else the loop will say so; the parameters stay as they were.
        if math.isfinite(float(loss.value)):
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(trainable(self.model, self.likelihood), self.clip)
            self.optimizer.step()
        return loss
