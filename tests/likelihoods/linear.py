"""What several tests of likelihoods ask of I-BLM."""

from __future__ import annotations

import torch

import headstart as hs


def linear_truth(
    lik: hs.Likelihood, outputs: int, x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    """What I-BLM alone says of the coefficients (outputs, inputs + 1) of a linear predictor."""
    model = hs.bayesianize(torch.nn.Linear(x.shape[1], outputs), prior=100.0)
    hs.initialize_(model, "iblm", lik, (x, y))
    return model.posterior.mean.detach()


def start_and_end(
    net: torch.nn.Module, lik: hs.Likelihood, x: torch.Tensor, y: torch.Tensor, steps: int = 150
) -> tuple[float, float]:
    """The mean negative log-likelihood after I-BLM, and after training."""
    model = hs.bayesianize(net)
    hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    start = hs.evaluate(model, lik, (x, y), samples=32, seed=0)["mnll"]
    hs.fit(model, lik, (x, y), steps=steps, progress=False, seed=0)
    return start, hs.evaluate(model, lik, (x, y), samples=32, seed=0)["mnll"]
