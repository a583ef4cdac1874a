"""What the recipe chooses by held-out rows, and what it leaves."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import headstart as hs
from headstart.errors import HeadstartError
from headstart.likelihoods import Power
from headstart.likelihoods.power import likeliest_power
from headstart.predictive import Predictive
from headstart.training.labels import (
    ClassLabels,
    CountLabels,
    QuantityLabels,
    number_labels,
)
from headstart.training.learn import learn
from headstart.training.noise_factor import with_noise_scaled
from headstart.training.recipe import Recipe
from headstart.training.trial import Trial

QUICK = Recipe(model="mlp-1x20", steps=100, samples=2, effort="quick")


def rows(count: int = 300, features: int = 3) -> Tensor:
    return torch.randn(count, features, generator=torch.Generator().manual_seed(0))


def noise(count: int = 300) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(1))


def steps_of(x: Tensor) -> Tensor:
    """A function that trees learn at once and a net hardly."""
    return ((x[:, 0] > 0.3).double() * 2 - (x[:, 1] > -0.5) * 1.5) * (x[:, 2] > 0)


def as_trained(trial: Trial) -> Predictive:
    """What a trial predicts with the noise that training found."""
    lik = trial.likelihood
    ratio = getattr(lik, "base", lik).predictive_ratio
    assert trial.predicted is not None
    return with_noise_scaled(trial.predicted, ratio.rsqrt())


def test_trees_are_chosen_where_they_are_better() -> None:
    x = rows()
    found = learn(x, QuantityLabels(steps_of(x) + 0.05 * noise()), QUICK)
    assert found.recipe.trees
    assert found.trees is not None
    assert "neural network on top of boosted trees" in found.reasons[0]
    assert found.tried[0]["kind"] == "neural network on top of boosted trees"
    left = [sentence for sentence in found.reasons if "Also tried: neural network, " in sentence]
    assert any(" +" in sentence and "(standard error 0." in sentence for sentence in left)
    line = Recipe(model="mlp-0x1", steps=300, samples=4, effort="quick", noise="constant")
    plain = learn(x, QuantityLabels(3 * x.sum(1).double() + 0.1 * noise()), line)
    assert not plain.recipe.trees
    assert plain.trees is None


def test_noise_that_varies_is_chosen_where_it_does() -> None:
    x = rows()
    spread = torch.where(x[:, 0] > 0, 1.0, 0.02)
    recipe = Recipe(model="mlp-1x20", steps=300, samples=4, effort="quick", trees=False)
    found = learn(x, QuantityLabels((x[:, 1] + spread * noise()).double()), recipe)
    assert found.recipe.noise == "varying"
    high = found.likelihood.log_var_range[1]
    far = found.likelihood.variance(torch.tensor([[0.0, 14.0]])).sqrt()
    assert high < 14
    assert float(far) == pytest.approx(math.exp(high / 2) * float(found.likelihood.scale[0]))


def test_every_row_is_held_out_once_and_learned_from_in_the_end() -> None:
    x = rows(60)
    recipe = Recipe(model="mlp-1x8", steps=20, samples=2, trees=False, noise="constant")
    found = learn(x, QuantityLabels(x.sum(1).double()), recipe)
    assert sorted(found.validation.tolist()) == list(range(60))
    assert len(found.trials) == 3
    assert len(found.train) == 60
    assert "3-fold cross-validation" in found.reasons[0]
    assert any(sentence.startswith("Trained on 60 rows") for sentence in found.reasons)
    steps = [trial.history.best_step or 0 for trial in found.trials]
    assert len(found.history.steps) == round(sum(steps) / 3)


def test_likelihoods_of_held_out_rows_are_in_the_units_of_the_labels() -> None:
    x = rows(100)
    y = 1e6 + 1e3 * (x.sum(1).double() + 0.1 * noise(100))
    found = learn(x, QuantityLabels(y), Recipe(model="mlp-1x8", steps=20, effort="quick"))
    (held, predicted), *_ = found.held_out
    # Candidates are compared by the noise that training found, predictions have that of these rows.
    nll = -as_trained(found.trials[0]).log_prob(y[held])
    torch.testing.assert_close(nll, found.trials[0].nll, atol=1e-3, rtol=0)
    trained = float(found.trials[0].nll.mean())
    assert found.tried[0]["nll"] == pytest.approx(trained, abs=1e-3)
    scored = -float(predicted.log_prob(y[held]).mean())
    assert found.scores["mnll"] == pytest.approx(scored, abs=1e-3)
    assert scored < trained


def test_the_net_predicts_with_the_trees() -> None:
    x = rows()
    y = steps_of(x)
    found = learn(x, QuantityLabels(y), QUICK)
    assert found.trees is not None
    inputs = torch.from_numpy(found.trees.extend(x.numpy()))
    predicted = hs.predict(found.model, found.likelihood, inputs, 32, seed=0)
    trees_alone = float(y.std()) * np.asarray(found.trees.features(x.numpy()))[:, 0]
    trees_alone = trees_alone + float(y.mean())
    error = float((predicted.mean[:, 0] - y).square().mean().sqrt())
    assert error < 1.2 * float(np.sqrt(((trees_alone - y.numpy()) ** 2).mean())) + 0.02


def test_counts_are_told_by_their_looks() -> None:
    visits = torch.poisson(torch.full((200,), 6.0), generator=torch.Generator().manual_seed(0))
    assert isinstance(number_labels(visits.double()), CountLabels)
    assert isinstance(number_labels(visits.double() + 100), QuantityLabels)
    assert isinstance(number_labels(visits.double() - 1), QuantityLabels)
    assert isinstance(number_labels(visits.double() / 2), QuantityLabels)
    assert isinstance(number_labels(visits.double(), "constant"), QuantityLabels)
    assert isinstance(number_labels((visits > 6).double(), "poisson"), CountLabels)


def test_intervals_of_counts_reach_no_lower_than_zero() -> None:
    x = rows()
    y = torch.poisson((0.5 * x[:, 0]).exp() * 3, generator=torch.Generator().manual_seed(0))
    labels = number_labels(y.double())
    found = learn(x, labels, QUICK)
    assert found.recipe.noise in ("poisson", "negative-binomial")
    (_, predicted), *_ = found.held_out
    low, high = predicted.interval(0.95)
    assert float(low.min()) >= 0
    assert bool((low == low.round()).all())
    assert bool((high >= low).all())


def test_classes_with_trees() -> None:
    x = rows()
    y = (steps_of(x) > 0).long() + (x[:, 0] > 1).long()
    found = learn(x, ClassLabels(y, 3), QUICK)
    assert found.recipe.noise == "categorical"
    if found.trees is not None:
        assert found.trees.outputs == 3
    assert found.scores["error"] < 0.2


def test_a_noise_model_of_other_labels_is_refused() -> None:
    x = rows(40)
    with pytest.raises(hs.HeadstartError, match=r"There is no noise 'variyng'.*'varying'"):
        learn(x, QuantityLabels(x.sum(1).double()), Recipe(noise="variyng"))


def test_groups_are_held_out_whole() -> None:
    x = rows(90)
    groups = np.repeat(np.arange(15), 6)
    recipe = Recipe(model="mlp-1x8", steps=10, samples=2, noise="constant")
    found = learn(x, QuantityLabels(x.sum(1).double()), recipe, groups=groups)
    for trial in found.trials:
        held = set(groups[trial.rows.numpy()])
        rest = set(groups) - held
        assert len(held) + len(rest) == 15
        assert sum(int((groups == group).sum()) for group in held) == len(trial.rows)


def test_of_rows_in_time_the_last_are_held_out() -> None:
    x = rows(100)
    recipe = Recipe(model="mlp-1x8", steps=10, samples=2, trees=False, noise="constant")
    found = learn(x, QuantityLabels(x.sum(1).double()), recipe, ordered=True)
    assert found.validation.tolist() == list(range(90, 100))


def test_a_fit_that_was_stopped_goes_on_to_the_same_net(tmp_path: Path) -> None:
    x = rows(100)
    labels = QuantityLabels(x.sum(1).double())
    whole = learn(x, labels, QUICK)
    again = [learn(x, labels, QUICK, checkpoint=tmp_path / "c") for _ in range(2)]
    for found in again:
        for one, other in zip(whole.model.parameters(), found.model.parameters(), strict=True):
            torch.testing.assert_close(one, other, atol=0, rtol=0)
    # The second call only takes up what the first one left.
    assert again[1].reasons == whole.reasons


@pytest.mark.slow
def test_a_time_limit_holds_for_all_trainings_together() -> None:
    x = rows(900)
    begun = time.process_time()
    learn(x, QuantityLabels(steps_of(x) + 0.1 * noise(900)), Recipe(time_limit=25, steps=10**6))
    assert time.process_time() - begun < 1.1 * 25


def test_a_positive_skewed_target_is_learned_on_another_scale() -> None:
    x = rows()
    y = (x[:, 0] + 0.5 * x[:, 1] + 0.3 * noise()).double().exp() * 100
    recipe = Recipe(model="mlp-1x8", steps=60, samples=2, folds=1, trees=False)
    found = learn(x, QuantityLabels(y), recipe)
    assert found.recipe.noise in ("power", "power-varying")
    assert {entry["noise"] for entry in found.tried} >= {"constant", "varying", "power"}
    (held, predicted), *_ = found.held_out
    nll = -as_trained(found.trials[0]).log_prob(y[held])
    torch.testing.assert_close(nll, found.trials[0].nll, atol=1e-3, rtol=0)
    assert float(predicted.interval(0.95)[0].min()) >= 0
    assert "power" not in QuantityLabels(y - 1000).noises


def test_a_linear_model_on_trees_is_a_candidate() -> None:
    x = rows()
    recipe = Recipe(steps=60, samples=2, folds=1, noise="constant", trees=True)
    found = learn(x, QuantityLabels(steps_of(x) + 0.3 * noise()), recipe)
    kinds = {entry["kind"] for entry in found.tried}
    assert kinds == {
        "neural network on top of boosted trees",
        "linear model on top of boosted trees",
    }
    linear = "linear" in found.reasons[0]
    assert (found.recipe.model == "mlp-0x1") == linear
    assert found.trees is not None
    inputs = torch.from_numpy(found.trees.extend(x.numpy()))
    assert hs.predict(found.model, found.likelihood, inputs, 4, seed=0).mean.shape == (300, 1)


def test_a_linear_table_is_learned_by_a_linear_model() -> None:
    x = rows()
    y = x.double() @ torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)[: x.shape[1]]
    recipe = Recipe(steps=100, samples=2, folds=1, noise="constant", trees=False)
    found = learn(x, QuantityLabels(y + 0.3 * noise().double()), recipe)
    assert {entry["kind"] for entry in found.tried} == {"neural network", "linear model"}
    assert found.recipe.model == "mlp-0x1"
    assert found.reasons[0].startswith("Selected: linear model, ")
    quick = learn(x, QuantityLabels(y), Recipe(steps=5, noise="constant", effort="quick"))
    assert "linear" not in str(quick.tried)


def test_a_class_of_two_rows_is_learned_without_trees() -> None:
    x = torch.randn(120, 2, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0] * 60 + [1] * 58 + [2] * 2)
    quick = Recipe(model="mlp-1x8", steps=5, samples=2, folds=3)
    found = learn(x, ClassLabels(y, 3), quick)
    assert found.trees is None
    with pytest.raises(HeadstartError, match="There can be no trees here"):
        learn(x, ClassLabels(y, 3), replace(quick, trees=True))


def test_of_groups_the_part_nearest_to_the_fraction_is_held_out() -> None:
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    groups = np.array([0] * 60 + [*range(1, 41)])
    quick = Recipe(model="mlp-1x8", steps=5, samples=2, effort="quick", trees=False)
    found = learn(x, QuantityLabels(x.sum(1).double()), quick, groups=groups)
    assert len(found.validation) < 20
    with pytest.raises(HeadstartError, match="of one group"):
        learn(x, QuantityLabels(x.sum(1).double()), quick, groups=np.zeros(100))


@pytest.mark.parametrize("noise", ["constant", "power"])
def test_held_out_labels_do_not_tell_the_units_of_a_net(noise: str) -> None:
    x = torch.randn(90, 2, generator=torch.Generator().manual_seed(0))
    y = x.sum(1).double().exp()
    y[0] = 1e4
    quick = Recipe(model="mlp-1x8", steps=5, samples=2, folds=3, trees=False, noise=noise)
    found = learn(x, QuantityLabels(y), quick)
    for trial in found.trials:
        rest = torch.ones(90, dtype=torch.bool)
        rest[trial.rows] = False
        known = y[rest]
        if noise == "power":
            power = Power(likeliest_power(known))
            assert trial.likelihood.power == pytest.approx(power.power, abs=1e-9)
            known = power.transform(known)
            likelihood = trial.likelihood.base
        else:
            likelihood = trial.likelihood
        assert float(likelihood.loc) == pytest.approx(float(known.mean()), rel=1e-9)
        scale = float(known.std(correction=0))
        assert float(likelihood.scale) == pytest.approx(scale, rel=1e-9)
        # The density in the user's units is the one that chose.
        nll = -as_trained(trial).log_prob(y[trial.rows])
        torch.testing.assert_close(trial.nll, nll, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_best_effort_tries_waves_of_the_features_and_says_so() -> None:
    """Of a wave of one feature a net with waves is likelier than a plain one of few steps."""
    x = rows(400)
    y = (2 * x[:, 0]).sin() + 0.1 * noise(400)
    few = Recipe(
        effort="best", steps=60, samples=2, members=1, folds=2, noise="constant", trees=False
    )
    found = learn(x, QuantityLabels(y.double()), few)
    kinds = [each["kind"] for each in found.tried]
    assert "neural network with periodic features" in kinds
    assert "linear model" in kinds
    assert kinds[0] == "neural network with periodic features"
    assert found.recipe.model == "mlp-1x50-periodic4"
    assert "with periodic features, constant noise" in found.reasons[0]


def test_the_default_effort_tries_no_waves() -> None:
    few = Recipe(steps=20, samples=1, noise="constant", trees=False, folds=1)
    found = learn(rows(100), QuantityLabels(noise(100).double()), few)
    assert [each["kind"] for each in found.tried if "periodic" in each["kind"]] == []
