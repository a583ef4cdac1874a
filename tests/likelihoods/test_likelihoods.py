"""Likelihoods: densities, targets, predictive moments, and the sentences for wrong labels."""

from __future__ import annotations

import math

import pytest
import scipy.stats
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal

import headstart as hs
from headstart.predictive import Predictive
from tests import cases

pytestmark = pytest.mark.usefixtures("float64")


def test_gaussian_density_in_the_user_s_units() -> None:
    lik = hs.Gaussian([0.3, 2.0], loc=[1.0, -2.0], scale=[2.0, 0.5])
    f, y = torch.randn(4, 6, 2), torch.randn(6, 2)
    oracle = (
        Normal(
            torch.tensor([1.0, -2.0]) + torch.tensor([2.0, 0.5]) * f,
            torch.tensor([0.3, 2.0]).sqrt(),
        )
        .log_prob(y)
        .sum(-1)
    )
    torch.testing.assert_close(lik.log_prob(f, y), oracle)


def test_categorical_density() -> None:
    f, y = torch.randn(4, 6, 3), torch.randint(3, (6,))
    torch.testing.assert_close(hs.Categorical(3).log_prob(f, y), Categorical(logits=f).log_prob(y))


def test_standardize_takes_scale_from_the_labels_and_the_noise_along() -> None:
    y = 5 + 3 * torch.randn(200)
    lik = hs.Gaussian(0.1).standardize_(y)
    torch.testing.assert_close(lik.noise_var, 0.1 * y.var(correction=0).reshape(1))
    t, v = lik.regression_targets(y.unsqueeze(1))
    assert float(t.mean()) == pytest.approx(0, abs=1e-12)
    assert float(t.std(correction=0)) == pytest.approx(1)
    torch.testing.assert_close(v, torch.full_like(v, 0.1))


def test_class_targets_are_the_paper_s() -> None:
    t, v = hs.Categorical(3).regression_targets(torch.tensor([1]), center=False)
    assert t[0].tolist() == pytest.approx([-6.9127, -0.3341, -6.9127], abs=1e-4)
    assert v[0].tolist() == pytest.approx([4.6151, 0.6882, 4.6151], abs=1e-4)
    centered, same = hs.Categorical(3).regression_targets(torch.tensor([1]))
    torch.testing.assert_close(centered.softmax(1), t.softmax(1))
    torch.testing.assert_close(same, v)
    assert float(centered.sum()) == pytest.approx(0, abs=1e-12)


def test_class_targets_match_the_moments_of_the_gamma() -> None:
    """A lognormal with mean of log t and variance v has the Gamma's own mean and variance."""
    from headstart.likelihoods.targets import lognormal_match

    shape = torch.tensor([0.01, 0.5, 1.01, 7.0])
    t, v = lognormal_match(shape)
    torch.testing.assert_close((t + v / 2).exp(), shape)
    torch.testing.assert_close(v.expm1() * (2 * t + v).exp(), shape)


@pytest.mark.parametrize("name", cases.LIKELIHOODS)
def test_targets_and_features_have_their_shapes(name: str) -> None:
    case = cases.LIKELIHOODS[name]
    lik, y = case.make(), case.labels(50)
    y = lik.check(y, case.outputs)
    for (t, v), count in ((lik.regression_targets(y), case.outputs), (lik.label_features(y, 7), 7)):
        assert t.shape == (50, count)
        assert v.shape in {(50, count), (50, 1)}
        assert bool((v > 0).all())
    features, _ = lik.label_features(y, 7)
    assert float(features.std(0).min()) > 0.01
    distinct = torch.linalg.matrix_rank(features - features.mean(0))
    assert distinct > 1 or name == "bernoulli"  # two classes have no more than one feature


def test_gaussian_predictive_is_the_mixture() -> None:
    f = torch.randn(50, 6, 2)
    lik = hs.Gaussian([0.3, 0.5], loc=1.0, scale=2.0).requires_grad_(False)
    pred = Predictive(f, lik)
    parts = Normal(
        (1 + 2 * f).permute(1, 2, 0),
        torch.tensor([0.3, 0.5]).sqrt().reshape(1, 2, 1).expand(6, 2, 50),
    )
    mixture = MixtureSameFamily(Categorical(torch.ones(6, 2, 50)), parts)
    torch.testing.assert_close(pred.mean, mixture.mean)
    torch.testing.assert_close(pred.std, mixture.stddev)
    torch.testing.assert_close(
        pred.std.square(), pred.epistemic_std.square() + pred.aleatoric_std.square()
    )
    low, high = pred.interval(0.9)
    torch.testing.assert_close(mixture.cdf(low), torch.full((6, 2), 0.05), atol=1e-9, rtol=0)
    torch.testing.assert_close(mixture.cdf(high), torch.full((6, 2), 0.95), atol=1e-9, rtol=0)
    y = torch.randn(6, 2)
    joint = Normal(1 + 2 * f, torch.tensor([0.3, 0.5]).sqrt()).log_prob(y).sum(-1)
    torch.testing.assert_close(pred.log_prob(y), joint.logsumexp(0) - math.log(50))


def test_categorical_predictive_and_its_epistemic_part() -> None:
    f = torch.randn(50, 6, 3)
    pred = Predictive(f, hs.Categorical(3))
    torch.testing.assert_close(pred.probs.sum(1), torch.ones(6))
    torch.testing.assert_close(pred.mean, pred.probs)
    entropies = Categorical(logits=f).entropy().mean(0)
    torch.testing.assert_close(pred.mutual_information, pred.entropy - entropies)
    same = Predictive(f[:1].expand(50, -1, -1), hs.Categorical(3))
    torch.testing.assert_close(same.mutual_information, torch.zeros(6))
    torch.testing.assert_close(same.epistemic_std, torch.zeros(6, 3), atol=1e-8, rtol=0)


def test_predictive_mnll_is_never_above_the_expected_one() -> None:
    for case in cases.LIKELIHOODS.values():
        scores = case.make().evaluate(torch.randn(20, 30, case.outputs), case.labels(30))
        assert scores["mnll"] < scores["expected_nll"]


@pytest.mark.parametrize(
    ("lik", "y", "outputs", "sentence"),
    [
        (
            hs.Gaussian(),
            torch.zeros(5, 2),
            1,
            r"targets of shape \(rows, 1\) or \(rows,\), not \(5, 2\)",
        ),
        (hs.Gaussian(), torch.zeros(5), 2, r"not \(5,\)"),
        (hs.Gaussian(), torch.zeros(5, dtype=torch.complex64), 1, "real numbers"),
        (hs.Gaussian([0.1, 0.2, 0.3]), torch.zeros(5, 2), 2, "3 values but the net has 2 outputs"),
        (hs.Categorical(3), torch.tensor([0, 3]), 3, "Labels must lie in 0…2; found 0…3"),
        (hs.Categorical(3), torch.tensor([-1, 2]), 3, "found -1…2"),
        (hs.Categorical(3), torch.tensor([0.0, 1.0]), 3, "integer labels"),
        (hs.Categorical(3), torch.zeros(5, 3, dtype=torch.long), 3, "one-hot rows"),
        (hs.Categorical(3), torch.tensor([0, 1]), 4, "The net has 4 outputs"),
    ],
)
def test_wrong_labels_get_a_sentence(
    lik: hs.Likelihood, y: torch.Tensor, outputs: int, sentence: str
) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        lik.check(y, outputs)


def test_wrong_questions_get_a_sentence() -> None:
    with pytest.raises(hs.HeadstartError, match="no order"):
        Predictive(torch.zeros(2, 3, 3), hs.Categorical(3)).interval()
    with pytest.raises(hs.HeadstartError, match="no classes"):
        _ = Predictive(torch.zeros(2, 3, 1), hs.Gaussian()).entropy
    with pytest.raises(hs.HeadstartError, match="between 0 and 1"):
        Predictive(torch.zeros(2, 3, 1), hs.Gaussian()).interval(95)
    with pytest.raises(hs.HeadstartError, match="two classes"):
        hs.Categorical(1)
    with pytest.raises(hs.HeadstartError, match="positive"):
        hs.Gaussian(0.0)


def test_poisson_density_and_quantiles() -> None:
    f, y = torch.randn(4, 6, 2), torch.poisson(torch.rand(6, 2) * 5)
    torch.testing.assert_close(
        hs.Poisson().log_prob(f, y), torch.distributions.Poisson(f.exp()).log_prob(y).sum(-1)
    )
    rate = torch.tensor([[0.3, 4.0, 60.0]])
    for level in (0.025, 0.5, 0.975):
        found = hs.Poisson().quantile(rate.log().unsqueeze(0), level)
        assert found.tolist() == scipy.stats.poisson.ppf(level, rate.numpy()).tolist()


def test_heteroscedastic_density() -> None:
    f, y = torch.randn(4, 6, 4), torch.randn(6, 2)
    oracle = Normal(1 + 2 * f[..., :2], 2 * (f[..., 2:] / 2).exp()).log_prob(y).sum(-1)
    torch.testing.assert_close(hs.Heteroscedastic(loc=1.0, scale=2.0).log_prob(f, y), oracle)


def linear_truth(
    lik: hs.Likelihood, outputs: int, x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    """What I-BLM alone says of the coefficients (outputs, inputs + 1) of a linear predictor."""
    model = hs.bayesianize(torch.nn.Linear(x.shape[1], outputs), prior=100.0)
    hs.initialize_(model, "iblm", lik, (x, y))
    return model.posterior.mean.detach()


def test_the_poisson_targets_find_a_known_log_rate() -> None:
    x = torch.randn(20_000, 2)
    truth = torch.tensor([0.3, -0.2, 2.5])
    y = torch.poisson((x @ truth[:2] + truth[2]).exp())
    found = linear_truth(hs.Poisson(), 1, x, y)[0]
    torch.testing.assert_close(found[:2], truth[:2], atol=0.02, rtol=0)
    assert float(found[2]) == pytest.approx(
        2.5, abs=0.06
    )  # weights by the counts themselves lean upwards by half an inverse count


def test_the_heteroscedastic_targets_find_a_known_noise() -> None:
    x = torch.randn(20_000, 2)
    mean, log_variance = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.6, 0.3, -1.0])
    y = (
        x @ mean[:2]
        + mean[2]
        + (0.5 * (x @ log_variance[:2] + log_variance[2])).exp() * torch.randn(20_000)
    )
    found = linear_truth(hs.Heteroscedastic(), 2, x, y)
    torch.testing.assert_close(found[0], mean, atol=0.03, rtol=0)
    torch.testing.assert_close(found[1], log_variance, atol=0.08, rtol=0)


def test_the_bernoulli_targets_find_the_direction_of_a_known_logit() -> None:
    """Least squares on labels finds the direction; the size is that of a label's own logit."""
    x = torch.randn(20_000, 3)
    truth = torch.tensor([1.0, -2.0, 0.5])
    y = torch.bernoulli((x @ truth).sigmoid()).long()
    found = linear_truth(hs.Bernoulli(), 1, x, y)[0]
    cosine = torch.nn.functional.cosine_similarity(found[:3], truth, dim=0)
    assert float(cosine) > 0.999


def test_bernoulli_and_poisson_refuse_other_labels() -> None:
    for lik, y, outputs, sentence in (
        (hs.Bernoulli(), torch.tensor([0, 2]), 1, "labels 0 and 1"),
        (hs.Bernoulli(), torch.tensor([0, 1]), 2, "one logit"),
        (hs.Poisson(), torch.tensor([0.5]), 1, "counts"),
        (hs.Poisson(), torch.tensor([-1.0]), 1, "counts"),
        (hs.Heteroscedastic(), torch.zeros(3, 1), 1, "even number"),
    ):
        with pytest.raises(hs.HeadstartError, match=sentence):
            lik.check(y, outputs)


@pytest.mark.parametrize("name", cases.LIKELIHOODS)
@torch.no_grad()
def test_labels_are_drawn_from_the_likelihood(name: str) -> None:
    """Their mean and variance are those the likelihood states; z-tests over each output."""
    torch.manual_seed(0)
    case, n = cases.LIKELIHOODS[name], 20_000
    lik, row = case.make(), 0.5 * torch.randn(1, case.outputs).double()
    f = row.expand(n, -1)
    y = lik.sample(f)
    assert bool(torch.isfinite(lik.log_prob(f, lik.check(y, case.outputs))).all())
    drawn = torch.nn.functional.one_hot(y, 3) if name == "categorical" else y.reshape(n, -1)
    drawn, mean, var = drawn.double(), lik.mean(row)[0], lik.variance(row)[0]
    assert float(((drawn.mean(0) - mean) / (var / n).sqrt()).abs().max()) < 4.5
    fourth = ((drawn - mean).pow(4).mean(0) - var.square()).clamp_min(1e-12)
    assert float(((drawn - mean).square().mean(0) - var).abs().div((fourth / n).sqrt()).max()) < 4.5
