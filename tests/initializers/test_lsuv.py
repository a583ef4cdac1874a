"""LSUV: the mean network has outputs of variance 1."""

from __future__ import annotations

import pytest
import torch

import headstart as hs
from headstart.initializers.walk import execution_order, layer_inputs
from headstart.linalg.affine import affine, split


def test_lsuv_gives_the_mean_network_unit_variance_in_every_layer() -> None:
    model = hs.bayesianize(hs.models.create("mlp-4x50", 10, 3))
    x = 3 * torch.randn(500, 10) + 1
    hs.initialize_(model, "lsuv", batches=(x, torch.zeros(500)), tolerance=0.01)
    with torch.no_grad():
        for layer in execution_order(model, x[:2]).values():
            out = affine(
                layer.op,
                layer_inputs(model, layer, x, sampler="mean")[0],
                *split(layer.op, layer.posterior.mean),
            )
            assert float(out.var()) == pytest.approx(1, abs=0.01)
            torch.testing.assert_close(
                layer.posterior.variance(), torch.full_like(layer.posterior.mean, 1 / layer.fan_in)
            )
