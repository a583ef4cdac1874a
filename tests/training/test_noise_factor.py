"""The size of the noise that rows which a net has not seen find likeliest."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import headstart as hs
from headstart.predictive import Predictive
from headstart.training import noise_factor as module
from headstart.training.labels import CountLabels, QuantityLabels
from headstart.training.learn import learn
from headstart.training.noise_factor import HeldOut, likeliest_noise_factor, with_noise_scaled
from headstart.training.recipe import Recipe
from headstart.training.weights import scaled_weights

QUICK = Recipe(model="mlp-1x20", steps=60, samples=2, effort="quick", trees=False, noise="constant")


def held_out(sd: float, rows: int, counts: torch.Tensor | None = None) -> HeldOut:
    """Predictions of noise 1 about 0, and errors whose mean square is sd² exactly."""
    errors = torch.randn(rows, generator=torch.Generator().manual_seed(0)).double()
    errors = sd * errors / errors.square().mean().sqrt()
    lik = hs.Gaussian(1.0).requires_grad_(False)
    return HeldOut(Predictive(torch.zeros(1, rows, 1).double(), lik), errors, counts)


def some_of(part: HeldOut, rows: slice) -> HeldOut:
    pred = Predictive(part.predicted.draws[:, rows], part.predicted.likelihood)
    return HeldOut(pred, part.y[rows], None if part.counts is None else part.counts[rows])


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
    few, many = (float(likeliest_noise_factor([held_out(1.5, rows)])) for rows in (5, 5000))
    assert 1 < few < many < 1.5
    whole = held_out(1.5, 100)
    halves = [some_of(whole, part) for part in (slice(0, 40), slice(40, 100))]
    one, two = (float(likeliest_noise_factor(parts)) for parts in (halves, [whole]))
    assert one == pytest.approx(two, abs=1e-6)


def test_rows_count_by_their_weights() -> None:
    counts = torch.tensor([0.0, 1.0, 2.0]).repeat(40).double()
    found = likeliest_noise_factor([held_out(1.4, 120, counts)])
    plain = held_out(1.4, 120)
    repeated = plain.y.repeat_interleave(counts.long())
    pred = Predictive(torch.zeros(1, len(repeated), 1).double(), plain.predicted.likelihood)
    assert float(found) == pytest.approx(
        float(likeliest_noise_factor([HeldOut(pred, repeated)])), abs=1e-6
    )
    nothing = held_out(1.4, 120, torch.zeros(120).double())
    assert float(likeliest_noise_factor([nothing])) == pytest.approx(1.0, abs=1e-4)


def test_each_target_has_a_factor_of_its_own() -> None:
    """Where targets are independent given one draw, it is that of the target alone."""
    parts = [held_out(sd, 300) for sd in (0.5, 1.6)]
    lik = hs.Gaussian([1.0, 1.0]).requires_grad_(False)
    both = HeldOut(
        Predictive(torch.zeros(1, 300, 2).double(), lik), torch.stack([p.y for p in parts], 1)
    )
    found = likeliest_noise_factor([both])
    alone = torch.stack([likeliest_noise_factor([part]) for part in parts])
    assert torch.allclose(found, alone, atol=1e-4)
    scaled = with_noise_scaled(both.predicted, found)
    assert torch.allclose(scaled.std, alone.expand(300, 2), atol=1e-4)


def test_predictions_stay_as_they_are_and_their_copy_is_wider() -> None:
    pred = held_out(1.0, 10).predicted
    wide = with_noise_scaled(pred, 3.0)
    assert torch.allclose(wide.std, torch.tensor(3.0).double())
    assert torch.allclose(pred.std, torch.tensor(1.0).double())


def some_rows(noise: float = 0.3) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(240, 3, generator=torch.Generator().manual_seed(0))
    errors = torch.randn(240, generator=torch.Generator().manual_seed(1))
    return x, (x.sum(1) + noise * errors).double()


def test_the_net_has_the_factor_of_all_folds_and_each_fold_that_of_the_others() -> None:
    x, y = some_rows()
    found = learn(x, QuantityLabels(y), replace(QUICK, folds=3))
    assert len(found.trials) == 3
    assert float(found.noise_factor) != 1
    assert torch.allclose(found.likelihood.predictive_ratio, found.noise_factor**2)
    plain = []
    for trial in found.trials:
        own = trial.likelihood.predictive_ratio.sqrt()
        assert trial.predicted is not None
        noise = trial.likelihood.noise_var * own**2
        assert torch.allclose(trial.predicted.aleatoric_std[:, 0], noise.sqrt())
        # Candidates are compared by the noise that training found.
        pred = with_noise_scaled(trial.predicted, 1 / float(own))
        assert torch.allclose(-pred.log_prob(y[trial.rows]), trial.nll, atol=1e-4)
        plain.append(HeldOut(pred, y[trial.rows]))
    for trial, part in zip(found.trials, plain, strict=True):
        others = likeliest_noise_factor([other for other in plain if other is not part])
        assert torch.allclose(trial.likelihood.predictive_ratio, others**2, rtol=1e-4)
    assert torch.allclose(found.noise_factor, likeliest_noise_factor(plain), rtol=1e-4)
    said = "times what training found" in " ".join(found.reasons)
    assert said == (round(float(found.noise_factor), 2) != 1)


def test_the_recipe_counts_rows_by_their_weights() -> None:
    x, y = some_rows()
    weights = torch.ones(240).double()
    weights[::3] = 0.0
    wrong = torch.where(weights == 0, y + 3, y)
    found = learn(x, QuantityLabels(wrong), QUICK, weights=weights)
    (trial,) = found.trials
    assert trial.predicted is not None
    plain = with_noise_scaled(trial.predicted, 1 / float(found.noise_factor))
    counts = scaled_weights(weights, 240)[trial.rows]
    assert 0 < int((counts == 0).sum()) < len(counts)
    expected = likeliest_noise_factor([HeldOut(plain, wrong[trial.rows], counts)])
    assert torch.allclose(found.noise_factor, expected, rtol=1e-4)
    # Rows that do not count are far from what is predicted.
    all_alike = likeliest_noise_factor([HeldOut(plain, wrong[trial.rows])])
    assert float(all_alike) > 1.2 * float(expected)


def test_of_several_targets_the_words_name_each() -> None:
    x, y = some_rows()
    found = learn(x, QuantityLabels(torch.stack([y, y.flip(0)], 1)), QUICK)
    assert found.noise_factor.shape == (2,)
    assert any("one factor for each target" in sentence for sentence in found.reasons)


@pytest.mark.parametrize(("noise", "has"), [("constant", False), ("student-t", True)])
def test_a_read_out_that_is_solved_keeps_its_noise(noise: str, has: bool) -> None:
    x, y = some_rows()
    found = learn(x, QuantityLabels(y), replace(QUICK, noise=noise, refine=True))
    assert (float(found.noise_factor) != 1) == has


def test_counts_keep_their_noise() -> None:
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    y = torch.poisson(3 * torch.ones(100), generator=torch.Generator().manual_seed(1)).double()
    found = learn(x, CountLabels(y), Recipe(steps=20, effort="quick", trees=False))
    assert found.noise_factor == 1


def test_training_goes_on_with_the_noise_of_the_bound() -> None:
    x, y = some_rows()
    found = learn(x, QuantityLabels(y), QUICK)
    before = found.likelihood.predictive_ratio
    with pytest.raises(hs.HeadstartError):
        hs.fit(found.model, found.likelihood, (x[:3], y), steps=2)
    assert torch.equal(found.likelihood.predictive_ratio, before)
    hs.fit(found.model, found.likelihood, (x, y), steps=2)
    assert float(found.likelihood.predictive_ratio) == 1
