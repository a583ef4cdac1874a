"""The size of the noise that rows which a net has not seen find likeliest."""

from __future__ import annotations

import math

import pytest
import torch

import headstart as hs
from headstart.predictive import Predictive
from headstart.training import noise_factor as module
from headstart.training.labels import CountLabels, QuantityLabels
from headstart.training.learn import learn
from headstart.training.noise_factor import likeliest_noise_factor, with_noise_scaled
from headstart.training.recipe import Recipe

QUICK = Recipe(model="mlp-1x20", steps=60, samples=2, effort="quick", trees=False, noise="constant")


def held_out(sd: float, rows: int) -> tuple[Predictive, torch.Tensor]:
    """Predictions of noise 1 about 0, and errors whose mean square is sd² exactly."""
    errors = torch.randn(rows, generator=torch.Generator().manual_seed(0)).double()
    errors = sd * errors / errors.square().mean().sqrt()
    lik = hs.Gaussian(1.0).requires_grad_(False)
    return Predictive(torch.zeros(1, rows, 1).double(), lik), errors


def best_by_newton(sd: float, rows: int) -> float:
    """The maximum of −n log c − n sd²/(2 c²) − (log c)²/(2 s²), over u = log c."""
    u, precision = math.log(sd), 1 / module.PRIOR_SD**2
    for _ in range(100):
        pull = rows * sd**2 * math.exp(-2 * u)
        u -= (rows - pull + precision * u) / (2 * pull + precision)
    return u


@pytest.mark.parametrize("rows", [20, 200, 5000])
@pytest.mark.parametrize("sd", [0.7, 1.3])
def test_the_factor_is_the_maximum_of_likelihood_and_prior(sd: float, rows: int) -> None:
    found = math.log(likeliest_noise_factor([held_out(sd, rows)]))
    assert found == pytest.approx(best_by_newton(sd, rows), abs=1e-4)


def test_few_rows_say_little_and_parts_add_up() -> None:
    few, many = (likeliest_noise_factor([held_out(1.5, rows)]) for rows in (5, 5000))
    assert 1 < few < many < 1.5
    pred, y = held_out(1.5, 100)
    halves = [
        (Predictive(pred.draws[:, part], pred.likelihood), y[part])
        for part in (slice(0, 40), slice(40, 100))
    ]
    assert likeliest_noise_factor(halves) == pytest.approx(
        likeliest_noise_factor([(pred, y)]), abs=1e-6
    )


def test_predictions_stay_as_they_are_and_their_copy_is_wider() -> None:
    pred, _ = held_out(1.0, 10)
    wide = with_noise_scaled(pred, 3.0)
    assert torch.allclose(wide.std, torch.tensor(3.0).double())
    assert torch.allclose(pred.std, torch.tensor(1.0).double())


def test_the_recipe_gives_one_factor_to_the_net_and_to_those_of_the_folds() -> None:
    x = torch.randn(240, 3, generator=torch.Generator().manual_seed(0))
    y = x.sum(1) + 0.3 * torch.randn(240, generator=torch.Generator().manual_seed(1))
    found = learn(x, QuantityLabels(y.double()), QUICK)
    assert found.noise_factor != 1
    square = torch.tensor(found.noise_factor**2).double()
    assert torch.allclose(found.likelihood.predictive_ratio, square)
    for trial in found.trials:
        assert torch.allclose(trial.likelihood.predictive_ratio, square)
        assert trial.predicted is not None
        noise = trial.likelihood.noise_var * square
        assert torch.allclose(trial.predicted.aleatoric_std[:, 0], noise.sqrt())
        # Candidates are compared by the noise that training found.
        plain = with_noise_scaled(trial.predicted, 1 / found.noise_factor)
        assert torch.allclose(-plain.log_prob(y[trial.rows].double()), trial.nll, atol=1e-4)
    said = "times what training found" in " ".join(found.reasons)
    assert said == (round(found.noise_factor, 2) != 1)


def test_counts_keep_their_noise() -> None:
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    y = torch.poisson(3 * torch.ones(100), generator=torch.Generator().manual_seed(1)).double()
    found = learn(x, CountLabels(y), Recipe(steps=20, effort="quick", trees=False))
    assert found.noise_factor == 1


def test_training_goes_on_with_the_noise_of_the_bound() -> None:
    x = torch.randn(120, 2, generator=torch.Generator().manual_seed(0))
    found = learn(x, QuantityLabels(x.sum(1).double()), QUICK)
    hs.fit(found.model, found.likelihood, (x, x.sum(1)), steps=2)
    assert float(found.likelihood.predictive_ratio) == 1
