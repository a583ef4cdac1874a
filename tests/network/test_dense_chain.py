"""Chains of dense layers in one pass, beside the same net layer by layer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart import objective
from headstart.kernels import chain
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


@pytest.mark.parametrize("bias", [True, False])
def test_a_batch_changed_before_the_gradient_is_refused_or_does_not_matter(bias: bool) -> None:
    model, x = bayesian_net(nn.Sequential(nn.Linear(3, 2, bias))), torch.randn(6, 3)
    y, likelihood = torch.randn(6, 2), hs.Gaussian()
    assert is_chain(model, x)
    found = hs.nelbo(model, likelihood, x, y, num_data=6)
    (expected,) = torch.autograd.grad(found.value, model[0].posterior.mean, retain_graph=True)
    x.add_(1)
    if bias:
        found.value.backward()
        assert torch.equal(model[0].posterior.mean.grad, expected)
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            found.value.backward()


@pytest.mark.parametrize("shape", [(5, 3, 1), (5, 1, 3), (5, 2, 3), (3,)])
def test_inputs_of_other_axes_go_layer_by_layer(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = (
        bayesian_net(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))),
        torch.randn(shape),
    )
    assert not is_chain(model, x)


def test_positions_of_a_sequence_are_no_chain_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    model, x, y = bayesian_net(net), torch.randn(5, 1, 3), torch.randn(5, 1)
    likelihood = hs.PerPosition(hs.Gaussian(), axis=1)

    def value() -> Tensor:
        torch.manual_seed(3)
        return hs.nelbo(model, likelihood, x, y, num_data=5).value

    found = value()
    layer_by_layer(monkeypatch)
    assert torch.equal(found, value())


def test_images_that_the_net_flattens(monkeypatch: pytest.MonkeyPatch) -> None:
    model = bayesian_net(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).double())
    x = torch.randn(6, 3, 2, 2).double()
    assert is_chain(model, x)
    found = numbers(model, x, 8)
    layer_by_layer(monkeypatch)
    for one, other in zip(found, numbers(model, x, 8), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("samples", [0, -1])
def test_too_few_samples_are_refused_in_words(samples: int) -> None:
    model, x = bayesian_net(dense_net().float()), torch.randn(6, 3)
    with pytest.raises(hs.HeadstartError, match="At least one sample must be drawn"):
        hs.nelbo(model, hs.Gaussian(), x, torch.randn(6, 2), num_data=6, samples=samples)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("members", [1, 3])
def test_large_layers_compute_again_what_small_ones_keep(
    members: int, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = bayesian_net(dense_net(bias=bias), members), torch.randn(6, 3).double()
    kept = numbers(model, x, 24)
    monkeypatch.setattr(chain, "_SMALL", 0)
    for one, other in zip(kept, numbers(model, x, 24), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("part", ["kl", "nll"])
def test_the_gradient_of_one_part_alone(
    part: str, members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = bayesian_net(dense_net(), members), torch.randn(6, 3).double()
    y = torch.randn(6, 2).double()

    def gradients() -> tuple[Tensor, ...]:
        torch.manual_seed(2)
        found = hs.nelbo(model, hs.Gaussian().double(), x, y, num_data=6, samples=6)
        return torch.autograd.grad(getattr(found, part), list(model.parameters()))

    found = gradients()
    layer_by_layer(monkeypatch)
    for one, other in zip(found, gradients(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_the_gradient_of_the_kl_is_finite_where_draws_are_not() -> None:
    model, x = bayesian_net(dense_net()), torch.full((2, 3), 1e200, dtype=torch.float64)
    assert is_chain(model, x)
    found = hs.nelbo(model, hs.Gaussian().double(), x, torch.zeros(2, 2).double(), num_data=2)
    found.kl.backward()
    assert all(bool(each.grad.isfinite().all()) for each in model.parameters())
