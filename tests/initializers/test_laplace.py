"""The Laplace approximation against exact posteriors, Hessians and its own rules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.linalg.laplace import best_prior_variance
from tests.cases import chain

EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9}
NOISE, PRIOR = 0.3, 0.7


def with_ones(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones(len(x), 1)], 1)


def linear(weights: Tensor) -> nn.Linear:
    """A layer with these weights (units, size), the bias last."""
    net = nn.Linear(weights.shape[1] - 1, len(weights))
    with torch.no_grad():
        net.weight.copy_(weights[:, :-1])
        net.bias.copy_(weights[:, -1])
    return net


def covariances(model: nn.Module) -> Tensor:
    """Of each unit of the only layer, (units, size, size)."""
    (layer,) = hs.bayesian_layers(model).values()
    factors = layer.posterior.factors()
    assert factors is not None
    return torch.einsum("rui,ruj->uij", factors, factors).detach()


def regression(rows: int = 40) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows and targets, and mean and covariance of the exact posterior."""
    torch.manual_seed(0)
    x, y = torch.randn(rows, 3), torch.randn(rows, 2)
    design = with_ones(x)
    covariance = torch.linalg.inv(design.T @ design / NOISE + torch.eye(4) / PRIOR)
    return x, y, (covariance @ design.T @ y / NOISE).T, covariance


@pytest.mark.parametrize("family", ["full_covariance", "matrix_normal"])
def test_a_linear_model_gets_its_exact_posterior(family: str, float64: None) -> None:
    x, y, mean, covariance = regression()
    model = hs.bayesianize(linear(mean), posterior=family, prior=PRIOR)
    hs.initialize_(model, "laplace", hs.Gaussian(NOISE, learn_noise=False), (x, y))
    assert torch.equal(model.posterior.mean, mean)
    torch.testing.assert_close(covariances(model), covariance.expand(2, 4, 4), **EXACT)


def test_a_diagonal_posterior_gets_the_diagonal_of_the_precision(float64: None) -> None:
    x, y, mean, covariance = regression()
    model = hs.bayesianize(linear(mean), prior=PRIOR)
    hs.initialize_(model, "laplace", hs.Gaussian(NOISE, learn_noise=False), (x, y))
    expected = 1 / torch.linalg.inv(covariance).diagonal()
    torch.testing.assert_close(model.posterior.variance(), expected.expand(2, 4), **EXACT)


def test_low_rank_is_exact_at_full_rank(float64: None) -> None:
    x, y, mean, covariance = regression()
    family = hs.LowRank
    model = hs.bayesianize(
        linear(mean), posterior=lambda *size, **kind: family(*size, rank=4, **kind), prior=PRIOR
    )
    hs.initialize_(model, "laplace", hs.Gaussian(NOISE, learn_noise=False), (x, y))
    found = covariances(model) + torch.diag_embed(model.posterior.diagonal()).detach()
    torch.testing.assert_close(found, covariance.expand(2, 4, 4), **EXACT)


def mode(lik: hs.Likelihood, x: Tensor, y: Tensor, units: int) -> tuple[Tensor, Tensor]:
    """The weights of a linear model at the mode under a prior of variance PRIOR, and the Hessian.

    By Newton's method on the joint density.
    """
    design, shape, y = with_ones(x), (units, x.shape[1] + 1), lik.check(y, units)

    def loss(flat: Tensor) -> Tensor:
        f = design @ flat.reshape(shape).T
        return flat.square().sum() / (2 * PRIOR) - lik.log_prob(f, y).sum()

    at = torch.zeros(shape[0] * shape[1])
    for _ in range(30):
        slope = torch.autograd.functional.jacobian(loss, at)
        at = at - torch.linalg.solve(torch.autograd.functional.hessian(loss, at), slope)
    assert torch.autograd.functional.jacobian(loss, at).abs().max() < 1e-10
    return at.reshape(shape), torch.autograd.functional.hessian(loss, at)


def test_logistic_regression_gets_the_inverse_hessian_at_the_mode(float64: None) -> None:
    torch.manual_seed(0)
    x = torch.randn(60, 3)
    lik, y = hs.Bernoulli(), (x.sum(1) + torch.randn(60) > 0).long()
    weights, hessian = mode(lik, x, y, 1)
    model = hs.bayesianize(linear(weights), posterior="full_covariance", prior=PRIOR)
    hs.initialize_(model, "laplace", lik, (x, y))
    torch.testing.assert_close(covariances(model)[0], torch.linalg.inv(hessian), **EXACT)


def test_softmax_regression_gets_the_blocks_of_the_hessian(float64: None) -> None:
    torch.manual_seed(0)
    x = torch.randn(60, 3)
    lik, y = hs.Categorical(3), torch.randint(3, (60,))
    weights, hessian = mode(lik, x, y, 3)
    model = hs.bayesianize(linear(weights), posterior="full_covariance", prior=PRIOR)
    hs.initialize_(model, "laplace", lik, (x, y))
    blocks = torch.stack([hessian[i : i + 4, i : i + 4] for i in range(0, 12, 4)])
    torch.testing.assert_close(covariances(model), torch.linalg.inv(blocks), **EXACT)


@pytest.mark.parametrize("family", ["mean_field", "full_covariance", "matrix_normal"])
@pytest.mark.parametrize("prior", ["learned", "learned-gradient"])
def test_a_learned_prior_gets_the_largest_evidence(family: str, prior: str, float64: None) -> None:
    x, y, mean, covariance = regression()
    model = hs.bayesianize(linear(mean), posterior=family, prior=prior)
    hs.initialize_(model, "laplace", hs.Gaussian(NOISE, learn_noise=False), (x, y))
    matrix = torch.linalg.inv(covariance) - torch.eye(4) / PRIOR
    values = matrix.diagonal() if family == "mean_field" else torch.linalg.eigvalsh(matrix)
    best = best_prior_variance(values.repeat(2), float(mean.square().sum()))
    assert float(model.prior.var.detach()) == pytest.approx(best, rel=1e-6)
    assert float(hs.kl(model).detach()) > 0


def test_an_earlier_posterior_as_prior_stays_and_counts(float64: None) -> None:
    x, y, mean, _ = regression()
    model = hs.bayesianize(linear(mean), posterior="full_covariance", prior=PRIOR)
    lik = hs.Gaussian(NOISE, learn_noise=False)
    hs.initialize_(model, "laplace", lik, (x[:20], y[:20]))
    hs.inherit_(model)
    hs.initialize_(model, "laplace", lik, (x[20:], y[20:]))
    torch.testing.assert_close(covariances(model)[0], regression()[3], **EXACT)


def test_some_rows_stand_for_all(float64: None) -> None:
    x, y, mean, _ = regression(20)
    lik, double = hs.Gaussian(NOISE, learn_noise=False), (x.repeat(2, 1), y.repeat(2, 1))
    found = []
    for data, options in (((x, y), {"num_data": 40}), (double, {}), ((x, y), {"rows": 7})):
        model = hs.bayesianize(linear(mean), posterior="full_covariance", prior=PRIOR)
        hs.initialize_(model, "laplace", lik, data, **options)  # type: ignore[arg-type]
        found.append(covariances(model))
    torch.testing.assert_close(found[0], found[1], **EXACT)
    assert not torch.allclose(found[0], found[2])


def test_the_noise_is_that_of_the_residuals_unless_it_is_kept(float64: None) -> None:
    x, y, mean, _ = regression()
    residuals = float((y - with_ones(x) @ mean.T).square().mean())
    for fit_noise, expected in ((True, residuals), (False, 1.0)):
        lik = hs.Gaussian(1.0)
        hs.initialize_(hs.bayesianize(linear(mean)), "laplace", lik, (x, y), fit_noise=fit_noise)
        assert float(lik.log_noise_var.detach().exp()) == pytest.approx(expected)


def test_the_weights_of_another_net_are_taken_first() -> None:
    net, x = chain(), torch.randn(50, 4)
    model = hs.bayesianize(chain(), where="last")
    hs.initialize_(model, "laplace", hs.Gaussian(), (x, net(x).detach()), net=net)
    with hs.drawing(model, "mean"):
        torch.testing.assert_close(model(x), net(x))


def test_members_get_the_same_covariance_around_means_of_their_own(float64: None) -> None:
    x, y, mean, covariance = regression()
    model = hs.bayesianize(linear(mean), posterior="full_covariance", prior=PRIOR, members=2)
    hs.initialize_(model, "laplace", hs.Gaussian(NOISE, learn_noise=False), (x, y))
    torch.testing.assert_close(covariances(model), covariance.expand(4, 4, 4), **EXACT)


def test_modes_and_statistics_of_the_body_stay() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 1))
    with pytest.warns(UserWarning, match="BatchNorm"):
        model = hs.bayesianize(net, where="last")
    model.train()
    model[1].eval()
    before, x = model[1].running_mean.clone(), torch.randn(50, 4)
    hs.initialize_(model, "laplace", hs.Gaussian(), (x, x.sum(1)))
    assert torch.equal(model[1].running_mean, before)
    assert [module.training for module in model] == [True, False, True, True]


def test_what_makes_no_sense_is_refused() -> None:
    model, x = hs.bayesianize(chain()), torch.randn(50, 4)
    with pytest.raises(hs.HeadstartError, match="at least 1, not 0"):
        hs.initialize_(model, "laplace", hs.Gaussian(), (x, x.sum(1)), rows=0)
    with pytest.raises(hs.HeadstartError, match=r"initialize_\(model, 'laplace', likelihood"):
        hs.initialize_(model, "laplace", batches=(x, x.sum(1)))
    with pytest.raises(hs.HeadstartError, match="needs data"):
        hs.initialize_(model, "laplace", hs.Gaussian())
