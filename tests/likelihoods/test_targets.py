"""Regression targets of labels that are not numbers, and random features of labels."""

from __future__ import annotations

import math

import pytest
import torch

from headstart.likelihoods.targets import fourier_features, lognormal_match, random_codes

pytestmark = pytest.mark.usefixtures("float64")


def test_class_targets_match_the_moments_of_the_gamma() -> None:
    """A lognormal with mean of log t and variance v has the Gamma's own mean and variance."""
    shape = torch.tensor([0.01, 0.5, 1.01, 7.0])
    t, v = lognormal_match(shape)
    torch.testing.assert_close((t + v / 2).exp(), shape)
    torch.testing.assert_close(v.expm1() * (2 * t + v).exp(), shape)


def test_random_codes_tell_classes_apart_and_are_as_noisy_as_they_vary() -> None:
    t = torch.eye(3)[torch.randint(3, (40,))]
    features, noise = random_codes(t, 5)
    assert features.shape == (40, 5)
    # Rows of a class have one code, so there are as many codes as classes.
    assert len(features.unique(dim=0)) == len(t.unique(dim=0)) == 3
    torch.testing.assert_close(noise, features.var(0, correction=0).mean().expand(40, 1))


def test_fourier_features_are_bounded_and_their_noise_is_relative_to_the_spread() -> None:
    z = 5 + torch.tensor([2.0, 0.5]) * torch.randn(500, 2)
    features, noise = fourier_features(z, torch.tensor([0.4, 0.1]), 7)
    assert features.shape == (500, 7)
    assert float(features.abs().max()) <= math.sqrt(2)
    expected = (torch.tensor([0.4, 0.1]) / z.var(0, correction=0)).mean()
    torch.testing.assert_close(noise, expected.expand(500, 1))


def test_a_label_that_never_varies_counts_for_nothing_beside_one_that_does() -> None:
    z = torch.stack([torch.randn(500), torch.full((500,), 3.0)], 1)
    _, noise = fourier_features(z, torch.tensor([0.4, 0.1]), 7)
    torch.testing.assert_close(noise[0, 0], 0.4 / z[:, 0].var(correction=0))
