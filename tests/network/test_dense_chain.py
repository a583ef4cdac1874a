"""Chains of dense layers in one pass, beside the same net layer by layer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart import objective
from headstart.network.dense_chain import draw_dense_chain


def dense_net(activation: Callable[[], nn.Module] = nn.ReLU, bias: bool = True) -> nn.Sequential:
    """Three dense layers in float64."""
    layers = [nn.Linear(3, 7, bias), activation(), nn.Linear(7, 5, bias), activation()]
    return nn.Sequential(*layers, nn.Linear(5, 2, bias)).double()


def bayesian_net(net: nn.Module, members: int = 1) -> nn.Module:
    """A converted net whose means and variances are all different."""
    torch.manual_seed(0)
    model = hs.bayesianize(net, members=members)
    for parameter in model.parameters():
        nn.init.normal_(parameter, -1.0, 0.5)
    return model


def numbers(model: nn.Module, x: Tensor, samples: int) -> list[Tensor]:
    """The parts of the NELBO, their gradients, and the next random number."""
    torch.manual_seed(1)
    likelihood = hs.Gaussian(noise_var=0.3).double()
    y = torch.linspace(-1, 1, 2 * len(x), dtype=x.dtype).view(-1, 2)
    found = hs.nelbo(model, likelihood, x, y, num_data=50, samples=samples, kl_weight=0.7)
    gradients = torch.autograd.grad(found.value, [*model.parameters(), *likelihood.parameters()])
    return [*(each.detach() for each in found), *gradients, torch.rand(1, dtype=x.dtype)]


def layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "draw_dense_chain", lambda *_: None)


def is_chain(model: nn.Module, x: Tensor, samples: int = 8) -> bool:
    return draw_dense_chain(model, hs.bayesian_layers(model), x, samples) is not None


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("samples", [1, 3, 8, 24])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.GELU])
def test_a_chain_is_the_net_layer_by_layer(
    activation: type[nn.Module],
    bias: bool,
    samples: int,
    members: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, x = bayesian_net(dense_net(activation, bias), members), torch.randn(6, 3).double()
    assert is_chain(model, x, samples)
    found = numbers(model, x, samples)
    layer_by_layer(monkeypatch)
    for one, other in zip(found, numbers(model, x, samples), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)),
        nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Linear(4, 2)),
    ],
)
def test_other_chains(net: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = bayesian_net(net.double()), torch.randn(6, 3).double()
    assert is_chain(model, x)
    found = numbers(model, x, 8)
    layer_by_layer(monkeypatch)
    for one, other in zip(found, numbers(model, x, 8), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_a_prior_of_another_variance_and_rows_of_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = hs.bayesianize(dense_net(bias=False), prior=0.3)
    x = torch.zeros(4, 3, dtype=torch.float64)
    assert is_chain(model, x)
    found = numbers(model, x, 8)
    layer_by_layer(monkeypatch)
    for one, other in zip(found, numbers(model, x, 8), strict=True):
        assert bool(one.isfinite().all())
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(3, 4), nn.GELU(approximate="tanh"), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(3, 4), nn.Tanh()),
        nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)),
        nn.Sequential(nn.Conv1d(3, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2)),
    ],
)
def test_what_is_no_chain_of_dense_layers(net: nn.Module) -> None:
    model = hs.bayesianize(net)
    x = torch.randn(6, 3, 1) if isinstance(net[0], nn.Conv1d) else torch.randn(6, 3)
    assert not is_chain(model, x)


def test_whoever_has_a_part_in_the_pass_keeps_it() -> None:
    x = torch.randn(6, 3)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    model = hs.bayesianize(net)
    assert is_chain(model, x)
    assert not is_chain(model, x.double())
    assert not is_chain(model, x.clone().requires_grad_())
    assert not is_chain(model, torch.randn(6, 4))
    with torch.no_grad():
        assert not is_chain(model, x)
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_chain(model, x)
    seen: list[Tensor] = []
    hook = model[1].register_forward_hook(lambda _, __, out: seen.append(out))
    hs.nelbo(model, hs.Gaussian(), x, torch.randn(6, 2), num_data=6)
    assert len(seen) > 0
    hook.remove()
    assert is_chain(model, x)
    everywhere = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert not is_chain(model, x)
    everywhere.remove()
    model[0].posterior.mean.requires_grad_(False)
    assert not is_chain(model, x)


@pytest.mark.parametrize(
    "options", [{"posterior": "full_covariance"}, {"prior": "fan-in"}, {"where": "last"}]
)
def test_other_posteriors_priors_and_plain_layers(options: dict[str, object]) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    assert not is_chain(hs.bayesianize(net, **options), torch.randn(6, 3))


def test_a_parameter_changed_before_the_gradient_is_refused_by_torch() -> None:
    model, x = hs.bayesianize(nn.Sequential(nn.Linear(3, 2))), torch.randn(6, 3)
    assert is_chain(model, x)
    found = hs.nelbo(model, hs.Gaussian(), x, torch.randn(6, 2), num_data=6)
    with torch.no_grad():
        model[0].posterior.mean.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.value.backward()
