"""Where a run starts: the initializer, then a fit of the likelihood that is the same for all."""

from __future__ import annotations

import copy
import time

import torch
from torch import nn

from headstart.experiments.prepare import PreparedData
from headstart.experiments.spec import Run
from headstart.inference import make_inference
from headstart.initializers import initialize_
from headstart.likelihoods import Likelihood
from headstart.predictive import predict

FIT_SAMPLES = 8
"""Draws of the net from which the likelihood is fitted."""


def start_run_(run: Run, model: nn.Module, likelihood: Likelihood, parts: PreparedData) -> float:
    """Initialize the model, then fit what the likelihood learns to its predictions.

    Whatever an initializer does to the likelihood itself is overwritten, so that all of them start
    with a noise that was fitted alike: `fit_noise=False` among the options of I-BLM leaves it out.

    Args:
        run: What the run asks for.
        model: The Bayesian net, overwritten.
        likelihood: Its likelihood, overwritten.
        parts: The data.

    Returns:
        The seconds that it took.
    """
    given = copy.deepcopy(likelihood.state_dict())
    report = initialize_(
        model, run.init, likelihood, parts.start, seed=run.seed, **run.init_options
    )
    begun = time.perf_counter()
    likelihood.load_state_dict(given)
    if run.init_options.get("fit_noise", True):
        fit_to_start_(run, model, likelihood, parts)
    return report.seconds + time.perf_counter() - begun


@torch.no_grad()
def fit_to_start_(run: Run, model: nn.Module, likelihood: Likelihood, parts: PreparedData) -> None:
    """Set what the likelihood learns to its best for the net as it is, on the first training rows.

    A noise variance is at most that of the labels: a start that is worse than a constant would
    otherwise call all of them noise, and training would leave it where it is.

    Args:
        run: What the run asks for.
        model: The Bayesian net.
        likelihood: Its likelihood, overwritten.
        parts: The data.
    """
    if not any(parameter.requires_grad for parameter in likelihood.parameters()):
        return
    x, y = (part.to(run.device) for part in parts.first)
    sampler = make_inference(run.method).test_sampler
    draws = predict(model, likelihood, x, FIT_SAMPLES, sampler=sampler, seed=run.seed).draws.to(y)
    labels = likelihood.check(y, draws.shape[-1])
    constant = copy.deepcopy(likelihood)
    # Labels are standardized: the constant is 0.
    constant.fit_(torch.zeros_like(draws), labels)
    likelihood.fit_(draws, labels)
    for parameter, limit in zip(likelihood.parameters(), constant.parameters(), strict=True):
        parameter.clamp_(max=limit)
