"""What every inference method shares: which posteriors it takes, what it learns, its state."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import headstart as hs
from headstart.inference import INFERENCE, make_inference
from headstart.inference.base import LIKELIHOOD_LR, likelihood_apart, trainable
from headstart.posteriors import POSTERIORS
from tests.cases import chain

FAMILIES = {
    "svi": set(POSTERIORS),
    "mc-dropout": {"dropout"},
    "noisy-kfac": {"matrix_normal"},
}
"""What each method can train."""


@pytest.mark.parametrize("family", POSTERIORS)
@pytest.mark.parametrize("method", INFERENCE)
def test_a_method_converts_and_binds_the_families_it_supports(method: str, family: str) -> None:
    inference, net = make_inference(method), chain()
    model = hs.bayesianize(net, posterior=family)
    supported = family in FAMILIES[method]
    assert inference.supports(model[0].posterior) == supported
    bound: dict[str, Any] = {"num_data": 10, "samples": 2, "lr": 1e-3, "clip": None}
    if supported:
        assert inference.convert(net, posterior=family)[0].posterior.name == family
        inference.bind(model, hs.Gaussian(), **bound)
        return
    sentence = f"{method} trains nets with posterior='{inference.posterior}', but layer '0' has"
    with pytest.raises(hs.HeadstartError, match=sentence):
        inference.convert(net, posterior=family)
    with pytest.raises(hs.HeadstartError, match=f"{sentence} '{family}': convert the net with"):
        inference.bind(model, hs.Gaussian(), **bound)


def test_a_family_for_each_layer_is_judged_layer_by_layer() -> None:
    families = {"0": "matrix_normal", "2": "matrix_normal"}
    model = hs.NoisyKFAC().convert(chain(), posterior=families)
    assert {layer.posterior.name for layer in hs.bayesian_layers(model).values()} == {
        "matrix_normal"
    }
    with pytest.raises(hs.HeadstartError, match="but layer '2' has 'mean_field'"):
        hs.NoisyKFAC().convert(chain(), posterior={**families, "2": "mean_field"})


def test_a_net_that_is_one_layer_is_named_by_what_it_is() -> None:
    with pytest.raises(hs.HeadstartError, match="but this Linear has 'low_rank'"):
        hs.MCDropout().convert(nn.Linear(2, 2), posterior="low_rank", where=None)


def test_a_method_s_own_family_is_the_default() -> None:
    found = {
        name: hs.bayesian_layers(make_inference(name).convert(chain()))["0"].posterior.name
        for name in INFERENCE
    }
    assert found == {"svi": "mean_field", "mc-dropout": "dropout", "noisy-kfac": "matrix_normal"}


def test_what_is_learned_counts_once_and_the_likelihood_moves_faster() -> None:
    net = nn.Linear(3, 1)
    net.bias.requires_grad_(False)
    likelihood = hs.Gaussian()
    assert trainable(net, net) == [net.weight]
    weights, others = likelihood_apart(net, likelihood, lr=0.01)
    assert weights == {"params": [net.weight]}
    assert others["params"] == list(likelihood.parameters())
    assert others["lr"] == pytest.approx(0.01 * LIKELIHOOD_LR)
    assert likelihood_apart(net, hs.Categorical(3), lr=0.01) == [{"params": [net.weight]}]


def trained(width: int, updates: int) -> tuple[hs.SVI, torch.Tensor, torch.Tensor]:
    """SVI after some updates on rows that stay the same."""
    torch.manual_seed(0)
    inference = hs.SVI()
    x = torch.randn(8, 2)
    inference.bind(
        hs.bayesianize(nn.Linear(2, width)),
        hs.Gaussian(),
        num_data=8,
        samples=2,
        lr=0.1,
        clip=None,
    )
    for _ in range(updates):
        inference.update(x, x.new_zeros(8, width), 1.0)
    return inference, x, x.new_zeros(8, width)


def test_a_method_goes_on_from_its_state() -> None:
    first, x, y = trained(1, updates=3)
    second, *_ = trained(1, updates=0)
    second.model.load_state_dict(first.model.state_dict())
    second.likelihood.load_state_dict(first.likelihood.state_dict())
    second.load_state_(copy.deepcopy(first.state()))
    for inference in (first, second):
        torch.manual_seed(1)
        inference.update(x, y, 1.0)
    for mine, other in zip(trainable(first.model), trainable(second.model), strict=True):
        assert torch.equal(mine, other)


def test_the_state_of_another_model_is_refused() -> None:
    first, *_ = trained(3, updates=1)
    other, *_ = trained(2, updates=0)
    with pytest.raises(hs.HeadstartError, match=r"has shape \(3, 3\) for a parameter of shape"):
        other.load_state_(first.state())


def test_an_unknown_method_is_named_and_an_own_one_is_kept() -> None:
    with pytest.raises(hs.HeadstartError, match="There is no inference method 'sv1'"):
        make_inference("sv1")
    own = hs.SVI("weights")
    assert make_inference(own) is own
