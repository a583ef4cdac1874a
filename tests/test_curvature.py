"""Kronecker factors against a plain implementation, and the Fisher matrix where exact."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headstart as hs
from headstart import curvature
from headstart.curvature import kronecker_factors
from headstart.errors import HeadstartError
from headstart.linalg.affine import groups
from tests.cases import LAYERS

UNGROUPED = [name for name, case in LAYERS.items() if groups(case.make()) == 1]


def matrix_normal(net: nn.Module) -> nn.Module:
    return hs.bayesianize(net.double(), posterior="matrix_normal")


def plain_factors(
    net: nn.Sequential, lik: hs.Likelihood, x: Tensor, y: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """One example and one position at a time, autograd for slopes and `unfold` for patches."""
    sums: dict[int, list[Tensor]] = {}
    for row in range(len(x)):
        h, seen = x[row : row + 1], []
        for module in net:
            inputs, h = h, module(h)
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                h.retain_grad()
                seen.append((module, inputs, h))
        (-lik.log_prob(h, lik.check(y[row : row + 1], h.shape[-1]))).sum().backward()
        for number, (module, inputs, out) in enumerate(seen):
            if isinstance(module, nn.Conv2d):
                patches = F.unfold(
                    inputs, module.kernel_size, module.dilation, module.padding, module.stride
                )[0].T
                slopes = out.grad[0].flatten(1).T
            else:
                patches, slopes = (
                    inputs.reshape(-1, module.in_features),
                    out.grad.reshape(-1, module.out_features),
                )
            a, g = 0, 0
            for patch, slope in zip(patches.detach(), slopes, strict=True):
                patch = (
                    patch if module.bias is None else torch.cat([patch, torch.ones(1).to(patch)])
                )
                a, g = a + torch.outer(patch, patch), g + torch.outer(slope, slope) / len(patches)
            total = sums.setdefault(number, [torch.zeros_like(a), torch.zeros_like(g)])
            total[0] += a / len(x)
            total[1] += g / len(x)
    return [(a, g) for a, g in sums.values()]


NETS = {
    "dense": (
        lambda: nn.Sequential(
            nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 6, bias=False), nn.Tanh(), nn.Linear(6, 3)
        ),
        (4,),
    ),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(1, 0)),
            nn.Tanh(),
            nn.Conv2d(3, 4, 2, dilation=2, bias=False),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(12, 3),
        ),
        (2, 5, 6),
    ),
    "in place": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)),
        (4,),
    ),
    "sequence": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Flatten(), nn.Linear(15, 3)),
        (3, 4),
    ),
}


@pytest.mark.parametrize("name", NETS)
def test_factors_are_those_of_the_plain_loop(name: str) -> None:
    torch.manual_seed(0)
    make, shape = NETS[name]
    net, lik = make().double(), hs.Categorical(3)
    x, y = torch.randn(7, *shape).double(), torch.randint(3, (7,))
    ours = kronecker_factors(matrix_normal(net), lik, x, y, sampler="mean")
    for module in net:
        if isinstance(module, nn.ReLU):
            module.inplace = False
    expected = plain_factors(net, lik, x, y)
    assert len(ours) == len(expected)
    for factors, (a, g) in zip(ours.values(), expected, strict=True):
        torch.testing.assert_close(factors.inputs, a, atol=1e-10, rtol=1e-9)
        torch.testing.assert_close(factors.outputs, g, atol=1e-10, rtol=1e-9)


def fisher(net: nn.Module, x: Tensor, noise_var: float) -> Tensor:
    """`mean_n Jᵀ J / noise_var`, brute force over every weight: unit, input, then its bias."""
    blocks = []
    for row in x:
        jacobian = []
        for output in net(row.unsqueeze(0)).flatten():
            weight, bias = torch.autograd.grad(
                output, [net[0].weight, net[0].bias], retain_graph=True
            )
            jacobian.append(torch.cat([weight.flatten(1), bias.unsqueeze(1)], 1).flatten())
        blocks.append(torch.stack(jacobian).T @ torch.stack(jacobian) / noise_var)
    return torch.stack(blocks).mean(0)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [(nn.Linear(3, 2), (3,)), (nn.Conv2d(2, 2, (2, 3)), (2, 2, 3))],
    ids=["linear", "conv2d"],
)
def test_one_linear_layer_with_gaussian_noise_is_the_fisher_matrix_itself(
    layer: nn.Module, shape: tuple[int, ...]
) -> None:
    """Residuals ±√(K noise_var) of each output: their second moment is the noise's own."""
    torch.manual_seed(0)
    net, noise_var = nn.Sequential(layer, nn.Flatten()).double(), 0.3
    x = torch.randn(5, *shape).double()
    residuals = math.sqrt(2 * noise_var) * torch.eye(2, dtype=torch.float64)
    rows, y = x.repeat_interleave(2, 0), (net(x).unsqueeze(1) + residuals).flatten(0, 1).detach()
    lik = hs.Gaussian(noise_var, learn_noise=False)
    (factors,) = kronecker_factors(matrix_normal(net), lik, rows, y, sampler="mean").values()
    ours = torch.kron(factors.outputs.contiguous(), factors.inputs.contiguous())
    torch.testing.assert_close(ours, fisher(net, x, noise_var), atol=1e-10, rtol=1e-9)


def test_labels_are_drawn_from_the_models_own_predictions() -> None:
    """The mean over many draws is the Fisher of the softmax, `E_y g gᵀ = diag p − p pᵀ`."""
    torch.manual_seed(0)
    net, n = nn.Linear(2, 3).double(), 2000
    model, x = matrix_normal(net), torch.randn(1, 2).double().expand(n, 2)
    ours = kronecker_factors(model, hs.Categorical(3), x, sampler="mean")[""].outputs
    p = net(x[:1]).softmax(-1)[0].detach()
    # The gradients of −log p_y, for each y.
    slopes = p - torch.eye(3).double()
    outer = torch.einsum("yi,yj->yij", slopes, slopes)
    mean = torch.einsum("y,yij->ij", p, outer)
    torch.testing.assert_close(mean, torch.diag(p) - torch.outer(p, p))
    spread = (torch.einsum("y,yij->ij", p, (outer - mean).square()) / n).sqrt()
    assert float(((ours - mean) / spread).abs().max()) < 4.5


@pytest.mark.parametrize("name", UNGROUPED)
def test_every_layer_has_factors_of_its_size(name: str) -> None:
    make, shape = LAYERS[name]
    net = nn.Sequential(make(), nn.Flatten(), nn.LazyLinear(2))
    x = torch.randn(4, *shape)
    net(x)
    model = hs.bayesianize(net, posterior="matrix_normal")
    for layer, factors in zip(
        hs.bayesian_layers(model).values(),
        kronecker_factors(model, hs.Categorical(2), x).values(),
        strict=True,
    ):
        assert factors.inputs.shape == (layer.posterior.size,) * 2
        assert factors.outputs.shape == (layer.posterior.units,) * 2


def test_a_layer_called_twice_counts_both_calls() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.last = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.tanh(self.inner(torch.tanh(self.inner(x)))))

    torch.manual_seed(0)
    net = Twice().double()
    x, y = torch.randn(6, 3).double(), torch.randint(2, (6,))
    twin = nn.Sequential(net.inner, nn.Tanh(), nn.Linear(3, 3).double(), nn.Tanh(), net.last)
    twin[2].load_state_dict(net.inner.state_dict())
    first, second, _ = plain_factors(twin, hs.Categorical(2), x, y)
    ours = kronecker_factors(matrix_normal(net), hs.Categorical(2), x, y, sampler="mean")["inner"]
    torch.testing.assert_close(ours.inputs, first[0] + second[0])
    torch.testing.assert_close(ours.outputs, (first[1] + second[1]) / 2)


def test_positions_folded_into_the_batch_are_positions() -> None:
    class Folded(nn.Module):
        def __init__(self, fold: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.fold, self.inner, self.last = fold, nn.Linear(4, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = (
                self.inner(x.flatten(0, 1)).unflatten(0, (len(x), -1))
                if self.fold
                else self.inner(x)
            )
            return self.last(h.tanh().mean(1))

    x, y = torch.randn(6, 5, 4).double(), torch.randint(2, (6,))
    nets = [matrix_normal(Folded(fold)) for fold in (False, True)]
    torch.testing.assert_close(
        *(kronecker_factors(net, hs.Categorical(2), x, y, sampler="mean")["inner"] for net in nets)
    )


def test_patches_are_summed_in_parts_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    make, shape = NETS["convolutions"]
    model, x, y = matrix_normal(make()), torch.randn(7, *shape).double(), torch.randint(3, (7,))
    whole = kronecker_factors(model, hs.Categorical(3), x, y, sampler="mean")
    monkeypatch.setattr(curvature, "PATCH_BUDGET", 100)
    torch.testing.assert_close(
        kronecker_factors(model, hs.Categorical(3), x, y, sampler="mean"), whole
    )


def test_grouped_layers_are_refused() -> None:
    model = hs.bayesianize(nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.Flatten()))
    with pytest.raises(HeadstartError, match="grouped"):
        kronecker_factors(model, hs.Categorical(4), torch.randn(2, 4, 3, 3))
