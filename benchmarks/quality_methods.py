"""How each library of benchmarks/quality.py trains: a step, and log p(y) of draws.

Every library trains the same net on the same batches by its documented objective. Real labels have
Gaussian noise, whose variance is learned beside the net. A rate is that of Adam, or of ivon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from quality_tasks import Rows, Task, log_probs, new_net
from torch import Tensor, nn

import headstart as hs
from headstart.bench.rivals import swapped

DRAWS, MEMBERS, DROPOUT = 64, 5, 0.1
Batch = tuple[Tensor, Tensor]


@dataclass
class Trainer:
    """A model in training: `step(batch)`, and `score(batch)` gives log p(y), (S, rows)."""

    step: Callable[[Batch], Any]
    score: Callable[[Batch], Tensor]


def by_descent(
    net: nn.Module, rows: Rows, rate: float, kl: Callable[[], Tensor | float], draws: int = DRAWS
) -> Trainer:
    """Adam on the NLL of one draw per step, plus the KL over the number of rows."""
    log_noise = torch.zeros(rows.outputs, requires_grad=True)
    adam = torch.optim.Adam([*net.parameters(), log_noise], rate)

    def step(batch: Batch) -> None:
        x, y = batch
        adam.zero_grad()
        loss = -log_probs(net(x), y, log_noise).mean() + kl() / len(rows.train[0])
        loss.backward()
        adam.step()

    @torch.no_grad()
    def score(batch: Batch) -> Tensor:
        x, y = batch
        return torch.stack([log_probs(net(x), y, log_noise) for _ in range(draws)])

    return Trainer(step, score)


def headstart(task: Task, rows: Rows, rate: float) -> Trainer:
    """I-BLM, then its own step sizes: the rate is not used."""
    likelihood = hs.Categorical(rows.classes) if rows.classes else hs.Gaussian()
    model = hs.bayesianize(new_net(task, rows))
    hs.initialize_(model, "iblm", likelihood, rows.train)
    training = hs.steps(model, likelihood, rows.train, steps=10**9)

    def score(batch: Batch) -> Tensor:
        x, y = batch
        draws = hs.predict(model, likelihood, x, DRAWS).draws
        if rows.classes:
            return log_probs(draws, y, torch.zeros(1))
        loc, scale = likelihood.loc, likelihood.scale
        return log_probs(loc + scale * draws, y, likelihood.noise_var.detach().log())

    return Trainer(lambda batch: next(training), score)


def ensemble(task: Task, rows: Rows, rate: float) -> Trainer:
    """Five plain nets from starts of their own, a step of each in turn."""
    found = [by_descent(new_net(task, rows), rows, rate, lambda: 0.0, 1) for _ in range(MEMBERS)]

    def step(batch: Batch) -> None:
        for each in found:
            each.step(batch)

    return Trainer(step, lambda batch: torch.cat([each.score(batch) for each in found]))


def mc_dropout(task: Task, rows: Rows, rate: float) -> Trainer:
    """Units after every activation are dropped, in predictions too."""
    net = new_net(task, rows)
    for name, child in list(net.named_children()):
        if isinstance(child, nn.ReLU):
            setattr(net, name, nn.Sequential(child, nn.Dropout(DROPOUT)))
    return by_descent(net.train(), rows, rate, lambda: 0.0)


def bayesian_torch(task: Task, rows: Rows, rate: float) -> Trainer:
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

    net = new_net(task, rows)
    start = {"prior_mu": 0.0, "prior_sigma": 1.0, "posterior_mu_init": 0.0}
    kind = {"posterior_rho_init": -3.0, "type": "Reparameterization", "moped_enable": False}
    dnn_to_bnn(net, {**start, **kind})
    return by_descent(net, rows, rate, lambda: get_kl_loss(net))


def torchbnn(task: Task, rows: Rows, rate: float) -> Trainer:
    import torchbnn as bnn

    net = swapped(
        new_net(task, rows),
        lambda old: bnn.BayesLinear(0, 0.1, old.in_features, old.out_features),
        lambda old: bnn.BayesConv2d(0, 0.1, old.in_channels, old.out_channels, old.kernel_size),
    )
    kl = bnn.BKLLoss(reduction="sum")
    return by_descent(net, rows, rate, lambda: kl(net).squeeze())


def blitz(task: Task, rows: Rows, rate: float) -> Trainer:
    from blitz.losses import kl_divergence_from_nn
    from blitz.modules import BayesianConv2d, BayesianLinear

    net = swapped(
        new_net(task, rows),
        lambda old: BayesianLinear(old.in_features, old.out_features),
        lambda old: BayesianConv2d(old.in_channels, old.out_channels, old.kernel_size),
    )
    return by_descent(net, rows, rate, lambda: kl_divergence_from_nn(net))


def ivon(task: Task, rows: Rows, rate: float) -> Trainer:
    from ivon import IVON

    net, log_noise = new_net(task, rows), torch.zeros(rows.outputs, requires_grad=True)
    optimizer = IVON(net.parameters(), lr=rate, ess=len(rows.train[0]))
    adam = torch.optim.Adam([log_noise], 1e-2)

    def step(batch: Batch) -> None:
        x, y = batch
        with optimizer.sampled_params(train=True):
            optimizer.zero_grad()
            adam.zero_grad()
            (-log_probs(net(x), y, log_noise).mean()).backward()
        optimizer.step()
        if not rows.classes:
            adam.step()

    @torch.no_grad()
    def score(batch: Batch) -> Tensor:
        x, y = batch
        found = []
        for _ in range(DRAWS):
            with optimizer.sampled_params():
                found.append(log_probs(net(x), y, log_noise))
        return torch.stack(found)

    return Trainer(step, score)


@dataclass(frozen=True)
class Method:
    """A library: what makes its trainer, what pip installs, and the rates to try."""

    make: Callable[[Task, Rows, float], Trainer]
    package: str | None = None
    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    """The documented one first."""


METHODS = {
    "headstart": Method(headstart, rates=(0.0,)),
    "bayesian-torch": Method(bayesian_torch, "bayesian-torch"),
    "torchbnn": Method(torchbnn, "torchbnn", (1e-2, 3e-3, 1e-3)),
    "blitz": Method(blitz, "blitz-bayesian-pytorch"),
    "ivon": Method(ivon, "ivon-opt", (1e-1, 3e-2, 3e-1)),
    "MC dropout": Method(mc_dropout),
    "deep ensemble": Method(ensemble),
}
