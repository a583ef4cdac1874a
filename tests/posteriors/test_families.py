"""What holds for every variational family: KL, sampling law and moments, by independent forms."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal, kl_divergence

from headstart.errors import HeadstartError
from headstart.linalg.gaussians import Diagonal
from headstart.posteriors import (
    POSTERIORS,
    MeanField,
)
from headstart.priors import Isotropic
from tests.cases import GAUSSIANS, random_gaussian
from tests.posteriors.dense import joint_covariance, kl_to, scrambled

pytestmark = pytest.mark.usefixtures("float64")
PRIOR = Isotropic(0.6)


@pytest.mark.parametrize("family", GAUSSIANS)
def test_kl_is_the_kl(family: str) -> None:
    q = scrambled(family)
    cov = joint_covariance(q)
    oracle = kl_divergence(
        MultivariateNormal(q.mean.flatten(), cov),
        MultivariateNormal(torch.zeros(len(cov)), 0.6 * torch.eye(len(cov))),
    )
    torch.testing.assert_close(q.kl(PRIOR), oracle, atol=1e-9, rtol=0)


@pytest.mark.parametrize("family", GAUSSIANS)
@torch.no_grad()
def test_kl_by_monte_carlo(family: str) -> None:
    q = scrambled(family)
    n = 20_000
    w = q.sample(n).flatten(1)
    cov = joint_covariance(q)
    ratio = MultivariateNormal(q.mean.flatten(), cov).log_prob(w) - torch.distributions.Normal(
        0, 0.6**0.5
    ).log_prob(w).sum(1)
    z = (ratio.mean() - q.kl(PRIOR)) / (ratio.std() / n**0.5)
    assert abs(float(z)) < 4


@pytest.mark.parametrize("family", POSTERIORS)
@torch.no_grad()
def test_samples_have_the_family_s_covariance(family: str) -> None:
    q = scrambled(family)
    n = 20_000
    w = q.sample(n).flatten(1).detach()
    cov = joint_covariance(q)
    z_mean = (w.mean(0) - q.mean.flatten()) / (cov.diagonal() / n).sqrt()
    centered = w - q.mean.flatten()
    products = torch.einsum("ni,nj->ij", centered, centered) / n
    # The variance of a Gaussian product moment.
    spread = (torch.outer(cov.diagonal(), cov.diagonal()) + cov.square()) / n
    z_cov = (products - cov) / spread.sqrt()
    assert float(z_mean.abs().max()) < 5
    assert float(z_cov.abs().max()) < 5.5


@pytest.mark.parametrize("family", POSTERIORS)
def test_variance_is_the_diagonal(family: str) -> None:
    q = scrambled(family)
    torch.testing.assert_close(q.variance().flatten(), joint_covariance(q).diagonal())


@pytest.mark.parametrize("family", GAUSSIANS)
def test_projection_is_a_stationary_point_of_the_kl(family: str) -> None:
    p = random_gaussian(3, 4)
    q = POSTERIORS[family](3, 4)
    q.project_(p)
    best = kl_to(q, p)
    for _ in range(20):
        other = POSTERIORS[family](3, 4)
        other.load_state_dict(q.state_dict())
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        # Low rank is a stated approximation, not the optimum.
        if family != "low_rank":
            assert kl_to(other, p) >= best - 1e-10
    mean_field = MeanField(3, 4)
    mean_field.project_(p)
    assert best <= kl_to(mean_field, p) + 1e-10 or family == "matrix_normal"


@pytest.mark.parametrize("family", GAUSSIANS)
def test_diagonal_gaussians_are_kept_by_every_family(family: str) -> None:
    # The matrix normal holds a diagonal only if units are proportional.
    shared = torch.rand(1, 4) + 0.2
    p = Diagonal(torch.randn(3, 4), shared * torch.tensor([[1.0], [0.5], [3.0]]))
    q = POSTERIORS[family](3, 4)
    q.project_(p)
    torch.testing.assert_close(q.variance(), p.covariance_diagonal(), atol=1e-9, rtol=0)
    torch.testing.assert_close(q.mean, p.mean)


@pytest.mark.parametrize("family", POSTERIORS)
def test_families_say_which_layers_they_support(family: str) -> None:
    posterior = POSTERIORS[family](4, 10)
    assert posterior.supports(nn.Linear(9, 4))
    assert posterior.supports(nn.Conv1d(2, 4, 3, groups=2)) == (family != "matrix_normal")


@pytest.mark.parametrize("family", ["mean_field", "low_rank", "full_covariance"])
def test_a_posterior_as_a_prior_is_the_same_gaussian(family: str) -> None:
    q = scrambled(family)
    law = q.as_prior()
    assert (law.var is None) != (law.scale_tril is None)
    covariance = (
        torch.diag_embed(law.var) if law.var is not None else law.scale_tril @ law.scale_tril.mT
    )
    torch.testing.assert_close(torch.block_diag(*covariance), joint_covariance(q))
    torch.testing.assert_close(law.mean, q.mean)
    assert not law.mean.requires_grad


@pytest.mark.parametrize(
    ("family", "reason"), [("matrix_normal", "correlates units"), ("dropout", "no density")]
)
def test_what_cannot_be_a_prior_says_why(family: str, reason: str) -> None:
    with pytest.raises(HeadstartError, match=reason):
        scrambled(family).as_prior()
