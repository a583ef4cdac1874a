"""Predictions may have a noise of another size than the bound."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import headstart as hs
from headstart.models import create
from headstart.predictive import Predictive
from tests import cases

pytestmark = pytest.mark.usefixtures("float64")

SIZED = ("gaussian", "heteroscedastic", "student_t", "power", "censored_gaussian")


def some(name: str) -> tuple[hs.Likelihood, torch.Tensor, torch.Tensor]:
    """A likelihood of the table, outputs of a net, and labels as it takes them."""
    torch.manual_seed(0)
    case = cases.LIKELIHOODS[name]
    lik = case.make()
    return lik, 0.5 * torch.randn(1, 30, case.outputs), lik.check(case.labels(30), case.outputs)


@pytest.mark.parametrize("name", ["gaussian", "heteroscedastic", "student_t", "power"])
def test_noise_c_times_as_wide_makes_errors_c_times_as_large_as_likely(name: str) -> None:
    """p_c(mean + c r) = p(mean + r) / c for each number: exact, on the scale of the noise."""
    lik, f, y = some(name)
    base, t = (lik.base, lik.transform(y)) if isinstance(lik, hs.Power) else (lik, y)
    before = base.log_prob(f, t)
    lik.scale_predictive_noise_(2.0)
    lik.scale_predictive_noise_(0.7)
    center, c = base.mean(f), 1.4
    wide = (lik.base if isinstance(lik, hs.Power) else lik).for_prediction()
    found = wide.log_prob(f, center + c * (t - center))
    assert torch.allclose(found, before - t.shape[1] * math.log(c), atol=1e-9, rtol=0)
    assert torch.allclose(wide.variance(f), c**2 * base.variance(f), rtol=1e-9)
    low, high = wide.interval(f, 0.9)
    plain_low, plain_high = base.interval(f, 0.9)
    assert torch.allclose(high - low, c * (plain_high - plain_low), rtol=1e-6)


@pytest.mark.parametrize("name", SIZED)
def test_the_bound_keeps_its_noise_and_training_forgets_that_of_predictions(name: str) -> None:
    lik, f, y = some(name)
    before = lik.log_prob(f, y), *lik.curvature(f, y), *lik.regression_targets(y)
    lik.scale_predictive_noise_(3.0)
    after = lik.log_prob(f, y), *lik.curvature(f, y), *lik.regression_targets(y)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert not torch.allclose(lik.for_prediction().log_prob(f, y), before[0])
    lik.forget_predictive_noise_()
    assert torch.equal(lik.for_prediction().log_prob(f, y), before[0])


@pytest.mark.parametrize("name", SIZED)
def test_slopes_of_a_copy_for_prediction_are_those_of_its_density(name: str) -> None:
    lik, f, y = some(name)
    lik.scale_predictive_noise_(0.6)
    copied = lik.for_prediction()
    for found, expected in zip(
        copied.curvature(f, y), hs.Likelihood.curvature(copied, f, y), strict=True
    ):
        assert torch.allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize("name", sorted(set(cases.LIKELIHOODS) - set(SIZED)))
def test_labels_without_a_size_of_noise_are_predicted_as_before(name: str) -> None:
    lik, f, y = some(name)
    before = lik.for_prediction().log_prob(f, y)
    lik.scale_predictive_noise_(3.0)
    assert torch.equal(lik.for_prediction().log_prob(f, y), before)


@pytest.mark.parametrize("name", SIZED)
def test_files_keep_the_noise_of_predictions(name: str, tmp_path: Path) -> None:
    """Also that of a copy for prediction, which has taken the ratio in."""
    lik, f, y = some(name)
    assert "predictive_ratio" not in str(lik.config())
    lik.scale_predictive_noise_(1.7)
    expected = lik.for_prediction().log_prob(f, y)
    net = hs.bayesianize(create("mlp-1x5", 2, cases.LIKELIHOODS[name].outputs))
    for number, given in enumerate((lik, lik.for_prediction())):
        hs.save(tmp_path / f"{number}.safetensors", net, given)
        _, again = hs.load(tmp_path / f"{number}.safetensors")
        found = again.for_prediction().log_prob(f, y)
        assert torch.allclose(found, expected, atol=1e-9, rtol=0)
        assert torch.allclose(again.log_prob(f, y), given.log_prob(f, y), atol=1e-9, rtol=0)
        assert again.has_predictive_noise == given.has_predictive_noise


def test_parts_of_other_likelihoods_are_scaled() -> None:
    f, y = torch.randn(1, 20, 1), torch.randn(20, 1)
    inner = hs.Gaussian(0.5)
    hs.Weighted(inner).scale_predictive_noise_(2.0)
    assert torch.allclose(inner.for_prediction().variance(f), 4 * inner.variance(f))
    joint = hs.Joint({"a": hs.Gaussian(0.5), "b": hs.Bernoulli()})
    joint.scale_predictive_noise_(2.0)
    head = joint.parts()["a"]
    assert torch.allclose(head.for_prediction().variance(f), torch.tensor(2.0))
    assert torch.isfinite(Predictive(f, head.for_prediction()).log_prob(y)).all()


def test_a_ratio_for_each_output() -> None:
    lik = hs.Gaussian([0.4, 0.2], predictive_ratio=[0.5, 2.0])
    assert torch.allclose(lik.for_prediction().noise_var, torch.tensor([0.2, 0.4]))
    assert torch.allclose(lik.noise_var, torch.tensor([0.4, 0.2]))
    lik.scale_predictive_noise_(2.0)
    assert torch.allclose(lik.for_prediction().noise_var, torch.tensor([0.8, 1.6]))


def test_a_factor_for_each_label_of_a_noise_that_varies() -> None:
    lik, f = hs.Heteroscedastic(), torch.randn(3, 5, 4)
    lik.scale_predictive_noise_(torch.tensor([0.5, 2.0]))
    expected = lik.variance(f) * torch.tensor([0.25, 4.0])
    assert torch.allclose(lik.for_prediction().variance(f), expected)
    assert lik.config()["predictive_ratio"] == [0.25, 4.0]
    with pytest.raises(hs.HeadstartError, match="predictive_ratio has 2 values"):
        lik.check(torch.zeros(4, 1), 2)


LEARNED = ("gaussian", "heteroscedastic", "student_t", "power", "censored_gaussian")


@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.parametrize("change", ["initialize_", "condition", "refine_"])
def test_another_posterior_begins_with_the_noise_of_the_bound(name: str, change: str) -> None:
    """But for Gaussian noise, where `refine_` finds a ratio anew."""
    lik, _, y = some(name)
    x = torch.randn(30, 2)
    model = hs.bayesianize(create("mlp-1x5", 2, cases.LIKELIHOODS[name].outputs))
    hs.initialize_(model, "iblm", lik, (x, y))
    lik.scale_predictive_noise_(7.0)
    assert lik.has_predictive_noise
    if change == "initialize_":
        hs.initialize_(model, "xavier", lik, (x, y))
        assert not lik.has_predictive_noise
    elif change == "condition":
        found = hs.condition(model, lik, (x, y), draws=2, widen=False)
        assert not found.likelihood.has_predictive_noise
        assert lik.has_predictive_noise
    else:
        assert not hs.refine_(model, lik, (x, y)).kept
        base = lik.base if isinstance(lik, hs.Power) else lik
        assert float(base.predictive_ratio.max()) < 7


def test_a_ratio_that_is_no_ratio_is_refused() -> None:
    for factor in (0.0, -2.0, math.nan):
        with pytest.raises(hs.HeadstartError, match="factor must be positive"):
            hs.Gaussian().scale_predictive_noise_(factor)
    for make in (hs.Gaussian, hs.StudentT, hs.Heteroscedastic):
        with pytest.raises(hs.HeadstartError, match="predictive_ratio must be positive"):
            make(predictive_ratio=-1.0)
    with pytest.raises(hs.HeadstartError, match="predictive_ratio has 3 values"):
        hs.Gaussian(predictive_ratio=[1.0, 2.0, 3.0]).check(torch.zeros(4, 2), 2)
