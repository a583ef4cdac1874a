"""Initializers without data: the rules of the paper."""

from __future__ import annotations

import torch
from torch import nn

import headstart as hs


def test_the_rules_of_the_paper() -> None:
    # The fan-in is 2·6 = 12, the fan-out 3·6 = 18.
    model = hs.bayesianize(nn.Conv2d(4, 6, (2, 3), groups=2))
    for name, var in (
        ("uninformative", 1.0),
        ("heuristic", 1 / 12),
        ("xavier", 2 / 30),
        ("orthogonal", 1 / 12),
    ):
        hs.initialize_(model, name)
        torch.testing.assert_close(model.posterior.variance(), torch.full((6, 13), var))
        if name == "orthogonal":
            weights = model.posterior.mean[:, :12]
            torch.testing.assert_close(weights @ weights.T, torch.eye(6), atol=1e-5, rtol=0)
            assert not model.posterior.mean[:, 12].any()
        else:
            assert not model.posterior.mean.any()
