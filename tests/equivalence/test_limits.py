"""Methods that must agree in a limit."""

from __future__ import annotations

import pytest
import torch
from tests.cases import random_gaussian
from torch import Tensor, nn

import headstart as hs
from headstart.linalg.gaussians import Diagonal, Primal
from headstart.network.samplers import local_moments
from headstart.posteriors import FullCovariance, LowRank, MatrixNormal, MeanField, Posterior
from headstart.priors import Isotropic

pytestmark = pytest.mark.usefixtures("float64")
PRIOR = Isotropic(0.6)


def moments(posterior: Posterior, units: int = 3, size: int = 5) -> tuple[Tensor, Tensor]:
    torch.manual_seed(9)
    return local_moments(nn.Linear(size - 1, units), posterior, torch.randn(7, size - 1))


def assert_agree(a: Posterior, b: Posterior) -> None:
    """The same KL and the same law of the layer's output."""
    torch.testing.assert_close(a.kl(PRIOR), b.kl(PRIOR), atol=1e-9, rtol=0)
    for left, right in zip(moments(a), moments(b), strict=True):
        torch.testing.assert_close(left, right, atol=1e-10, rtol=0)


def test_full_covariance_with_a_diagonal_factor_is_mean_field() -> None:
    gaussian = Diagonal(torch.randn(3, 5), torch.rand(3, 5) + 0.1)
    full, diagonal = FullCovariance(3, 5), MeanField(3, 5)
    for q in (full, diagonal):
        q.project_(gaussian)
    assert_agree(full, diagonal)


def test_low_rank_of_full_rank_is_full_covariance() -> None:
    gaussian = random_gaussian(3, 5)
    low, full = LowRank(3, 5, rank=5), FullCovariance(3, 5)
    for q in (low, full):
        q.project_(gaussian)
    assert_agree(low, full)


def test_matrix_normal_with_one_output_is_full_covariance() -> None:
    gaussian = random_gaussian(1, 5)
    matrix, full = MatrixNormal(1, 5), FullCovariance(1, 5)
    for q in (matrix, full):
        q.project_(gaussian)
    torch.testing.assert_close(matrix.kl(PRIOR), full.kl(PRIOR), atol=1e-9, rtol=0)
    for left, right in zip(moments(matrix, units=1), moments(full, units=1), strict=True):
        torch.testing.assert_close(left, right, atol=1e-10, rtol=0)


def test_matrix_normal_with_a_shared_precision_is_full_covariance() -> None:
    shared = random_gaussian(1, 5).precision()
    gaussian = Primal(shared, torch.randn(3, 5))
    matrix, full = MatrixNormal(3, 5), FullCovariance(3, 5)
    for q in (matrix, full):
        q.project_(gaussian)
    assert_agree(matrix, full)


@pytest.mark.parametrize("sampler", ["local", "weights", "mean"])
@pytest.mark.parametrize(
    "posterior", ["mean_field", "low_rank", "full_covariance", "matrix_normal"]
)
def test_a_1x1_convolution_is_a_linear_layer(sampler: str, posterior: str) -> None:
    linear, conv = nn.Linear(4, 3), nn.Conv2d(4, 3, 1)
    models = []
    for op in (linear, conv):
        torch.manual_seed(3)
        model = hs.bayesianize(op, posterior=posterior)
        with torch.no_grad():
            for parameter in model.posterior.parameters():
                parameter.copy_(0.2 * torch.randn_like(parameter))
        models.append(model)
    x = torch.randn(6, 4)
    torch.testing.assert_close(models[0].kl(), models[1].kl())
    outs = []
    for model, inputs in zip(models, (x, x[:, :, None, None]), strict=True):
        torch.manual_seed(4)
        outs.append(hs.draw(model, inputs, 2, sampler).flatten(1))
    torch.testing.assert_close(*outs)


def test_iblm_on_a_1x1_convolution_is_iblm_on_a_linear_layer() -> None:
    x, y = torch.randn(50, 4), torch.randint(3, (50,))
    nets = nn.Sequential(nn.Linear(4, 3)), nn.Sequential(nn.Conv2d(4, 3, 1), nn.Flatten())
    posteriors = []
    for net, inputs in zip(nets, (x, x[:, :, None, None]), strict=True):
        model = hs.bayesianize(net)
        hs.initialize_(model, "iblm", hs.Categorical(3), (inputs, y))
        posteriors.append(model[0].posterior)
    torch.testing.assert_close(posteriors[0].mean, posteriors[1].mean, atol=1e-10, rtol=0)
    torch.testing.assert_close(posteriors[0].logvar, posteriors[1].logvar, atol=1e-10, rtol=0)


def test_bernoulli_is_a_categorical_of_two() -> None:
    logit, y = torch.randn(4, 6, 1), torch.randint(2, (6,))
    pair = torch.cat([torch.zeros_like(logit), logit], -1)
    torch.testing.assert_close(
        hs.Bernoulli().log_prob(logit, y), hs.Categorical(2).log_prob(pair, y)
    )
    one, two = hs.Bernoulli().evaluate(logit, y), hs.Categorical(2).evaluate(pair, y)
    assert one == pytest.approx(two)


def test_heteroscedastic_with_constant_log_variance_is_gaussian() -> None:
    f, y = torch.randn(5, 6, 2), torch.randn(6, 2)
    both = torch.cat([f, torch.full_like(f, 0.25).log()], -1)
    gaussian = hs.Gaussian(0.25 * 4, loc=1.0, scale=2.0).requires_grad_(False)
    hetero = hs.Heteroscedastic(loc=1.0, scale=2.0)
    torch.testing.assert_close(hetero.log_prob(both, y), gaussian.log_prob(f, y))
    assert hetero.evaluate(both, y) == pytest.approx(gaussian.evaluate(f, y))
