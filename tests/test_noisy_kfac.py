"""Noisy K-FAC: the exact posterior where that is a matrix normal, its step as an equation, and the common interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart import data as datasets
from headstart.curvature import kronecker_factors
from headstart.errors import HeadstartError

ROWS, FEATURES, OUTPUTS, NOISE, PRIOR = 400, 4, 3, 0.3, 2.0


def linear_data() -> tuple[Tensor, Tensor]:
    x = torch.randn(ROWS, FEATURES).double() @ torch.randn(FEATURES, FEATURES).double()
    return x, x @ torch.randn(FEATURES, OUTPUTS).double() + 0.5 + NOISE**0.5 * torch.randn(ROWS, OUTPUTS).double()


def exact(x: Tensor, y: Tensor, kl_weight: float = 1.0) -> tuple[Tensor, Tensor]:
    """Mean (outputs, features + 1) and the covariance of each output of Bayesian linear regression, its likelihood at `1/kl_weight`."""
    x = torch.cat([x, torch.ones(len(x), 1).to(x)], 1)
    precision = x.T @ x / (NOISE * kl_weight) + torch.eye(x.shape[1]).to(x) / PRIOR
    covariance = torch.linalg.inv(precision)
    return (covariance @ x.T @ y / (NOISE * kl_weight)).T, covariance


def fit(method: hs.NoisyKFAC, x: Tensor, y: Tensor, **options: Any) -> tuple[nn.Module, hs.Gaussian]:
    model = hs.bayesianize(nn.Linear(FEATURES, OUTPUTS).double(), posterior="matrix_normal", prior=PRIOR)
    lik = hs.Gaussian(NOISE, learn_noise=False)
    hs.fit(model, lik, (x, y), inference=method, seed=0, progress=False, lr_schedule="linear", **options)
    return model, lik


@pytest.mark.parametrize("kl_weight", [1.0, 0.2])
def test_on_a_linear_model_it_converges_to_the_exact_posterior(kl_weight: float) -> None:
    """Cov = I ⊗ (XᵀX/σ² + Λ)⁻¹ is a matrix normal. Sampled labels make V an estimate of I/σ²: off by 2 %, stated."""
    torch.manual_seed(0)
    x, y = linear_data()
    every = hs.NoisyKFAC(0.2, momentum=0.0, damping=0.0, kl_clip=None, factors_every=1, inverses_every=1)
    model, _ = fit(every, x, y, steps=500, batch_size=ROWS, samples=16, temperature=kl_weight)
    mean, covariance = exact(x, y, kl_weight)
    sd = covariance.diagonal().sqrt()
    assert float(((model.posterior.mean.detach() - mean) / sd).abs().max()) < 0.1
    u, v = (
        part.matrix().detach() @ part.matrix().detach().T for part in (model.posterior.inputs, model.posterior.outputs)
    )
    ours = torch.kron(v.contiguous(), u.contiguous())
    expected = torch.kron(torch.eye(OUTPUTS).double(), covariance.contiguous())
    assert float((ours - expected).norm() / expected.norm()) < 0.02


def test_a_step_is_the_natural_gradient() -> None:
    """`M − base · V̄ ∇(NELBO/N) Ū` with `(F + γ)⁻¹ = V̄ ⊗ Ū`; the mean network and the data's labels leave nothing to chance."""
    torch.manual_seed(0)
    x, y = linear_data()
    method = hs.NoisyKFAC(0.1, momentum=0.0, damping=0.05, kl_clip=None, decay=0.0, fisher="empirical", sampler="mean")
    model = hs.bayesianize(nn.Linear(FEATURES, OUTPUTS).double(), posterior="matrix_normal", prior=PRIOR)
    lik = hs.Gaussian(NOISE, learn_noise=False)
    (factors,) = kronecker_factors(model, lik, x, y, sampler="mean").values()
    before = model.posterior.mean.detach().clone()
    method.bind(model, lik, num_data=1000, samples=1, lr=1e-3, clip=None)
    method.update(x, y, 0.5)
    scale = 0.5 / 1000
    gradient = torch.autograd.functional.jacobian(
        lambda m: -lik.log_prob(x @ m[:, :-1].T + m[:, -1], y).mean() + scale * 0.5 * m.square().sum() / PRIOR, before
    )
    u, v = (
        part.matrix().detach() @ part.matrix().detach().T for part in (model.posterior.inputs, model.posterior.outputs)
    )
    values = [torch.linalg.eigvalsh(factor) for factor in factors]
    for damping, covariance in (
        (scale / PRIOR, torch.kron(v.contiguous(), u.contiguous()) / scale),
        (scale / PRIOR + 0.05, None),
    ):
        split = hs.curvature.split_damping(*values, damping)
        inputs, outputs = (torch.linalg.inv(factor) for factor in hs.curvature.damped(factors, split))
        if covariance is not None:  # the posterior is not damped, only the step
            torch.testing.assert_close(covariance, torch.kron(outputs.contiguous(), inputs.contiguous()))
    torch.testing.assert_close(model.posterior.mean.detach(), before - 0.1 * outputs @ gradient @ inputs)


def test_steps_are_no_longer_than_the_clip() -> None:
    torch.manual_seed(0)
    x, y = linear_data()
    moves = []
    for clip in (None, 1e-6):
        torch.manual_seed(1)
        method = hs.NoisyKFAC(0.1, momentum=0.0, kl_clip=clip)
        model = hs.bayesianize(nn.Linear(FEATURES, OUTPUTS).double(), posterior="matrix_normal")
        with torch.no_grad():
            model.posterior.mean.zero_()
        lik = hs.Gaussian(NOISE, learn_noise=False)
        method.bind(model, lik, num_data=ROWS, samples=4, lr=1e-3, clip=None)
        method.update(x, y, 1.0)
        moves.append(model.posterior.mean.detach())
    ratio = moves[1] / moves[0]
    torch.testing.assert_close(ratio, ratio[:1, :1].expand_as(ratio))  # the same way, shorter
    assert float(ratio[0, 0]) < 0.1


def test_noise_is_learned_with_the_weights() -> None:
    torch.manual_seed(0)
    x, y = linear_data()
    model, lik = hs.bayesianize(nn.Linear(FEATURES, OUTPUTS).double(), posterior="matrix_normal"), hs.Gaussian(3.0)
    hs.fit(model, lik, (x, y), steps=600, inference="noisy-kfac", seed=0, progress=False)
    assert 0.8 * NOISE < float(lik.noise_var.detach()) < 1.25 * NOISE


@pytest.mark.parametrize("init", ["stock", "orthogonal", "iblm"])
def test_any_start_learns_digits(init: str) -> None:
    data = datasets.load("digits")
    x, y = data.x.flatten(1)[:1500] / 8 - 1, data.y[:1500]
    net = nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 10))
    method = hs.NoisyKFAC()
    model, lik = method.convert(net), hs.Categorical(10)
    hs.initialize_(model, init, lik, (x, y), seed=0)
    hs.fit(model, lik, (x, y), steps=150, samples=4, inference=method, seed=0, progress=False)
    scores = hs.evaluate(model, lik, (data.x.flatten(1)[1500:] / 8 - 1, data.y[1500:]), 32, seed=0)
    assert scores["error"] < 0.12


def test_it_trains_a_net_of_convolutions_and_what_has_no_posterior_too(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    model = hs.bayesianize(net, posterior="matrix_normal")
    x = torch.randn(64, 1, 6, 6)
    y = (x.mean((1, 2, 3)) > 0).long()
    before = model[1].weight.detach().clone()
    history = hs.fit(
        model, hs.Categorical(2), (x, y), steps=60, samples=2, inference="noisy-kfac", seed=0, progress=False
    )
    assert history.steps[-1].nelbo < history.steps[0].nelbo
    assert not torch.equal(before, model[1].weight)
    hs.save(tmp_path / "run", model, hs.Categorical(2))
    again, lik = hs.load(tmp_path / "run", net=net)
    torch.testing.assert_close(hs.predict(again, lik, x, 8, seed=1).probs, hs.predict(model, lik, x, 8, seed=1).probs)


def test_the_first_covariance_is_that_of_the_start_and_the_batch_together() -> None:
    """The running factors begin as the posterior's own precision, so that a sharp start is not forgotten at the first look."""
    torch.manual_seed(0)
    x, y = linear_data()
    sds = []
    for log_scale in (0.0, -6.0):
        model = hs.bayesianize(nn.Linear(FEATURES, OUTPUTS).double(), posterior="matrix_normal")
        with torch.no_grad():
            model.posterior.outputs.log_diagonal.add_(log_scale)
        method = hs.NoisyKFAC()
        method.bind(model, hs.Gaussian(NOISE), num_data=ROWS, samples=1, lr=1e-3, clip=None)
        method.update(x[:2], y[:2], 1.0)
        sds.append(model.posterior.variance().mean().sqrt().detach())
    assert float(sds[1]) < 0.1 * float(sds[0])


def test_other_posteriors_are_refused() -> None:
    model = hs.bayesianize(nn.Linear(3, 2))
    with pytest.raises(HeadstartError, match="matrix_normal"):
        hs.fit(model, hs.Categorical(2), (torch.randn(8, 3), torch.randint(2, (8,))), steps=1, inference="noisy-kfac")
    with pytest.raises(HeadstartError, match="empirical"):
        hs.NoisyKFAC(fisher="exact")


def test_frozen_layers_stay() -> None:
    model = hs.bayesianize(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), posterior="matrix_normal")
    model[0].requires_grad_(False)
    before = model[0].posterior.state_dict()["mean"].clone()
    hs.fit(
        model,
        hs.Categorical(2),
        (torch.randn(8, 3), torch.randint(2, (8,))),
        steps=3,
        inference="noisy-kfac",
        progress=False,
    )
    assert torch.equal(before, model[0].posterior.mean)
