"""The scale of what comes out of a layer: the noise of its weights."""

from __future__ import annotations

import pytest
import torch

import headstart as hs
from headstart.initializers import rescaling
from headstart.initializers.rescaling import noise_factor, normalizing

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


def test_units_get_variance_one_whatever_is_summed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scale and shift are those of all positions of all calls together, written out."""
    layer = hs.bayesianize(torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3)))[0]
    calls = [torch.randn(5, 2, 6, 6), 3 + torch.randn(4, 2, 6, 6)]
    moments = [rescaling.local_moments(layer.op, layer.posterior, call) for call in calls]
    mean, var = (
        torch.cat([part.movedim(1, -1).flatten(0, -2) for part in parts])
        for parts in zip(*moments, strict=True)
    )
    expected = (mean.var(0, correction=0) + var.mean(0)).rsqrt()
    for numbers in (1, 100, 2**18):
        monkeypatch.setattr(rescaling, "NUMBERS_AT_ONCE", numbers)
        scale, shift, factor = normalizing(layer, calls, 0.0, 1.0)
        assert factor == 1
        torch.testing.assert_close(scale[:, 0], expected, rtol=1e-12, atol=0)
        torch.testing.assert_close(shift[:, -1], -expected * mean.mean(0), rtol=1e-12, atol=1e-12)
        assert not shift[:, :-1].any()
