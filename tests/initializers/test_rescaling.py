"""The scale of what comes out of a layer: the noise of its weights."""

from __future__ import annotations

import pytest
import torch

import headstart as hs
from headstart.initializers.rescaling import noise_factor

pytestmark = pytest.mark.usefixtures("float64")


def test_units_that_say_nothing_are_not_silenced() -> None:
    """Units of constant inputs are all noise: they do not count, and no variance becomes zero."""
    assert noise_factor(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1.0]), 0.2) == 1.0
    assert noise_factor(torch.tensor([0.0, 1.0]), torch.tensor([5.0, 1.0]), 0.2) == pytest.approx(
        0.25
    )
    model = hs.bayesianize(hs.models.create("mlp-6x10", (3,), 2))
    hs.initialize_(
        model, "iblm", hs.Categorical(2), (torch.ones(9000, 3), torch.randint(2, (9000,))), seed=0
    )
    assert bool(torch.isfinite(hs.kl(model).detach()))
