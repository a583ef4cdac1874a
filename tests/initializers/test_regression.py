"""The regressions of a hidden layer: targets, mixtures, evidence, noise."""

from __future__ import annotations

import pytest
import torch

import headstart as hs
from headstart.initializers.certainty import effective_rows
from headstart.initializers.regression import (
    draw_input_fractions,
    mix_with_inputs,
    noise_factor,
    unit_targets,
)
from headstart.initializers.settings import IBLMSettings
from tests.initializers.samples import regression

pytestmark = pytest.mark.usefixtures("float64")


def test_standardized_targets_take_their_noise_along() -> None:
    _, y = regression(500)
    t, v = unit_targets(
        hs.Gaussian(0.2), 3 * y, torch.arange(4), IBLMSettings(targets="label"), own_class=False
    )
    torch.testing.assert_close(t.std(0, correction=0), torch.ones(4))
    torch.testing.assert_close(t.mean(0), torch.zeros(4), atol=1e-12, rtol=0)
    torch.testing.assert_close(v, torch.full_like(v, 0.2 / float((3 * y).var(correction=0))))


def test_class_codes_are_as_noisy_as_they_vary() -> None:
    y = torch.randint(4, (50,))
    for lik, labels in ((hs.Categorical(4), y), (hs.Bernoulli(), y % 2)):
        t, v = unit_targets(lik, labels, torch.arange(6), IBLMSettings(), own_class=False)
        torch.testing.assert_close(v, torch.ones_like(v))
        torch.testing.assert_close(t.var(0, correction=0), torch.ones(6))


def test_mixing_keeps_variance_one_and_goes_from_labels_to_inputs() -> None:
    x, t = torch.randn(20_000, 5), torch.randn(20_000, 40)
    t = (t - t.mean(0)) / t.std(0)
    fractions = draw_input_fractions(40, 0.98)
    mixed = mix_with_inputs(t, x, fractions)
    torch.testing.assert_close(mixed.std(0), torch.ones(40), atol=0.03, rtol=0)
    label_part = (mixed * t).mean(0)
    torch.testing.assert_close(label_part, (1 - fractions**2).sqrt().to(t), atol=0.03, rtol=0)
    assert torch.equal(mix_with_inputs(t, x, draw_input_fractions(40, 0.0)), t)


def test_fractions_of_the_inputs_are_even_in_variance() -> None:
    fractions = draw_input_fractions(40, 0.98)
    torch.testing.assert_close(
        fractions.square().sort().values, 0.98**2 * (torch.arange(40) + 0.5).double() / 40
    )
    # A unit alone is neither all labels nor all inputs.
    assert 0 < float(draw_input_fractions(1, 0.98)) < 0.98


def test_how_much_evidence_counts() -> None:
    # A hundred weights take all these rows.
    assert effective_rows(10_000, 60_000, size=100, noise_var=1.0) == 10_000
    # A wider unit counts fewer.
    assert effective_rows(10_000, 60_000, size=400, noise_var=1.0) == 5000
    # No more rows count than there are.
    assert effective_rows(10_000, 9000, size=100, noise_var=1.0) == 9000
    # Of few rows with noisy targets a tenth counts.
    assert effective_rows(10_000, 800, size=100, noise_var=1.0) == 80
    assert effective_rows(10_000, 800, size=100, noise_var=0.2) == 800


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
