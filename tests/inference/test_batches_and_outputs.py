"""Every inference method takes several inputs, positions, heads and weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs

ROWS = 30
METHODS: dict[str, Any] = {"svi": hs.SVI, "mc-dropout": hs.MCDropout, "noisy-kfac": hs.NoisyKFAC}


class TwoInputs(nn.Module):
    """Words with places, of which each has two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.tag, self.size = nn.Linear(5, 8), nn.Linear(8, 2), nn.Linear(8, 1)

    def forward(self, x: Tensor, extra: Tensor) -> dict[str, Tensor]:
        h = self.body(torch.cat([x, extra], -1)).tanh()
        return {"tag": self.tag(h), "size": self.size(h.mean(1))}


@pytest.mark.parametrize("name", METHODS)
def test_a_step_takes_dictionaries_heads_positions_and_weights(name: str) -> None:
    torch.manual_seed(0)
    x, extra = torch.randn(ROWS, 4, 3), torch.randn(ROWS, 4, 2)
    labels = {"tag": (x[..., 0] > 0).long(), "size": x.mean((1, 2))}
    method = METHODS[name]()
    model = method.convert(TwoInputs())
    lik = hs.Joint({"tag": hs.PerPosition(hs.Categorical(2)), "size": hs.Gaussian()})
    data = ({"x": x, "extra": extra}, labels)
    start = hs.evaluate(model, lik, data, samples=16, seed=0)["mnll"]
    hs.fit(model, lik, data, steps=60, inference=method, progress=False, seed=0)
    assert hs.evaluate(model, lik, data, samples=16, seed=0)["mnll"] < start


@pytest.mark.parametrize("name", METHODS)
def test_a_step_takes_weights(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(ROWS, 3)
    data = {"input": x, "labels": x.sum(1), "sample_weight": torch.rand(ROWS)}
    method = METHODS[name]()
    # A layer that is the whole net is called by name; MC dropout leaves the last one as it is.
    net = nn.Linear(3, 1)
    model = method.convert(nn.Sequential(nn.Linear(3, 3), net) if name == "mc-dropout" else net)
    lik = hs.Weighted(hs.Gaussian())
    history = hs.fit(model, lik, data, steps=5, inference=method, progress=False, seed=0)
    assert len(history.steps) == 5
