"""The Bernoulli likelihood: targets that find the direction of a known logit."""

from __future__ import annotations

import pytest
import torch

import headstart as hs
from tests.likelihoods.linear import linear_truth

pytestmark = pytest.mark.usefixtures("float64")


def test_the_bernoulli_targets_find_the_direction_of_a_known_logit() -> None:
    """Least squares on labels finds the direction; the size is that of a label's own logit."""
    x = torch.randn(20_000, 3)
    truth = torch.tensor([1.0, -2.0, 0.5])
    y = torch.bernoulli((x @ truth).sigmoid()).long()
    found = linear_truth(hs.Bernoulli(), 1, x, y)[0]
    cosine = torch.nn.functional.cosine_similarity(found[:3], truth, dim=0)
    assert float(cosine) > 0.999


def test_bernoulli_density_and_moments() -> None:
    f, y = torch.randn(4, 6, 1), torch.randint(2, (6,))
    law = torch.distributions.Bernoulli(logits=f.squeeze(-1))
    lik = hs.Bernoulli()
    torch.testing.assert_close(lik.log_prob(f, lik.check(y, 1)), law.log_prob(y.double()))
    torch.testing.assert_close(lik.mean(f).squeeze(-1), law.mean)
    torch.testing.assert_close(lik.variance(f).squeeze(-1), law.variance)
