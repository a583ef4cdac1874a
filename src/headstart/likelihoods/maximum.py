"""The parameters that a likelihood learns, at their most likely values."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headstart.likelihoods.base import Likelihood
from headstart.linalg.precision import in_double

MAX_ITERATIONS = 100


def maximize_(likelihood: Likelihood, f: Tensor, y: Tensor) -> None:
    """Set learned parameters to the maximum of the mean log-likelihood, by L-BFGS.

    They stay as they are where no step gains anything.

    Args:
        likelihood: the likelihood, whose parameters with `requires_grad` are overwritten.
        f: draws of the outputs, (S, N, K).
        y: labels as `check` returns them.
    """
    learned = [p for p in likelihood.parameters() if p.requires_grad]
    if not learned:
        return
    before = [p.detach().clone() for p in learned]
    f = in_double(f.detach())
    y = in_double(y) if y.is_floating_point() else y.to(f.device)
    optimizer = torch.optim.LBFGS(learned, max_iter=MAX_ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        value = -likelihood.log_prob(f, y).mean()
        for parameter, gradient in zip(learned, torch.autograd.grad(value, learned), strict=True):
            parameter.grad = gradient
        return value.detach()

    with torch.enable_grad():
        first, last = float(optimizer.step(loss)), float(loss())
    with torch.no_grad():
        for parameter, old in zip(learned, before, strict=True):
            parameter.grad = None
            if not (math.isfinite(last) and last <= first):
                parameter.copy_(old)
