"""The Bayesian layer, and what one asks of a net of them: its layers, its KL, its past."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import headstart as hs
from headstart.errors import HeadstartError
from headstart.linalg.affine import affine, split
from headstart.network.forward import forward
from headstart.network.layer import (
    find_layers,
    kl_and_moments,
    layer_size,
    skeleton,
    stock_weights,
)
from headstart.network.samplers import Mean
from headstart.posteriors import POSTERIORS
from tests import cases
from tests.cases import chain, scramble_

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("name", cases.LAYERS)
def test_the_mean_of_a_fresh_layer_is_the_stock_layer(name: str) -> None:
    op = cases.LAYERS[name].make()
    layer = hs.bayesianize(op)
    x = torch.randn(3, *cases.LAYERS[name].shape)
    has_bias = op.bias is not None
    assert layer_size(op) == (layer.posterior.units, layer.posterior.size)
    assert layer.has_bias == has_bias
    assert layer.fan_in == layer.posterior.size - has_bias
    with torch.no_grad():
        layer.posterior.mean.copy_(stock_weights(op))
    layer.use(Mean())
    torch.testing.assert_close(layer(x), op(x))
    bare = skeleton(op)
    assert not list(bare.parameters())
    torch.testing.assert_close(affine(bare, x, *split(bare, stock_weights(op))), op(x))
    # The stock layer keeps what was copied from it.
    assert op.weight.requires_grad
    assert not stock_weights(op).requires_grad


def test_a_layer_draws_by_the_sampler_it_was_told_to_use() -> None:
    layer, x = cases.layer("linear")
    seen: list[tuple[nn.Module, nn.Module]] = []

    def sampler(op: nn.Module, posterior: nn.Module, x: Tensor) -> Tensor:
        seen.append((op, posterior))
        return x[:, :1]

    layer.use(sampler)
    assert torch.equal(layer(x), x[:, :1])
    assert seen == [(layer.op, layer.posterior)]
    assert "sampler" not in layer.state_dict()


class Tied(nn.Module):
    """Holds one layer under two names, beside modules without any and a gap."""

    def __init__(self) -> None:
        super().__init__()
        self.first = hs.bayesianize(nn.Linear(3, 3))
        self.gap: nn.Module | None
        self.register_module("gap", None)
        self.inner = nn.Sequential(nn.ReLU(), self.first, hs.bayesianize(nn.Linear(3, 2)))


def test_layers_are_found_by_name_each_once_in_the_order_of_named_modules() -> None:
    model = Tied()
    assert find_layers(model) == {"first": model.first, "inner.2": model.inner[2]}
    assert list(find_layers(model)) == [
        name for name, module in model.named_modules() if type(module) is hs.Bayesian
    ]
    assert find_layers(model.first) == {"": model.first}


def test_a_net_without_bayesian_layers_is_refused_where_one_is_needed() -> None:
    assert find_layers(nn.ReLU()) == {}
    with pytest.raises(hs.HeadstartError, match="This Sequential has no Bayesian layer; pass it"):
        hs.bayesian_layers(chain())
    with pytest.raises(hs.HeadstartError, match="bayesianize first"):
        hs.kl(nn.Linear(2, 2))


def test_a_layer_of_a_subclass_is_found_too() -> None:
    class Own(hs.Bayesian):
        """A user's own."""

    layer = hs.bayesianize(nn.Linear(2, 2))
    own = Own(layer.op, layer.posterior, layer.prior)
    assert find_layers(nn.Sequential(own)) == {"0": own}


@pytest.mark.parametrize("prior", cases.PRIORS)
@pytest.mark.parametrize("family", POSTERIORS)
def test_the_kl_of_a_net_is_the_sum_over_its_layers(family: str, prior: str) -> None:
    model = hs.bayesianize(chain(), posterior=family, prior=cases.PRIORS[prior])
    scramble_(model)
    layers = hs.bayesian_layers(model).values()
    total, moments = kl_and_moments(model)
    torch.testing.assert_close(total, torch.stack([layer.kl() for layer in layers]).sum())
    assert torch.equal(total, hs.kl(model))
    assert set(moments) <= {layer.posterior for layer in layers}


def test_families_side_by_side_add_up() -> None:
    model = hs.bayesianize(chain(), posterior={"0": "low_rank", "2": "mean_field"}, prior=0.7)
    scramble_(model)
    expected = model[0].posterior.kl(model[0].prior) + model[2].posterior.kl(model[2].prior)
    torch.testing.assert_close(hs.kl(model), expected)


@pytest.mark.parametrize("sampler", ["local", "weights"])
def test_draws_with_the_moments_of_the_kl_are_the_draws_without(sampler: str) -> None:
    model, x = hs.bayesianize(chain(), prior=0.7), torch.randn(5, 4)
    scramble_(model)
    apart = copy.deepcopy(model)
    total, moments = kl_and_moments(model)
    assert len(moments) == 2
    torch.manual_seed(1)
    (forward(model, x, 8, sampler, moments=moments).square().sum() + total).backward()
    torch.manual_seed(1)
    (forward(apart, x, 8, sampler).square().sum() + hs.kl(apart)).backward()
    for mine, other in zip(model.parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("family", ["mean_field", "low_rank", "full_covariance"])
@torch.no_grad()
def test_inheriting_makes_the_posterior_the_prior_and_stays_behind(family: str) -> None:
    model = hs.bayesianize(chain(), posterior=family)
    scramble_(model)
    hs.inherit_(model)
    assert float(hs.kl(model)) == pytest.approx(0.0, abs=1e-9)
    scramble_(model)
    assert float(hs.kl(model)) > 0.1


def test_the_repr_says_whether_there_is_a_bias() -> None:
    def shown(**options: Any) -> str:
        return repr(hs.bayesianize(nn.Linear(3, 2, **options)))

    assert shown() == (
        "Bayesian(Linear(in_features=3, out_features=2), MeanField(units=2, size=4), "
        "Isotropic(var=1))"
    )
    assert "bias=False), MeanField(units=2, size=3)" in shown(bias=False)


@pytest.mark.parametrize("name", cases.LAYERS)
def test_a_layer_shows_its_mean_as_weight_and_bias(name: str) -> None:
    op = cases.LAYERS[name].make()
    layer = hs.bayesianize(op)
    assert torch.equal(layer.weight, op.weight)
    assert (layer.bias is None) == (op.bias is None)
    if op.bias is not None:
        assert torch.equal(layer.bias, op.bias)
    assert not layer.weight.requires_grad
    assert {key.partition(".")[0] for key in layer.state_dict()} == {"posterior"}
    with pytest.raises(AttributeError):
        layer.weight = torch.zeros_like(op.weight)
    with pytest.raises(KeyError, match="already exists"):
        layer.weight = nn.Parameter(torch.zeros_like(op.weight))


def test_the_weight_of_a_mixture_is_the_average_of_its_members() -> None:
    layer = hs.bayesianize(nn.Linear(3, 2), members=4)
    scramble_(layer)
    seen = []
    for index in range(4):
        with hs.member(layer, index):
            seen.append((layer.weight.clone(), layer.bias.clone()))
    weights, biases = zip(*seen, strict=True)
    torch.testing.assert_close(layer.weight, torch.stack(weights).mean(0))
    torch.testing.assert_close(layer.bias, torch.stack(biases).mean(0))


def test_a_forward_that_computes_with_the_weight_of_a_layer_is_refused() -> None:
    """Else every draw would use the mean, in silence."""

    class Functional(nn.Module):
        def __init__(self, use: Callable[[Tensor, Tensor], Tensor]) -> None:
            super().__init__()
            self.head, self.use = nn.Linear(3, 2), use

        def forward(self, x: Tensor) -> Tensor:
            return self.use(x, self.head.weight)

    for use in (F.linear, lambda x, w: x @ w.T, lambda x, w: torch.einsum("bi,oi->bo", x, w)):
        model = hs.bayesianize(Functional(use))
        with pytest.raises(HeadstartError, match="call the layer itself"):
            hs.draw(model, torch.randn(4, 3))
