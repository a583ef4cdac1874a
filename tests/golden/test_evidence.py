"""The golden identity: where q can hold the exact posterior, the ELBO is the evidence."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

import headstart as hs

pytestmark = pytest.mark.usefixtures("float64")
NOISE, PRIOR = 0.3, 0.7


def data(rows: int = 40) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, 5)
    return x, x @ torch.randn(5, 2) + 0.4 + NOISE**0.5 * torch.randn(rows, 2)


def exact_elbo(model: nn.Module, x: Tensor, y: Tensor, noise: float) -> Tensor:
    """E_q[log p(y|x, W)] − KL in closed form: a linear model needs only two moments of W."""
    layer = hs.bayesian_layers(model)[""]
    mean, var = (
        layer.posterior.mean[:, :5] @ x.T + layer.posterior.mean[:, 5:],
        layer.posterior.local_variance(layer.op, x).T,
    )
    expected = -0.5 * (((y.T - mean).square() + var) / noise + math.log(2 * math.pi * noise)).sum()
    return expected - layer.kl()


def log_evidence(x: Tensor, y: Tensor, noise: float, prior: float) -> Tensor:
    """log p(y) written out densely."""
    rows = torch.cat([x, torch.ones(len(x), 1)], 1)
    cov = noise * torch.eye(len(x)) + prior * rows @ rows.T
    return MultivariateNormal(torch.zeros(len(x)), cov).log_prob(y.T).sum()


@pytest.mark.parametrize(
    "posterior", ["full_covariance", lambda *a, **k: hs.LowRank(*a, rank=6, **k)]
)
def test_elbo_after_iblm_is_the_log_evidence(posterior: object) -> None:
    x, y = data()
    model = hs.bayesianize(nn.Linear(5, 2), posterior=posterior, prior=PRIOR)
    hs.initialize_(model, "iblm", hs.Gaussian(NOISE), (x, y))
    elbo = exact_elbo(model, x, y, NOISE)
    assert float(elbo.detach()) == pytest.approx(float(log_evidence(x, y, NOISE, PRIOR)), abs=1e-9)


def test_the_library_s_own_nelbo_agrees_by_z_test() -> None:
    x, y = data()
    model = hs.bayesianize(nn.Linear(5, 2), posterior="full_covariance", prior=PRIOR)
    lik = hs.Gaussian(NOISE, learn_noise=False)
    hs.initialize_(model, "iblm", lik, (x, y))
    with torch.no_grad():
        values = torch.stack(
            [hs.nelbo(model, lik, x, y, num_data=len(x), samples=16).value for _ in range(400)]
        )
    z = (values.mean() + log_evidence(x, y, NOISE, PRIOR)) / (values.std() / len(values) ** 0.5)
    assert abs(float(z)) < 4


@pytest.mark.parametrize("posterior", ["mean_field", "matrix_normal", "low_rank"])
def test_a_smaller_family_stays_below_the_evidence(posterior: str) -> None:
    x, y = data()
    model = hs.bayesianize(nn.Linear(5, 2), posterior=posterior, prior=PRIOR)
    hs.initialize_(model, "iblm", hs.Gaussian([NOISE, NOISE]), (x, y))
    gap = log_evidence(x, y, NOISE, PRIOR) - exact_elbo(model, x, y, NOISE)
    # The noise is the same for both outputs, so their posteriors are one Kronecker product:
    # the matrix normal is exact too.
    assert (
        float(gap.detach()) == pytest.approx(0.0, abs=1e-9)
        if posterior == "matrix_normal"
        else float(gap.detach()) > 1e-3
    )


def test_batches_and_target_scaling_change_nothing() -> None:
    """The read-out is summed over batches.

    A likelihood that scales its targets is another way to write the same model.
    """
    x, y = data()
    exact = log_evidence(x, (y - 1.0) / 2.0, NOISE, PRIOR) - y.numel() * math.log(2.0)
    model = hs.bayesianize(nn.Linear(5, 2), posterior="full_covariance", prior=PRIOR)
    lik = hs.Gaussian(NOISE * 4, loc=1.0, scale=2.0)
    hs.initialize_(model, "iblm", lik, [(x[:13], y[:13]), (x[13:], y[13:])])
    elbo = exact_elbo(model, x, (y - 1.0) / 2.0, NOISE) - y.numel() * math.log(2.0)
    assert float(elbo.detach()) == pytest.approx(float(exact), abs=1e-9)


def test_elbo_of_the_exact_posterior_is_stationary_in_every_parameter() -> None:
    x, y = data()
    model = hs.bayesianize(nn.Linear(5, 2), posterior="full_covariance", prior=PRIOR)
    hs.initialize_(model, "iblm", hs.Gaussian(NOISE), (x, y))
    exact_elbo(model, x, y, NOISE).backward()
    assert max(float(p.grad.abs().max()) for p in model.parameters()) < 1e-8


POSITIONS = torch.tensor([0.1, 0.5, 0.2, 0.9, 0.3, 0.4], dtype=torch.float64)


class Pooled(nn.Module):
    """A head at every position, one number for each row and unit: linear in its outputs."""

    def __init__(self, head: nn.Module, pool: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.head, self.pool = head, pool

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.head(x)) + 0.25 * x.flatten(1)[:, :1]


class Twice(nn.Module):
    """One head on both halves of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x[:, 0]) - 0.5 * self.head(x[:, 1])


HEADS = {
    "linear on sequences": (lambda: Pooled(nn.Linear(5, 2), lambda f: f.mean(1)), (6, 5)),
    "a sum": (lambda: Pooled(nn.Linear(5, 2), lambda f: f.sum(1)), (6, 5)),
    "weights of positions": (lambda: Pooled(nn.Linear(5, 2), lambda f: POSITIONS @ f), (6, 5)),
    "without bias": (lambda: Pooled(nn.Linear(5, 2, bias=False), lambda f: f.mean(1)), (6, 5)),
    "conv1d": (lambda: Pooled(nn.Conv1d(3, 2, 2, stride=2), lambda f: f.mean(2)), (3, 8)),
    "conv2d": (
        lambda: nn.Sequential(nn.Conv2d(3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        (3, 4, 5),
    ),
    "patches": (
        lambda: nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        (2, 4, 4),
    ),
    "transposed": (lambda: Pooled(nn.ConvTranspose1d(3, 2, 2), lambda f: f.mean(2)), (3, 4)),
    "a scale": (lambda: Pooled(nn.Linear(5, 2), lambda f: 7 * f), (5,)),
    "called twice": (Twice, (2, 5)),
}


def pooled_rows(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The net as a linear model: its offset and its rows (N, units, size), by its Jacobian."""
    (layer,) = hs.bayesian_layers(model).values()
    units, size = layer.posterior.units, layer.posterior.size

    def output(flat: Tensor) -> Tensor:
        with hs.drawing(model, "mean"):
            return torch.func.functional_call(
                model, {next(n for n, p in model.named_parameters() if n.endswith("mean")): flat}, x
            )

    zero = torch.zeros(units, size)
    slopes = torch.autograd.functional.jacobian(output, zero)
    return output(zero).detach(), torch.stack([slopes[:, u, u] for u in range(units)], 1)


@pytest.mark.parametrize("kind", HEADS)
def test_elbo_of_a_pooled_head_is_the_log_evidence(kind: str) -> None:
    """One row of the regression for each example, as its positions' weights make it."""
    make, shape = HEADS[kind]
    x = 1.0 + torch.randn(30, *shape)
    model = hs.bayesianize(make(), posterior="full_covariance", prior=PRIOR)
    offset, rows = pooled_rows(model, x)
    y = torch.einsum("nud,ud->nu", rows, torch.randn(rows.shape[1:])) + NOISE**0.5 * torch.randn(
        30, 2
    )
    hs.initialize_(model, "iblm", hs.Gaussian(NOISE, learn_noise=False), (x, y + offset))
    (layer,) = hs.bayesian_layers(model).values()
    factor = layer.posterior.factors()
    covariance = torch.einsum("rui,ruj->uij", factor, factor)
    mean = torch.einsum("nud,ud->nu", rows, layer.posterior.mean)
    var = torch.einsum("nud,ude,nue->nu", rows, covariance, rows)
    fit = -0.5 * (((y - mean).square() + var) / NOISE + math.log(2 * math.pi * NOISE)).sum()
    exact = sum(
        MultivariateNormal(
            torch.zeros(30), NOISE * torch.eye(30) + PRIOR * rows[:, u] @ rows[:, u].T
        ).log_prob(y[:, u])
        for u in range(2)
    )
    assert float((fit - layer.kl()).detach()) == pytest.approx(float(exact), abs=1e-9)
