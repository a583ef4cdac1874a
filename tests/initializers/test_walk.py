"""The walk over layers: their order, and no more of a pass than it takes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import headstart as hs
from headstart.initializers.walk import execution_order, layer_inputs
from tests.initializers.samples import data


def test_the_order_is_that_of_execution_and_unused_layers_are_left() -> None:
    class Reversed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.unused, self.body = nn.Linear(6, 3), nn.Linear(9, 9), nn.Linear(4, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x).relu())

    model = hs.bayesianize(Reversed())
    before = model.unused.posterior.mean.clone()
    assert list(execution_order(model, torch.randn(2, 4))) == ["body", "head"]
    report = hs.initialize_(model, "iblm", hs.Categorical(3), data())
    assert [layer.name for layer in report.layers] == ["body", "head", "unused"]
    assert torch.equal(before, model.unused.posterior.mean)


def test_the_walk_stops_at_the_layer_it_needs() -> None:
    calls: list[str] = []

    class Loud(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            calls.append("after")
            return x

    model = hs.bayesianize(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), Loud(), nn.Linear(4, 2))
    )
    (inputs,) = layer_inputs(model, model[2], torch.randn(5, 4))
    assert inputs.shape == (5, 4)
    assert calls == []
    assert not model[2]._forward_pre_hooks
