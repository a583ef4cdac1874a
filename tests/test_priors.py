"""Priors: their part of the KL, learning them, and a posterior as the prior of what comes next."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, kl_divergence

import headstart as hs
from headstart.posteriors import POSTERIORS
from headstart.priors import Inherited, Isotropic, Learned
from tests import cases
from tests.posteriors.dense import joint_covariance, scrambled

pytestmark = pytest.mark.usefixtures("float64")


def test_fan_in_follows_the_layer() -> None:
    assert hs.bayesianize(
        nn.Conv2d(4, 6, (2, 3), groups=2), prior="fan-in"
    ).prior.var == pytest.approx(1 / 12)


@pytest.mark.parametrize("family", POSTERIORS)
def test_the_closed_form_is_where_the_kl_is_least(family: str) -> None:
    q, prior = scrambled(family), Learned()
    prior.update_(q)
    best = float(prior.var.detach())
    with torch.no_grad():
        for factor in (0.9, 1.1):
            assert float(q.kl(Isotropic(best))) < float(q.kl(Isotropic(best * factor)))
        torch.testing.assert_close(q.kl(prior), q.kl(Isotropic(best)))
    by_hand = (q.mean.square().flatten() + joint_covariance(q).diagonal()).mean()
    assert best == pytest.approx(float(by_hand.detach()))


def test_the_gradient_leads_to_the_closed_form() -> None:
    q, prior = scrambled("mean_field").requires_grad_(False), Learned(by="gradient")
    optimizer = torch.optim.Adam(prior.parameters(), lr=0.05)
    for _ in range(500):
        optimizer.zero_grad()
        q.kl(prior).backward()
        optimizer.step()
    closed = Learned()
    closed.update_(q)
    assert float(prior.var.detach()) == pytest.approx(float(closed.var.detach()), rel=1e-4)


@pytest.mark.parametrize("name", ["learned", "learned-gradient"])
def test_fit_learns_prior_variances(name: str) -> None:
    model = hs.bayesianize(cases.chain(), prior=name)
    data = torch.randn(60, 4), torch.randint(3, (60,))
    hs.fit(
        model, hs.Categorical(3), data, steps=30, prior_every=10, lr=1e-2, progress=False, seed=0
    )
    variances = [float(layer.prior.var.detach()) for layer in hs.bayesian_layers(model).values()]
    assert all(var != 1.0 for var in variances)
    assert variances[0] != variances[1]


@pytest.mark.parametrize("old", ["mean_field", "low_rank", "full_covariance"])
@pytest.mark.parametrize("new", ["mean_field", "low_rank", "full_covariance", "matrix_normal"])
def test_the_kl_to_an_inherited_prior_is_the_kl(old: str, new: str) -> None:
    p, q = scrambled(old), scrambled(new)
    oracle = kl_divergence(
        MultivariateNormal(q.mean.flatten(), joint_covariance(q)),
        MultivariateNormal(p.mean.flatten(), joint_covariance(p)),
    )
    torch.testing.assert_close(q.kl(Inherited.of(p)), oracle, atol=1e-9, rtol=0)


def linear(posterior: str) -> nn.Module:
    torch.manual_seed(5)
    return hs.bayesianize(nn.Linear(4, 2), posterior=posterior, prior=0.7)


def rows(n: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 4)
    return x, x @ torch.tensor([[1.0, -1], [0.5, 0], [0, 2], [1, 1]]) + 0.5 * torch.randn(n, 2)


def test_learning_in_two_parts_is_learning_at_once() -> None:
    """Exact Bayes is sequential: posterior of A as the prior for B is the posterior of A and B."""
    (xa, ya), (xb, yb) = rows(30), rows(17)
    lik = hs.Gaussian(0.3, learn_noise=False)
    model, whole = linear("full_covariance"), linear("full_covariance")
    hs.initialize_(model, "iblm", lik, (xa, ya))
    hs.inherit_(model)
    hs.initialize_(model, "iblm", lik, (xb, yb))
    hs.initialize_(whole, "iblm", lik, (torch.cat([xa, xb]), torch.cat([ya, yb])))
    torch.testing.assert_close(model.posterior.mean, whole.posterior.mean, atol=1e-9, rtol=0)
    torch.testing.assert_close(
        model.posterior.factor.matrix(), whole.posterior.factor.matrix(), atol=1e-9, rtol=0
    )


@pytest.mark.slow
def test_training_from_an_inherited_prior_remembers() -> None:
    """A net fitted to A, then to B only, still knows A better than one that never saw it."""
    (xa, ya), (xb, yb) = rows(300), rows(10)
    lik = hs.Gaussian(0.3, learn_noise=False)
    remembers, forgets = linear("mean_field"), linear("mean_field")
    hs.initialize_(remembers, "iblm", lik, (xa, ya))
    hs.inherit_(remembers)
    hs.initialize_(forgets, "iblm", lik, (xb, yb))
    for model in (remembers, forgets):
        hs.fit(model, lik, (xb, yb), steps=300, lr=1e-2, progress=False, seed=0)
    errors = [hs.evaluate(model, lik, (xa, ya), seed=0)["rmse"] for model in (remembers, forgets)]
    assert errors[0] < errors[1]


def test_a_matrix_normal_cannot_be_inherited() -> None:
    with pytest.raises(hs.HeadstartError, match="correlates units"):
        hs.inherit_(linear("matrix_normal"))
    with pytest.raises(hs.HeadstartError, match="way to learn"):
        Learned(by="closed")
