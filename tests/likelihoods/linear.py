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
