"""Waves of features, by hand and in nets by name."""

from __future__ import annotations

import math

import torch

from headstart.models import create, names_mlp
from headstart.models.mlp import Periodic


def test_waves_stand_before_the_features() -> None:
    torch.manual_seed(0)
    layer, x = Periodic(2, 3).double(), torch.randn(5, 4, dtype=torch.float64)
    found = layer(x)
    assert found.shape == (5, 16)
    for row in range(5):
        angles = [
            2 * math.pi * float(x[row, j] * layer.frequencies[j, k])
            for j in range(2)
            for k in range(3)
        ]
        waves = torch.tensor([*map(math.sin, angles), *map(math.cos, angles)], dtype=x.dtype)
        torch.testing.assert_close(found[row, :12], waves, rtol=1e-12, atol=1e-12)
    assert torch.equal(found[:, 12:], x)


def test_a_name_says_how_many_waves_and_which_features_have_none() -> None:
    net = create("mlp-1x20-tanh-periodic3-skip1", 5, 2)
    assert net[1].frequencies.shape == (4, 3)
    assert (net[2].in_features, net[-1].in_features) == (5 + 2 * 4 * 3, 21)
    assert net(torch.randn(7, 5)).shape == (7, 2)
    assert create("mlp-0x1-periodic2", 3, 1)[-1].in_features == 3 + 2 * 3 * 2
    assert names_mlp("mlp-2x100-periodic4")
    assert not names_mlp("mlp-2x100-skip1-periodic4")


def test_frequencies_are_small_and_saved_with_the_net() -> None:
    torch.manual_seed(0)
    net = create("mlp-1x5-periodic50", 40, 1)
    spread = net[1].frequencies.std()
    assert abs(float(spread) - 0.1) < 4 * 0.1 / math.sqrt(2 * 2000)
    other = create("mlp-1x5-periodic50", 40, 1)
    other.load_state_dict(net.state_dict())
    x = torch.randn(3, 40)
    assert torch.equal(other(x), net(x))


def test_a_net_without_waves_is_the_one_it_was() -> None:
    torch.manual_seed(3)
    net = create("mlp-2x4", 3, 1)
    torch.manual_seed(3)
    first = torch.nn.Linear(3, 4)
    assert len(net) == 6
    assert torch.equal(net[1].weight, first.weight)
