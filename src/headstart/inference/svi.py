"""Stochastic variational inference: gradient steps on the NELBO."""

from __future__ import annotations

import math
from contextlib import nullcontext
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from headstart.errors import unknown
from headstart.inference.base import (
    PAPER_LR,
    Inference,
    OptimizerChoice,
    likelihood_apart,
    trainable,
)
from headstart.inference.optimizers import make_optimizer
from headstart.kernels.adam import Adam
from headstart.kernels.random_state import kept_random_state
from headstart.likelihoods import Likelihood
from headstart.network.layer import bayesian_layers, count_members
from headstart.network.members import member
from headstart.objective import Nelbo
from headstart.training.averaged import Averaged
from headstart.training.step_sizes import (
    SPREAD_STEPS,
    VERSION,
    InputStatistics,
    Rates,
    choose_rates,
    measure_inputs,
    rates_at,
)


class SVI(Inference):
    """Gradient steps on the NELBO.

    The optimizer is `averaged`, which keeps a good start (`headstart.training.step_sizes`), or
    `adam`, the paper's protocol: Adam at a constant rate of 1e-3.

    Of a mixture they follow the sum of the members' NELBOs: the parameters of a member get the
    gradient of its own, whatever the number of members. What members share gets the sum.

    Args:
        sampler: "local" for the local reparameterization, or "weights".

    Example:
        >>> SVI("weights").sampler
        'weights'
    """

    averaged: Averaged | None
    name = "svi"
    optimizers = ("averaged", "adam")
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
        lr: float | None,
        clip: float | None,
        optimizer: OptimizerChoice = None,
    ) -> torch.optim.Optimizer:
        """Take a model to train.

        Args:
            model: a net from `bayesianize`.
            likelihood: p(y | f), trained along.
            num_data: the rows of the data set.
            samples: draws of the net for each step.
            lr: the learning rate; the likelihood's own is larger. None: chosen from the first
                batch by `averaged`, 1e-3 by `adam`.
            clip: the largest norm of a gradient; None: no bound.
            optimizer: `averaged`, `adam` or what makes an optimizer of groups of parameters; None:
                `averaged` where `lr` is None, else `adam`.

        Returns:
            The optimizer.

        Raises:
            HeadstartError: there is no such optimizer.
        """
        chosen = optimizer or ("averaged" if lr is None else "adam")
        if not callable(chosen) and chosen not in self.optimizers:
            raise unknown("optimizer", chosen, self.optimizers)
        self.model, self.likelihood, self.members = model, likelihood, count_members(model)
        # So that it bounds the root mean square of the members' norms.
        self.clip = None if clip is None else clip * math.sqrt(self.members)
        self.num_data, self.samples = num_data, samples
        self.averaged, self.unmeasured = None, lr is None
        if callable(chosen):
            self.optimizer = make_optimizer(chosen, model, likelihood, lr)
        elif chosen == "averaged":
            groups = _averaged_groups(model, likelihood)
            self.optimizer = self.averaged = Averaged(groups, lr=0.0, warmup=0)
            if lr is not None:
                self._set_rates(rates_at(lr))
        else:
            rate = PAPER_LR if lr is None else lr
            self.optimizer = Adam(likelihood_apart(model, likelihood, rate), lr=rate)
        return self.optimizer

    def _measure_(self, averaged: Averaged, x: Tensor) -> None:
        """Choose the step sizes by the reach of each layer on the first batch."""
        self.unmeasured = False
        reaches, seen = dict[str, list[float]](), dict[str, list[InputStatistics]]()
        for index in range(self.members):
            with kept_random_state(x), self.computing(x), member(self.model, index):
                found = measure_inputs(self.model, x)
            for name, inputs in found.items():
                # The same numbers on every rank, or their models would part.
                pooled = self._pooled(inputs, len(x))
                reaches.setdefault(name, []).append(pooled.reach)
                seen.setdefault(name, []).append(pooled)
        rates = choose_rates([fmean(each) for each in reaches.values()])
        for name, layer in bayesian_layers(self.model).items():
            if name in seen and layer.posterior.mean.requires_grad:
                _steer_(averaged, layer.posterior.mean, seen[name], rates.damped)
        self._set_rates(rates)

    def _pooled(self, inputs: InputStatistics, rows: int) -> InputStatistics:
        """What reaches a layer in the rows of all ranks."""
        parts = [part for part in (inputs.calls, inputs.mean) if part is not None]
        calls, *means = self.group.rows.weighted_means(parts, rows)
        # Directions have no mean over ranks: those of the first are near enough for all.
        directions, variances = self.group.broadcast((inputs.directions, inputs.variances))
        return InputStatistics(calls, means[0] if means else None, directions, variances)

    def load_state_(self, state: dict[str, Any]) -> None:
        """Go on from a `state`, which has the step sizes.

        Args:
            state: what `state` returned.
        """
        super().load_state_(state)
        if self.averaged is not None:
            self.averaged.check_state()
        self.unmeasured = False

    def identity(self) -> dict[str, Any]:
        """The optimizer, with the version of its constants."""
        if self.averaged is not None:
            return {"optimizer": f"averaged {VERSION}"}
        own = type(self.optimizer)
        return {"optimizer": "adam" if own is Adam else f"{own.__module__}.{own.__qualname__}"}

    def _set_rates(self, rates: Rates) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] = getattr(rates, group["rate"])
            group["warmup"] = rates.warmup if group["rate"] == "mean" else 0
            group["slow_after"] = SPREAD_STEPS if group["rate"] == "spread" else 0

    def update(self, x: Tensor, y: Tensor, kl_weight: float) -> Nelbo:
        """One step on one batch.

        Args:
            x: its inputs.
            y: its labels.
            kl_weight: the weight of the KL.
        """
        if self.averaged is not None and self.unmeasured:
            self._measure_(self.averaged, x)
        self.optimizer.zero_grad()
        with nullcontext() if self.averaged is None else self.averaged.look_ahead():
            loss = self.loss(x, y, kl_weight)
            (loss.value if self.members == 1 else self.members * loss.value).backward()
        # The one place of a step that waits for the device.
        loss = self.pool_(loss, len(x)).on_host()
        # Else the loop will say so; the parameters stay as they were, but for rounding.
        if math.isfinite(float(loss.value)):
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(trainable(self.model, self.likelihood), self.clip)
            self.optimizer.step()
        return loss


def _steer_(
    averaged: Averaged, weights: nn.Parameter, members: list[InputStatistics], damped: bool
) -> None:
    """Tell the optimizer what the inputs of a layer are like, of each member in turn."""
    means = [inputs.mean for inputs in members if inputs.mean is not None]
    if means:
        averaged.center_(weights, torch.cat(means))
    directions = [inputs.directions for inputs in members if inputs.directions is not None]
    damping = [inputs.damping for inputs in members if inputs.damping is not None]
    if damped and directions:
        averaged.damp_(weights, torch.stack(directions), torch.stack(damping))


def _averaged_groups(model: nn.Module, likelihood: Likelihood) -> list[dict[str, Any]]:
    """Groups for `Averaged`, each with the name of its rate in `Rates`."""
    layers = bayesian_layers(model).values()
    means = {id(layer.posterior.mean) for layer in layers}
    of_layers = [
        p for layer in layers for p in (*layer.posterior.parameters(), *layer.prior.parameters())
    ]
    spreads = {id(p) for p in of_layers} - means
    groups = (
        ("mean", [p for p in trainable(model) if id(p) not in spreads]),
        ("spread", [p for p in trainable(model) if id(p) in spreads]),
        ("likelihood", trainable(likelihood)),
    )
    return [{"params": params, "rate": rate} for rate, params in groups if params]
