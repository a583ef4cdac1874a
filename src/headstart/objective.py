"""The negative evidence lower bound, right by default: the likelihood scaled to the data set, the KL summed and counted once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError, unknown
from headstart.likelihoods import Likelihood
from headstart.network.forward import check_outputs, forward
from headstart.network.layer import kl_and_moments
from headstart.posteriors import KnownMoments, Posterior

KLSchedule = Callable[[int, int], float]
"""The weight of the KL at a step out of a number of steps."""


class Nelbo(NamedTuple):
    """`value = nll + kl_weight · kl`; `nll` is scaled to the whole data set, `kl` is summed and unweighted.

    They share a graph: who goes backward through two of them one after the other keeps it (`retain_graph=True`).
    """

    value: Tensor
    nll: Tensor
    kl: Tensor


def nelbo(
    model: nn.Module,
    likelihood: Likelihood,
    x: Tensor,
    y: Any,
    *,
    num_data: int,
    samples: int = 16,
    kl_weight: float = 1.0,
    sampler: str = "local",
) -> Nelbo:
    """`(n/m) Σ_batch E_q[−log p(y|x,W)] + kl_weight · KL(q‖p)`, the expectation by `samples` draws.

    `num_data` is the number of rows of the whole training set, not of this batch. `kl_weight` is the temperature: 1 is the
    evidence lower bound, less is a colder, tempered posterior.

    Example:
        >>> import headstart as hs
        >>> model, lik = hs.bayesianize(nn.Linear(3, 1)), hs.Gaussian()
        >>> loss = hs.nelbo(model, lik, torch.randn(8, 3), torch.randn(8), num_data=100)
        >>> loss.value.backward()
    """
    divergence, moments = kl_and_moments(model)
    nll = expected_nll(
        model,
        likelihood,
        x,
        y,
        num_data=num_data,
        samples=samples,
        sampler=sampler,
        moments=moments,
    )
    return Nelbo(nll + kl_weight * divergence, nll, divergence)


def expected_nll(
    model: nn.Module,
    likelihood: Likelihood,
    x: Tensor,
    y: Any,
    *,
    num_data: int,
    samples: int = 16,
    sampler: str = "local",
    moments: Mapping[Posterior, KnownMoments] | None = None,
) -> Tensor:
    """`(n/m) Σ_batch E_q[−log p(y|x,W)]`: the likelihood's part of the NELBO."""
    if num_data < 1:
        raise HeadstartError(f"num_data is the number of training rows; it cannot be {num_data}.")
    f = check_outputs(forward(model, x, samples, sampler, averaged=True, moments=moments))
    y = likelihood.check(torch.as_tensor(y, device=f.device), f.shape[-1])
    if len(y) != f.shape[1]:
        raise HeadstartError(f"The net gave {f.shape[1]} rows for {len(y)} labels.")
    return likelihood.log_prob(f, y).sum() * (-num_data / (samples * len(y)))


def constant(step: int, steps: int) -> float:
    """The KL at full weight throughout."""
    return 1.0


def warmup(step: int, steps: int, share: float = 0.1) -> float:
    """From 0 to 1 in a straight line over the first tenth of the steps.

    Example:
        >>> warmup(0, 1000), warmup(50, 1000), warmup(500, 1000)
        (0.0, 0.5, 1.0)
    """
    return min(1.0, step / max(1.0, share * steps))


def sigmoid(
    step: int,
    steps: int,
    gamma: float = 0.1,
    alpha: float = 2e-3,
    beta: float = 2.5e4,
    horizon: float = 1e5,
) -> float:
    """The paper's policy for VGG16, `γ / (1 + exp(−α (step − β)))`, its clock scaled so that `horizon` steps become `steps`.

    Example:
        >>> round(sigmoid(25_000, 100_000), 3), round(sigmoid(250, 1000), 3)
        (0.05, 0.05)
    """
    clock = step * horizon / steps
    return gamma / (1 + math.exp(min(700.0, -alpha * (clock - beta))))


KL_SCHEDULES: dict[str, KLSchedule] = {"constant": constant, "warmup": warmup, "sigmoid": sigmoid}


def make_schedule(spec: str | KLSchedule) -> KLSchedule:
    """A schedule of the KL weight by name, or the caller's own function of (step, steps)."""
    if callable(spec):
        return spec
    if spec not in KL_SCHEDULES:
        raise unknown("KL schedule", spec, KL_SCHEDULES)
    return KL_SCHEDULES[spec]
