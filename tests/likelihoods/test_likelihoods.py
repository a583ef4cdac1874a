"""What holds for every likelihood, case by case, and the sentences for wrong labels."""

from __future__ import annotations

import pytest
import torch

import headstart as hs
from tests import cases

pytestmark = pytest.mark.usefixtures("float64")


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
    # One label has features of low frequency, which vary little.
    assert float(features.std(0).min()) > (0.01 if y.ndim == 2 else 0.001)
    distinct = torch.linalg.matrix_rank(features - features.mean(0))
    # Two classes have no more than one feature.
    assert distinct > 1 or name == "bernoulli"


def test_predictive_mnll_is_never_above_the_expected_one() -> None:
    for case in cases.LIKELIHOODS.values():
        scores = case.make().evaluate(torch.randn(20, 30, case.outputs), case.labels(30))
        assert scores["mnll"] < scores["expected_nll"]


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
    mean, var = lik.mean(row)[0], lik.variance(row)[0]
    is_class = name in {"categorical", "ordinal"}
    drawn = torch.nn.functional.one_hot(y, len(mean)) if is_class else y.reshape(n, -1)
    drawn = drawn.double()
    assert float(((drawn.mean(0) - mean) / (var / n).sqrt()).abs().max()) < 4.5
    fourth = ((drawn - mean).pow(4).mean(0) - var.square()).clamp_min(1e-12)
    assert float(((drawn - mean).square().mean(0) - var).abs().div((fourth / n).sqrt()).max()) < 4.5


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
        (hs.Bernoulli(), torch.tensor([0, 2]), 1, "labels 0 and 1"),
        (hs.Bernoulli(), torch.tensor([0, 1]), 2, "one logit"),
        (hs.Poisson(), torch.tensor([0.5]), 1, "counts"),
        (hs.Poisson(), torch.tensor([-1.0]), 1, "counts"),
        (hs.Heteroscedastic(), torch.zeros(3, 1), 1, "even number"),
    ],
)
def test_wrong_labels_get_a_sentence(
    lik: hs.Likelihood, y: torch.Tensor, outputs: int, sentence: str
) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        lik.check(y, outputs)
