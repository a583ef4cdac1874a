"""The golden identity of `refine_` on mixtures: each member's ELBO is its evidence."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cases import scramble_
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, Normal

import headstart as hs
from headstart.linalg.blm import solve_blm
from headstart.network.layer import Bayesian, bayesian_layers, count_members
from headstart.training import predictive_noise

pytestmark = pytest.mark.usefixtures("float64")
MEMBERS, HIDDEN = 3, 4
FAMILIES = ["mean_field", "low_rank", "full_covariance"]


def data(rows: int = 40, outputs: int = 2) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, 5)
    return x, x @ torch.randn(5, outputs) + 0.4 + 0.6 * torch.randn(rows, outputs)


def net(outputs: int = 2) -> nn.Module:
    return nn.Sequential(nn.Linear(5, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, outputs))


def mixture(outputs: int = 2, prior: Any = 1.0) -> nn.Module:
    """Members with hidden layers of their own that do not vary."""
    model = hs.bayesianize(net(outputs), prior=prior, members=MEMBERS)
    with torch.no_grad():
        model[0].posterior.mean.normal_()
        model[0].posterior.logvar.fill_(-80.0)
    return model


def features(model: nn.Module, x: Tensor) -> list[Tensor]:
    """Of each member, with a column of ones."""
    rows = torch.cat([x, torch.ones(len(x), 1)], 1)
    weights = model[0].posterior.mean.detach().chunk(MEMBERS)
    return [torch.cat([(rows @ w.T).tanh(), torch.ones(len(x), 1)], 1) for w in weights]


def log_evidence(phi: Tensor, y: Tensor, log_noise: Tensor, log_prior: Tensor) -> Tensor:
    """log p(y) written out densely, a noise for each output."""
    cov, total = log_prior.exp() * phi @ phi.T, torch.zeros(())
    for column, noise in zip(y.T, log_noise.expand(y.shape[1]), strict=True):
        law = MultivariateNormal(torch.zeros(len(y)), cov + noise.exp() * torch.eye(len(y)))
        total = total + law.log_prob(column)
    return total


def best_mean_evidence(every: list[Tensor], y: Tensor, noises: int) -> Tensor:
    """The noises and the prior variance that maximize the mean, by torch's own optimizer."""
    at = torch.zeros(noises + 1, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [at],
        max_iter=500,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        parts = [log_evidence(phi, y, at[:noises], at[noises]) for phi in every]
        value = -torch.stack(parts).mean()
        value.backward()
        return value

    optimizer.step(loss)
    return at.detach()


def elbo(layer: Bayesian, lik: hs.Gaussian, phi: Tensor, y: Tensor) -> float:
    """Of a member's read-out on its features, in closed form."""
    q = layer.posterior
    factors = q.factors()
    assert factors is not None
    mean, var = phi @ q.mean.T, torch.einsum("rud,nd->run", factors, phi).square().sum(0).T
    noise = lik.noise_var.expand(y.shape[1])
    error = ((y - mean).square() + var) / noise + (2 * math.pi * noise).log()
    return float((-0.5 * error.sum() - layer.kl()).detach())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("noise", [0.9, [0.9, 0.2]])
@pytest.mark.parametrize("prior", [3.0, "learned"])
def test_linear_members_all_have_the_log_evidence(family: str, noise: Any, prior: Any) -> None:
    x, y = data()
    model = hs.bayesianize(nn.Linear(5, 2), posterior=family, prior=prior, members=MEMBERS)
    lik = hs.Gaussian(noise)
    scramble_(model)
    report = hs.refine_(model, lik, (x, y))
    phi = torch.cat([x, torch.ones(len(x), 1)], 1)
    best = best_mean_evidence([phi], y, lik.log_noise_var.numel())
    expected = float(log_evidence(phi, y, best[:-1], best[-1]))
    assert -report.nelbo_after == pytest.approx(expected, abs=1e-9)
    assert count_members(model) == MEMBERS
    for index in range(MEMBERS):
        with hs.member(model, index):
            layer = bayesian_layers(model)[""]
            assert layer.posterior.name == "full_covariance"
            assert elbo(layer, lik, phi, y) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("noise", [0.9, [0.9, 0.2]])
@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_noise_and_prior_maximize_the_mean_of_different_members(noise: Any, scale: float) -> None:
    x, y = data()
    model, lik = mixture(), hs.Gaussian(noise, scale=scale)
    below = float(model[0].kl().detach())
    report = hs.refine_(model, lik, (x, scale * y))
    every = features(model, x)
    best = best_mean_evidence(every, y, lik.log_noise_var.numel())
    each = [float(log_evidence(phi, y, best[:-1], best[-1])) for phi in every]
    # The labels in other units have another density, and hidden layers a KL of their own.
    shift = y.numel() * math.log(scale)
    expected = sum(each) / MEMBERS - shift - below
    assert max(each) - min(each) > 1
    assert -report.nelbo_after == pytest.approx(expected, abs=1e-9 * abs(expected))
    # Maxima are flat: half of the digits.
    found = lik.log_noise_var.flatten() - 2 * math.log(scale)
    assert torch.allclose(found, best[:-1], atol=1e-5)
    assert report.prior_after == pytest.approx(float(best[-1].exp()), rel=1e-5)
    unit = hs.Gaussian(lik.noise_var.detach() / scale**2)
    for index, phi in enumerate(every):
        at = unit.log_noise_var.detach().flatten(), torch.tensor(report.prior_after).log()
        own = float(log_evidence(phi, y, *at))
        with hs.member(model, index):
            assert elbo(model[2], unit, phi, y) == pytest.approx(own, abs=1e-9)


@pytest.mark.parametrize("noise", [0.9, [0.9, 0.2]])
def test_predictive_noise_is_the_error_over_the_freedom_that_is_left(
    monkeypatch: pytest.MonkeyPatch, noise: Any
) -> None:
    x, y = data()
    spent = torch.tensor([0.25, 0.5])
    monkeypatch.setattr(predictive_noise, "fraction_spent", lambda *_: spent)
    model, lik = mixture(), hs.Gaussian(noise, scale=5.0)
    hs.refine_(model, lik, (x, 5 * y))
    weights = model[2].posterior.mean.detach().chunk(MEMBERS)
    every = [phi @ w.T for phi, w in zip(features(model, x), weights, strict=True)]
    error = 25 * (y - torch.stack(every).mean(0)).square().mean(0) / (1 - spent)
    wanted = error.mean() if lik.log_noise_var.numel() == 1 else error
    assert torch.allclose(lik.for_prediction().noise_var, wanted, rtol=1e-6)


def test_predictive_noise_is_that_of_the_mixture_s_left_out_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where nothing is known of the gradients of the layers below."""
    monkeypatch.setattr(predictive_noise, "fraction_spent", lambda *_: None)
    x, y = data(rows=30, outputs=1)
    model, lik = mixture(outputs=1), hs.Gaussian()
    report = hs.refine_(model, lik, (x, y))
    assert report.prior_after is not None
    noise, left_out = float(lik.noise_var.detach()), []
    for phi in features(model, x):
        for row in range(len(x)):
            rest = torch.arange(len(x)) != row
            fitted = solve_blm(
                phi[rest], y[rest], torch.full((len(x) - 1, 1), noise), report.prior_after
            )
            at = phi[row]
            left_out.append((at @ fitted.mean[0], at @ fitted.covariance()[0] @ at))
    mean, var = (torch.stack(part).reshape(MEMBERS, -1) for part in zip(*left_out, strict=True))

    def likelihood(noise_var: float) -> float:
        return float(Normal(mean, (var + noise_var).sqrt()).log_prob(y[:, 0]).logsumexp(0).sum())

    found = float(lik.for_prediction().noise_var)
    assert found < noise
    assert likelihood(found) > likelihood(1.02 * found)
    assert likelihood(found) > likelihood(found / 1.02)


@pytest.mark.parametrize("kind", ["gaussian", "bernoulli", "categorical"])
def test_copies_refined_are_one_refined(kind: str) -> None:
    x, y = data(rows=60)
    lik: hs.Likelihood = hs.Gaussian([0.5, 0.5])
    labels, outputs = y, 2
    if kind == "bernoulli":
        lik, labels, outputs = hs.Bernoulli(), (y[:, 0] > 0).long(), 1
    if kind == "categorical":
        lik, outputs = hs.Categorical(num_classes=3), 3
        labels = (y[:, 0] > 0).long() + (y[:, 1] > 0).long()
    one = hs.bayesianize(net(outputs), prior=0.7)
    scramble_(one)
    copies = hs.bayesianize(net(outputs), prior=0.7, members=MEMBERS)
    for index in range(MEMBERS):
        with hs.member(copies, index):
            copies.load_state_dict(one.state_dict())
    other = copy.deepcopy(lik)
    alone, together = (
        hs.refine_(model, each, (x, labels)) for model, each in ((one, lik), (copies, other))
    )
    assert together.nelbo_before == pytest.approx(alone.nelbo_before, rel=1e-9)
    assert together.nelbo_after == pytest.approx(alone.nelbo_after, rel=1e-9)
    assert together.prior_after == pytest.approx(alone.prior_after, rel=1e-5)
    assert together.steps == alone.steps
    if alone.noise_predictive is not None:
        assert together.noise_predictive == pytest.approx(alone.noise_predictive, rel=1e-5)
    for index in range(MEMBERS):
        with hs.member(copies, index):
            for mine, theirs in zip(copies.parameters(), one.parameters(), strict=True):
                torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


def test_each_member_keeps_the_prior_that_it_inherited() -> None:
    """Refined on one half, inherited, refined on the other: the evidence of both together."""
    x, y = data()
    model, lik = mixture(prior=0.7), hs.Gaussian(0.3, learn_noise=False)
    below = float(model[0].kl().detach())
    first = hs.refine_(model, lik, (x[:25], y[:25]), learn_prior=False)
    every = features(model, x)
    hs.inherit_(model)
    second = hs.refine_(model, lik, (x[25:], y[25:]))
    assert second.prior_after is None
    logs = torch.tensor([0.3]).log(), torch.tensor(0.7).log()
    expected = sum(float(log_evidence(phi, y, *logs)) for phi in every) / MEMBERS
    total = -first.nelbo_after - second.nelbo_after
    assert total == pytest.approx(expected - below, abs=1e-8 * below)
    model_again = mixture(prior=0.7)
    hs.refine_(model_again, lik, (x[:25], y[:25]), learn_prior=False)
    every = features(model_again, x)
    hs.inherit_(model_again)
    logs_of_all = sum(float(log_evidence(phi, y, *logs)) for phi in every) / MEMBERS
    logs_of_half = sum(float(log_evidence(phi[:25], y[:25], *logs)) for phi in every) / MEMBERS
    found = hs.evidence(model_again, lik, (x[25:], y[25:]))
    assert found.log_evidence == pytest.approx(logs_of_all - logs_of_half, abs=1e-7)


@pytest.mark.parametrize("draws", [1, 8])
def test_condition_and_evidence_take_the_mean_of_the_members(draws: int) -> None:
    x, y = data()
    model, lik = mixture(), hs.Gaussian()
    every = features(model, x)
    best = best_mean_evidence(every, y, 1)
    each = [float(log_evidence(phi, y, best[:-1], best[-1])) for phi in every]
    found = hs.condition(model, lik, (x, y), draws=draws, widen=False)
    assert len(found.nets) == (MEMBERS if draws == 1 else 9)
    assert -found.read_out_nelbo == pytest.approx(sum(each) / MEMBERS, abs=1e-9)
    assert found.prior_var == pytest.approx(float(best[-1].exp()), rel=1e-5)
    assert found.nelbo - found.read_out_nelbo == pytest.approx(float(model[0].kl().detach()))
    evidence = hs.evidence(model, lik, (x, y), draws=draws)
    assert evidence.log_evidence == pytest.approx(sum(each) / MEMBERS, abs=1e-9)
    # The mean of the members' leverages, from their own posteriors.
    prior, noise = found.prior_var, float(evidence.noise_var[0])
    assert prior is not None
    expected = torch.zeros(5)
    for phi in every:
        covariance = (phi.T @ phi / noise + torch.eye(HIDDEN + 1) / prior).inverse()
        expected += torch.einsum("nd,de,ne->n", phi[:5], covariance, phi[:5]) / MEMBERS
    torch.testing.assert_close(hs.leverage(found, x[:5]), expected, atol=1e-7, rtol=1e-7)


def test_a_conditioned_mixture_widens_by_the_bound_of_all_members() -> None:
    x, y = data()
    model, lik = hs.bayesianize(net(1), members=MEMBERS), hs.Gaussian()
    hs.initialize_(model, "iblm", lik, (x, y[:, :1]), seed=0)
    one = hs.condition(model, lik, (x, y[:, :1]), draws=9)
    assert len(one.nets) == 9
    assert torch.isfinite(one.predict(x[:4], seed=0).std).all()
    # As wide as the bound says: no other factor that was tried has a smaller one.
    narrow = hs.condition(model, lik, (x, y[:, :1]), draws=9, widen=False)
    assert one.nelbo <= narrow.nelbo + 1e-9


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_the_nelbo_of_a_mixture_falls_on_fresh_draws(kind: str) -> None:
    x, y = data(rows=100)
    lik: hs.Likelihood = hs.Gaussian()
    labels, outputs = y, 2
    if kind == "categorical":
        lik, outputs = hs.Categorical(num_classes=3), 3
        labels = (y[:, 0] > 0).long() + (y[:, 1] > 0).long()
    model = hs.bayesianize(net(outputs), members=MEMBERS)
    hs.initialize_(model, "iblm", lik, (x, labels), seed=0)

    def estimates() -> Tensor:
        with torch.no_grad():
            return torch.stack(
                [hs.nelbo(model, lik, x, labels, num_data=100, samples=12).value for _ in range(60)]
            )

    before = estimates()
    report = hs.refine_(model, lik, (x, labels))
    after = estimates()
    error = float((before.var() / 60 + after.var() / 60).sqrt())
    found = float(before.mean() - after.mean())
    gain = report.nelbo_before - report.nelbo_after
    assert gain > 1
    assert abs(found - gain) < 4 * error + 0.05 * gain + 1


def test_a_refined_mixture_is_saved_loaded_trained_and_refined_again(tmp_path: Path) -> None:
    x, y = data(rows=60)
    model, lik = hs.bayesianize(hs.models.create("mlp-1x20", 5, 2), members=2), hs.Gaussian()
    hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    hs.refine_(model, lik, (x, y))
    hs.save(tmp_path / "model", model, lik)
    again, again_lik = hs.load(tmp_path / "model")
    one, other = (hs.predict(m, k, x[:5], seed=0) for m, k in ((model, lik), (again, again_lik)))
    assert torch.equal(one.std, other.std)
    assert one.member_mean.shape == (2, 5, 2)
    hs.fit(again, again_lik, (x, y), steps=5, progress=False, seed=0)
    report = hs.refine_(again, again_lik, (x, y))
    assert report.nelbo_after <= report.nelbo_before
