"""Noisy K-FAC: the exact posterior where that is a matrix normal, its step, the interface."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart import data as datasets
from headstart.curvature import kronecker_factors
from headstart.errors import HeadstartError
from headstart.inference.noisy_kfac import RunningFactors
from headstart.linalg.kronecker import Factors, damped, split_damping

ROWS, FEATURES, OUTPUTS, NOISE, PRIOR = 400, 4, 3, 0.3, 2.0


def linear_data() -> tuple[Tensor, Tensor]:
    x = torch.randn(ROWS, FEATURES).double() @ torch.randn(FEATURES, FEATURES).double()
    return x, x @ torch.randn(FEATURES, OUTPUTS).double() + 0.5 + NOISE**0.5 * torch.randn(
        ROWS, OUTPUTS
    ).double()


def exact(x: Tensor, y: Tensor, kl_weight: float = 1.0) -> tuple[Tensor, Tensor]:
    """Bayesian linear regression, its likelihood to the power `1/kl_weight`.

    Mean (outputs, features + 1), and the covariance of each output.
    """
    x = torch.cat([x, torch.ones(len(x), 1).to(x)], 1)
    precision = x.T @ x / (NOISE * kl_weight) + torch.eye(x.shape[1]).to(x) / PRIOR
    covariance = torch.linalg.inv(precision)
    return (covariance @ x.T @ y / (NOISE * kl_weight)).T, covariance


def as_unsure_as_the_prior_(model: nn.Module) -> None:
    q = model.posterior
    q.set_(PRIOR**0.5 * torch.eye(q.size).double(), torch.eye(q.units).double())


def covariances(model: nn.Module) -> tuple[Tensor, Tensor]:
    """U over inputs and V over outputs."""
    u, v = (part.matrix().detach() for part in (model.posterior.inputs, model.posterior.outputs))
    return (u @ u.T).contiguous(), (v @ v.T).contiguous()


def fit(
    method: hs.NoisyKFAC, x: Tensor, y: Tensor, **options: Any
) -> tuple[nn.Module, hs.Gaussian]:
    model = hs.bayesianize(
        nn.Linear(FEATURES, OUTPUTS).double(), posterior="matrix_normal", prior=PRIOR
    )
    lik = hs.Gaussian(NOISE, learn_noise=False)
    hs.fit(
        model,
        lik,
        (x, y),
        inference=method,
        seed=0,
        progress=False,
        lr_schedule="linear",
        **options,
    )
    return model, lik


@pytest.mark.slow
@pytest.mark.parametrize("kl_weight", [1.0, 0.2])
def test_on_a_linear_model_it_converges_to_the_exact_posterior(kl_weight: float) -> None:
    """Cov = I ⊗ (XᵀX/σ² + Λ)⁻¹ is a matrix normal.

    Sampled labels make V an estimate of I/σ²: off by 2 %.
    """
    torch.manual_seed(0)
    x, y = linear_data()
    every = hs.NoisyKFAC(
        0.2, momentum=0.0, damping=0.0, kl_clip=None, factors_every=1, inverses_every=1
    )
    model, _ = fit(every, x, y, steps=500, batch_size=ROWS, samples=16, temperature=kl_weight)
    mean, covariance = exact(x, y, kl_weight)
    sd = covariance.diagonal().sqrt()
    assert float(((model.posterior.mean.detach() - mean) / sd).abs().max()) < 0.1
    u, v = covariances(model)
    ours = torch.kron(v, u)
    expected = torch.kron(torch.eye(OUTPUTS).double(), covariance.contiguous())
    assert float((ours - expected).norm() / expected.norm()) < 0.02


def test_a_step_is_the_natural_gradient() -> None:
    """`M − base · V̄ ∇(NELBO/N) Ū` with `(F + γ)⁻¹ = V̄ ⊗ Ū`.

    The mean network and the data's labels leave nothing to chance.
    """
    torch.manual_seed(0)
    x, y = linear_data()
    method = hs.NoisyKFAC(
        0.1, momentum=0.0, damping=0.05, kl_clip=None, fisher="empirical", sampler="mean"
    )
    model = hs.bayesianize(
        nn.Linear(FEATURES, OUTPUTS).double(), posterior="matrix_normal", prior=PRIOR
    )
    # The averages then begin with the first measurement.
    as_unsure_as_the_prior_(model)
    lik = hs.Gaussian(NOISE, learn_noise=False)
    (factors,) = kronecker_factors(model, lik, x, y, sampler="mean").values()
    before = model.posterior.mean.detach().clone()
    method.bind(model, lik, num_data=1000, samples=1, lr=1e-3, clip=None)
    method.update(x, y, 0.5)
    scale = 0.5 / 1000
    gradient = torch.autograd.functional.jacobian(
        lambda m: (
            -lik.log_prob(x @ m[:, :-1].T + m[:, -1], y).mean()
            + scale * 0.5 * m.square().sum() / PRIOR
        ),
        before,
    )
    values = [torch.linalg.eigvalsh(factor) for factor in factors]

    def inverse(damping: float) -> list[Tensor]:
        return [torch.linalg.inv(part) for part in damped(factors, split_damping(*values, damping))]

    u, v = covariances(model)
    # The posterior is not damped, only the step.
    inputs, outputs = inverse(scale / PRIOR)
    torch.testing.assert_close(torch.kron(v, u), scale * torch.kron(outputs, inputs))
    inputs, outputs = inverse(scale / PRIOR + 0.05)
    torch.testing.assert_close(
        model.posterior.mean.detach(), before - 0.1 * outputs @ gradient @ inputs
    )


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_an_increment_is_as_long_as_the_clip_allows(momentum: float) -> None:
    """The first increment d keeps its direction, and `lr² dᵀ (F + γ) d` is `kl_clip`."""
    x, y = linear_data()
    moves, methods = [], []
    for clip in (None, 1e-6):
        torch.manual_seed(1)
        method = hs.NoisyKFAC(0.1, momentum=momentum, kl_clip=clip)
        model = hs.bayesianize(nn.Linear(FEATURES, OUTPUTS).double(), posterior="matrix_normal")
        before = model.posterior.mean.detach().clone()
        method.bind(
            model,
            hs.Gaussian(NOISE, learn_noise=False),
            num_data=ROWS,
            samples=4,
            lr=1e-3,
            clip=None,
        )
        method.update(x, y, 1.0)
        moves.append(model.posterior.mean.detach() - before)
        methods.append(method)
    ratio = moves[1] / moves[0]
    torch.testing.assert_close(ratio, ratio[:1, :1].expand_as(ratio))
    inverse = methods[1].curvature[""].inverse
    gradient = torch.linalg.inv(inverse.outputs) @ moves[1] @ torch.linalg.inv(inverse.inputs)
    torch.testing.assert_close((gradient * moves[1]).sum(), torch.tensor(1e-6).double())


@pytest.mark.slow
def test_noise_is_learned_with_the_weights() -> None:
    torch.manual_seed(0)
    x, y = linear_data()
    model, lik = (
        hs.bayesianize(nn.Linear(FEATURES, OUTPUTS).double(), posterior="matrix_normal"),
        hs.Gaussian(3.0),
    )
    hs.fit(model, lik, (x, y), steps=600, inference="noisy-kfac", seed=0, progress=False)
    assert 0.8 * NOISE < float(lik.noise_var.detach()) < 1.25 * NOISE


@pytest.mark.slow
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
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
    )
    model = hs.bayesianize(net, posterior="matrix_normal")
    x = torch.randn(64, 1, 6, 6)
    y = (x.mean((1, 2, 3)) > 0).long()
    before = model[1].weight.detach().clone()
    history = hs.fit(
        model,
        hs.Categorical(2),
        (x, y),
        steps=60,
        samples=2,
        inference="noisy-kfac",
        seed=0,
        progress=False,
    )
    assert history.steps[-1].nelbo < history.steps[0].nelbo
    assert not torch.equal(before, model[1].weight)
    hs.save(tmp_path / "run", model, hs.Categorical(2))
    again, lik = hs.load(tmp_path / "run", net=net)
    torch.testing.assert_close(
        hs.predict(again, lik, x, 8, seed=1).probs, hs.predict(model, lik, x, 8, seed=1).probs
    )


def test_the_first_covariance_is_that_of_the_start_and_the_batch_together() -> None:
    """The running factors begin as the posterior's own precision.

    So a sharp start is not forgotten at the first measurement.
    """
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
        hs.fit(
            model,
            hs.Categorical(2),
            (torch.randn(8, 3), torch.randint(2, (8,))),
            steps=1,
            inference="noisy-kfac",
        )
    with pytest.raises(HeadstartError, match="empirical"):
        hs.NoisyKFAC(fisher="exact")


@pytest.mark.parametrize("frozen", [0, 2])
def test_frozen_layers_stay(frozen: int) -> None:
    model = hs.bayesianize(
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), posterior="matrix_normal"
    )
    model[frozen].requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    data = torch.randn(8, 3), torch.randint(2, (8,))
    hs.fit(model, hs.Categorical(2), data, steps=3, inference="noisy-kfac", progress=False)
    changed = {
        name.split(".")[0]
        for name, value in model.state_dict().items()
        if not torch.equal(value, before[name])
    }
    assert changed == {str(2 - frozen)}
    model.requires_grad_(False)
    with pytest.raises(HeadstartError, match="frozen"):
        hs.fit(model, hs.Categorical(2), data, steps=1, inference="noisy-kfac", progress=False)


def test_collinear_features_in_single_precision_do_not_break_it() -> None:
    """Twenty pixels of rank three: rounding leaves their factor with eigenvalues below zero."""
    torch.manual_seed(0)
    x = (255 * torch.rand(500, 3)) @ torch.rand(3, 20)
    y = x[:, :1] / 255
    model, lik = (
        hs.bayesianize(nn.Linear(20, 1), posterior="matrix_normal"),
        hs.Gaussian(0.01, learn_noise=False),
    )
    method = hs.NoisyKFAC(factors_every=1, inverses_every=50, decay=0.5)
    method.bind(model, lik, num_data=10**6, samples=1, lr=1e-3, clip=None)
    for start in range(0, 500, 5):
        method.update(x[start : start + 5], y[start : start + 5], 1.0)
    assert float(torch.linalg.eigvalsh(method.curvature[""].inputs.double())[0]) < 0
    assert bool(torch.isfinite(model.posterior.mean).all())


def test_a_kl_of_next_to_no_weight_leaves_a_factor_that_can_be_inverted() -> None:
    """The logits' common shift has no curvature: with λ near 0 only the floor keeps S regular."""
    torch.manual_seed(0)
    for _ in range(20):
        model = hs.bayesianize(nn.Linear(3, 10), posterior="matrix_normal")
        slopes = torch.randn(50, 10)
        slopes = slopes - slopes.mean(1, keepdim=True)
        singular = Factors(torch.ones(4, 4) + torch.eye(4), slopes.T @ slopes)
        curvature = RunningFactors(model, singular, 1e-16)
        curvature.add(singular, 0.99)
        curvature.invert(1e-16, 0.0)
        assert bool(torch.isfinite(hs.kl(model).detach()))


def test_what_a_net_never_uses_or_kills_does_no_harm() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dead, self.live = nn.Linear(3, 2, bias=False), nn.Linear(3, 2)
            self.aside, self.never = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            self.aside(x)
            return self.live(x) + self.dead(0 * x)

    model = hs.bayesianize(Odd(), posterior="matrix_normal")
    data = torch.randn(40, 3), torch.randint(2, (40,))
    hs.fit(
        model, hs.Categorical(2), data, steps=15, samples=2, inference="noisy-kfac", progress=False
    )
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())


@pytest.mark.parametrize("prior", ["learned", "learned-gradient", "fan-in"])
@pytest.mark.parametrize("schedule", ["sigmoid", "warmup"])
def test_priors_are_learned_and_schedules_kept(prior: str, schedule: str) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    model = hs.bayesianize(net, posterior="matrix_normal", prior=prior)
    data = torch.randn(40, 3), torch.randint(2, (40,))
    options = {
        "steps": 12,
        "samples": 2,
        "prior_every": 5,
        "kl_schedule": schedule,
        "precision": "bfloat16",
    }
    history = hs.fit(
        model, hs.Categorical(2), data, inference="noisy-kfac", progress=False, **options
    )
    assert all(math.isfinite(step.nelbo) for step in history.steps)


@pytest.mark.parametrize(
    ("lik", "y"),
    [(hs.Gaussian(), torch.randn(8, 1)), (hs.Poisson(), torch.ones(8, 1))],
    ids=["gaussian", "poisson"],
)
def test_a_loss_that_is_not_finite_gets_the_usual_sentence(lik: hs.Likelihood, y: Tensor) -> None:
    model = hs.bayesianize(nn.Linear(3, 1), posterior="matrix_normal")
    with pytest.raises(HeadstartError, match="The loss became"):
        hs.fit(
            model,
            lik,
            (1e30 * torch.randn(8, 3), y),
            steps=2,
            inference="noisy-kfac",
            progress=False,
        )


@pytest.mark.parametrize(
    "options",
    [{"factors_every": 0}, {"decay": 2.0}, {"momentum": -1.0}, {"damping": -1.0}, {"base": 0.0}],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(HeadstartError):
        hs.NoisyKFAC(**options)
    with pytest.raises(HeadstartError, match="matrix_normal"):
        hs.NoisyKFAC().convert(nn.Linear(2, 2), posterior="mean_field")
