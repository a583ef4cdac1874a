"""A mixture is its members: K separate models, with the same noise, to the last digits."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from tests.cases import LAYERS
from torch import Tensor, nn

import headstart as hs
from headstart.inference import SVI
from headstart.network.layer import bayesian_layers
from headstart.predictive import Predictive

pytestmark = pytest.mark.usefixtures("float64")
MEMBERS = 3
FAMILIES = ["mean_field", "low_rank", "full_covariance"]


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))


def convolutional() -> nn.Module:
    convolutions = nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 2, groups=2), nn.MaxPool2d(2)
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(24, 2))


class Residual(nn.Module):
    """The input goes two ways, so that it must come once for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.last = nn.Linear(4, 5), nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.tanh(self.one(x)) + self.two(x))
        return out


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense": (dense, (4,)),
    "convolutional": (convolutional, (2, 7, 7)),
    "residual": (Residual, (4,)),
    "sequence": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), (5, 4)),
}


def randomized(model: nn.Module) -> nn.Module:
    """Every posterior parameter moved, so that all members differ."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def mixture(net: nn.Module, family: str = "mean_field", members: int = MEMBERS) -> nn.Module:
    return randomized(hs.bayesianize(net, family, prior=0.7, members=members))


def separate(model: nn.Module, net: nn.Module, family: str) -> list[nn.Module]:
    """The members of a mixture as models of their own."""
    found = []
    for index in range(MEMBERS):
        alone = hs.bayesianize(net, family, prior=0.7)
        with hs.member(model, index):
            alone.load_state_dict(copy.deepcopy(model.state_dict()))
        found.append(alone)
    return found


@dataclass
class Recorded:
    """Fresh noise that is kept, and what one member has had of it."""

    drawn: list[Tensor] = field(default_factory=list)

    def __call__(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        self.drawn.append(torch.randn(shape, dtype=like.dtype))
        return self.drawn[-1]

    def of(self, index: int) -> Callable[[tuple[int, ...], Tensor], Tensor]:
        numbers = iter(self.drawn)

        def again(shape: tuple[int, ...], like: Tensor) -> Tensor:
            every = next(numbers)
            for axis in range(1, every.ndim):
                if every.shape[axis] % MEMBERS:
                    continue
                mine = every.chunk(MEMBERS, dim=axis)[index]
                if mine.shape == shape:
                    return mine
                if axis == 1 and mine.flatten(0, 2).shape == shape:
                    return mine.flatten(0, 2)
            raise AssertionError(f"{tuple(every.shape)} holds no {shape}")

        return again


def assert_close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("sampler", ["local", "weights", "mean"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", NETS)
def test_draws_are_those_of_separate_models(name: str, family: str, sampler: str) -> None:
    make, shape = NETS[name]
    net, x, noise = make(), torch.randn(4, *shape), Recorded()
    model = mixture(net, family)
    draws = hs.draw(model, x, 4 * MEMBERS, sampler, noise)
    alone = [
        hs.draw(each, x, 4, sampler, noise.of(index))
        for index, each in enumerate(separate(model, net, family))
    ]
    assert_close(draws, torch.cat(alone))


@pytest.mark.parametrize("sampler", ["local", "weights"])
@pytest.mark.parametrize("name", LAYERS)
def test_every_kind_of_layer(name: str, sampler: str) -> None:
    make, shape = LAYERS[name]
    net, x, noise = make(), torch.randn(4, *shape), Recorded()
    model = mixture(net)
    draws = hs.draw(model, x, 2 * MEMBERS, sampler, noise)
    alone = separate(model, net, "mean_field")
    each = [hs.draw(m, x, 2, sampler, noise.of(k)) for k, m in enumerate(alone)]
    assert_close(draws, torch.cat(each))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_nelbo_is_the_mean_and_the_gradient_of_the_sum_is_each_members_own(family: str) -> None:
    net, x, y, noise = dense(), torch.randn(6, 4), torch.randn(6, 2), Recorded()
    model, likelihood = mixture(net, family), hs.Gaussian(0.5)

    def objective(model: nn.Module, samples: int, noise: object) -> Tensor:
        draws = hs.draw(model, x, samples, "local", noise)  # type: ignore[arg-type]
        return hs.kl(model) - likelihood.log_prob(draws, y).sum() * (100 / (samples * 6))

    whole = objective(model, 4 * MEMBERS, noise)
    alone = separate(model, net, family)
    values = [objective(each, 4, noise.of(index)) for index, each in enumerate(alone)]
    assert_close(whole, torch.stack(values).mean())
    (MEMBERS * whole).backward()
    sum(values[1:], start=values[0]).backward()
    layers = bayesian_layers(model)
    for index, each in enumerate(alone):
        for name, layer in bayesian_layers(each).items():
            stacked = layers[name].posterior
            for key, parameter in layer.posterior.named_parameters():
                assert stacked.unit_axes is not None
                axis = stacked.unit_axes.get(key, 0)
                gradient = stacked.get_parameter(key).grad
                assert gradient is not None
                mine = gradient.chunk(MEMBERS, dim=axis)[index]
                torch.testing.assert_close(mine, parameter.grad, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("each", [4, 8])
@pytest.mark.parametrize("sampler", ["local", "weights"])
@pytest.mark.parametrize("name", ["dense", "convolutional"])
def test_the_terms_of_the_nelbo(name: str, sampler: str, each: int) -> None:
    make, shape = NETS[name]
    net, x, y = make(), torch.randn(8, *shape), torch.randn(8, 2)
    model, likelihood = mixture(net), hs.Gaussian(0.5)
    divergences = [hs.kl(alone) for alone in separate(model, net, "mean_field")]
    found = hs.nelbo(
        model,
        likelihood,
        x,
        y,
        num_data=100,
        samples=each * MEMBERS,
        sampler=sampler,
        kl_weight=0.5,
    )
    assert_close(found.kl, torch.stack(divergences).mean())
    assert_close(found.value, found.nll + 0.5 * found.kl)
    # By noise that is antithetic and common within a member: the mean over many such estimates.
    few = [
        hs.nelbo(model, likelihood, x, y, num_data=100, samples=each * MEMBERS, sampler=sampler).nll
        for _ in range(200)
    ]
    estimates = torch.stack(few).detach()
    draws = hs.draw(model, x, 400 * MEMBERS, "local" if sampler == "local" else "weights")
    independent = -likelihood.log_prob(draws, y).sum(1).detach() * (100 / 8)
    error = math.sqrt(float(estimates.var() / 200 + independent.var() / len(independent)))
    assert abs(float(estimates.mean() - independent.mean())) < 4 * error


def test_a_step_of_svi_gives_each_member_the_step_that_it_would_take_alone() -> None:
    net, x, y = dense(), torch.randn(6, 4), torch.randn(6, 2)
    model = mixture(net)
    for layer in bayesian_layers(model).values():
        # So little noise that nothing depends on it.
        layer.posterior.get_parameter("logvar").data.fill_(-80.0)
    alone = separate(model, net, "mean_field")
    for each in [model, *alone]:
        method = SVI()
        likelihood = hs.Gaussian(0.5, learn_noise=False)
        method.bind(each, likelihood, num_data=60, samples=MEMBERS, lr=0.01, clip=None)
        method.update(x, y, 1.0)
    for index, each in enumerate(alone):
        with hs.member(model, index):
            for name, layer in bayesian_layers(each).items():
                found = bayesian_layers(model)[name].posterior.mean
                torch.testing.assert_close(found, layer.posterior.mean, atol=1e-9, rtol=0)


def test_a_mixture_of_copies_is_one() -> None:
    x, y, likelihood = torch.randn(7, 4), torch.randn(7, 2), hs.Gaussian(0.5)
    net = dense()
    one = hs.bayesianize(net)
    model = hs.bayesianize(net, members=4)
    assert_close(hs.kl(model), hs.kl(one))
    for sampler in ("local", "mean"):
        torch.manual_seed(0)
        draws = hs.draw(one, x, 8, sampler)
        torch.manual_seed(0)
        # The same random numbers go to the same samples, in another order.
        reordered = hs.draw(model, x, 8, sampler).unflatten(0, (4, 2)).transpose(0, 1).flatten(0, 1)
        assert_close(reordered, draws)
    single = hs.predict(one, likelihood, x, 16, seed=0)
    found = hs.predict(model, likelihood, x, 16, seed=0)
    assert_close(found.mean, single.mean)
    assert_close(found.std, single.std)
    assert_close(found.epistemic_std, single.epistemic_std)
    assert_close(found.log_prob(y), single.log_prob(y))


@pytest.mark.parametrize("members", [2, 5])
def test_a_mixture_of_copies_has_the_nelbo_of_one(members: int) -> None:
    """With the sampler that draws nothing but means there is no noise to tell them apart."""
    x, y, likelihood, net = torch.randn(7, 4), torch.randn(7, 2), hs.Gaussian(0.5), dense()
    values = [
        hs.nelbo(model, likelihood, x, y, num_data=70, samples=members, sampler="mean").value
        for model in (hs.bayesianize(net), hs.bayesianize(net, members=members))
    ]
    assert_close(values[0], values[1])


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
@pytest.mark.parametrize("sampler", ["local", "weights"])
def test_moments_of_the_predictive_are_those_of_separate_models(sampler: str, kind: str) -> None:
    net, x, noise = dense(), torch.randn(5, 4), Recorded()
    model = mixture(net)
    likelihood = hs.Gaussian(0.3) if kind == "gaussian" else hs.Categorical(2)
    found = Predictive(hs.draw(model, x, 6 * MEMBERS, sampler, noise), likelihood, MEMBERS)
    alone = [
        Predictive(hs.draw(each, x, 6, sampler, noise.of(index)), likelihood)
        for index, each in enumerate(separate(model, net, "mean_field"))
    ]
    means = torch.stack([each.mean for each in alone])
    assert_close(found.member_mean, means)
    assert_close(found.mean, means.mean(0))
    # Six draws of each member: what they add to the variance of the means is within.
    inner = torch.stack([each.epistemic_std.square() for each in alone]).mean(0)
    by_chance = (MEMBERS - 1) / MEMBERS * inner * 6 / 5 / 6
    between = (means.var(0, correction=0) - by_chance).clamp_min(0)
    within = inner + means.var(0, correction=0) - between
    assert_close(found.within_members_std.square(), within)
    assert_close(found.between_members_std.square(), between)
    assert_close(found.epistemic_std.square(), within + between)
    aleatoric = torch.stack([each.aleatoric_std.square() for each in alone]).mean(0)
    assert_close(found.std.square(), within + between + aleatoric)
    if kind == "categorical":
        entropies = torch.stack([each.entropy for each in alone]).mean(0)
        assert_close(found.mutual_information_between, found.entropy - entropies)
        inside = torch.stack([each.mutual_information for each in alone]).mean(0)
        assert_close(found.mutual_information, inside + found.mutual_information_between)


@pytest.mark.parametrize("sampler", ["local", "weights"])
def test_predict_keeps_the_draws_of_a_member_together(sampler: str) -> None:
    """Members far apart: every draw tells whose it is, through all chunks."""
    net, likelihood = nn.Linear(2, 1), hs.Gaussian()
    model = hs.bayesianize(net, members=3)
    with torch.no_grad():
        for index in range(3):
            with hs.member(model, index):
                layer = bayesian_layers(model)[""].posterior
                layer.mean.zero_()
                layer.mean[:, -1] = 100.0 * index
                layer.get_parameter("logvar").fill_(-4.0)
    found = hs.predict(model, likelihood, torch.randn(600, 2), 100, sampler=sampler, seed=0)
    assert found.draws.shape == (102, 600, 1)
    nearest = (found.draws / 100).round().unflatten(0, (3, 34))
    assert torch.equal(nearest, torch.arange(3.0).reshape(3, 1, 1, 1).expand_as(nearest))
    assert abs(float(found.between_members_std.mean()) - 100 * math.sqrt(2 / 3)) < 1


def kl_by_quadrature(means: Tensor, variances: Tensor, prior_var: float) -> float:
    """KL of a mixture of Gaussians in one dimension to N(0, prior_var)."""
    grid = torch.linspace(-60, 60, 2_000_001)
    each = torch.distributions.Normal(means, variances.sqrt()).log_prob(grid.unsqueeze(1))
    q = each.logsumexp(1) - math.log(len(means))
    p = torch.distributions.Normal(0.0, math.sqrt(prior_var)).log_prob(grid)
    return float(torch.trapezoid(torch.where(q > -700, q.exp() * (q - p), 0.0), grid))


@pytest.mark.parametrize(
    ("means", "gap"),
    [([0.5, 0.5, 0.5], 0.0), ([-0.5, 0.1, 1.0], None), ([-30.0, 0.0, 30.0], math.log(3))],
)
def test_the_mean_of_the_kls_bounds_that_of_the_mixture(
    means: list[float], gap: float | None
) -> None:
    """By at most log K: nothing for copies, all of it for members that do not overlap."""
    model = hs.bayesianize(nn.Linear(1, 1, bias=False), prior=2.0, members=3)
    with torch.no_grad():
        posterior = bayesian_layers(model)[""].posterior
        posterior.mean.copy_(torch.tensor(means).unsqueeze(1))
        posterior.get_parameter("logvar").fill_(math.log(0.4))
    exact = kl_by_quadrature(torch.tensor(means), torch.full((3,), 0.4), 2.0)
    found = float(hs.kl(model).detach()) - exact
    assert -1e-9 <= found <= math.log(3) + 1e-9
    if gap is not None:
        assert abs(found - gap) < 1e-8
