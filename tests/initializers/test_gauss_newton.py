"""Gauss-Newton matrices against Jacobians written out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headstart as hs
from headstart.initializers.gauss_newton import curvature_of, hessian_roots, layer_slopes
from headstart.linalg.affine import affine, split
from tests.cases import LIKELIHOODS

ROWS = 5


class Twice(nn.Module):
    """A layer that is called twice, the second time in place, and one that never is."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.head, self.unused = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.shared(x).tanh_()
        x = x + self.shared(x).relu_()
        out: Tensor = self.head(x)
        return out


class Siamese(nn.Module):
    """Two batches under one another."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        one, two = self.body(torch.cat([x, x.flip(1)])).tanh().chunk(2)
        out: Tensor = self.head(one * two)
        return out


class Pooled(nn.Module):
    """A read-out of sequences, and a mean over them."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(2, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x.unflatten(1, (2, 2))).tanh()).mean(1)
        return out


def convolution() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (2, 2)),
        nn.Conv1d(2, 4, 2, padding=1, groups=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(12, 3),
    )


NETS: dict[str, Callable[[], nn.Module]] = {
    "twice": Twice,
    "siamese": Siamese,
    "pooled": Pooled,
    "convolution": convolution,
}


def jacobian(model: nn.Module, layer: hs.Bayesian, x: Tensor) -> Tensor:
    """Of the mean network's outputs by a layer's weights, (N, K, units, size)."""

    def outputs(weights: Tensor) -> Tensor:
        with hs.drawing(model, "mean"):
            layer.use(lambda op, posterior, x: affine(op, x, *split(op, weights)))
            found: Tensor = model(x)
        return found

    return torch.autograd.functional.jacobian(outputs, layer.posterior.mean.detach())


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("family", ["mean_field", "full_covariance"])
def test_matrices_are_those_of_the_jacobian(net: str, family: str, float64: None) -> None:
    torch.manual_seed(1)
    model = hs.bayesianize(NETS[net](), posterior=family).eval()
    x, y = torch.randn(ROWS, 4), torch.arange(ROWS) % 3
    lik = hs.Categorical(3)
    layers = hs.bayesian_layers(model)
    found = {name: curvature_of(layer) for name, layer in layers.items()}
    for name, slopes in layer_slopes(model, lik, x, y):
        found[name].add(slopes)
    with hs.drawing(model, "mean"):
        p = model(x).softmax(-1)
    hessian = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
    for name, layer in layers.items():
        expected = torch.zeros(layer.posterior.units, layer.posterior.size, layer.posterior.size)
        if name != "unused":
            j = jacobian(model, layer, x)
            expected = torch.einsum("nkui,nkl,nluj->uij", j, hessian, j)
        if family == "mean_field":
            expected = expected.diagonal(dim1=-2, dim2=-1)
        matrix = vars(found[name])["matrix"]
        torch.testing.assert_close(matrix, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_roots_are_those_of_the_hessian(name: str, float64: None) -> None:
    case = LIKELIHOODS[name]
    lik, f = case.make(), 0.3 * torch.randn(ROWS, case.outputs)
    y = lik.check(case.labels(ROWS), case.outputs)
    roots = hessian_roots(lik, f, y)
    for row in range(ROWS):

        def loss(each: Tensor, row: int = row) -> Tensor:
            return -lik.log_prob(each.unsqueeze(0), y[row : row + 1]).sum()

        exact = torch.autograd.functional.hessian(loss, f[row])
        values, vectors = torch.linalg.eigh(exact)
        positive = (vectors * values.clamp_min(0)) @ vectors.T
        product = roots[:, row].T @ roots[:, row]
        torch.testing.assert_close(product, positive, rtol=1e-9, atol=1e-10)


def test_the_body_before_the_first_bayesian_layer_keeps_no_graph() -> None:
    body = nn.Linear(4, 6)
    model = hs.bayesianize(nn.Sequential(body, nn.ReLU(), nn.Linear(6, 3)), where="last")
    seen: list[bool] = []
    model[0].register_forward_hook(lambda module, args, out: seen.append(out.requires_grad))
    list(layer_slopes(model, hs.Categorical(3), torch.randn(ROWS, 4), torch.arange(ROWS) % 3))
    assert seen == [False]
    assert torch.is_grad_enabled()


def test_the_hessian_of_logits_sums_to_nothing(float64: None) -> None:
    f = torch.randn(ROWS, 4)
    roots = hessian_roots(hs.Categorical(4), f, torch.zeros(ROWS, dtype=torch.long))
    p = F.softmax(f, -1)
    torch.testing.assert_close(roots.sum(-1), torch.zeros(4, ROWS), atol=1e-7, rtol=0)
    torch.testing.assert_close(roots.square().sum(0), p * (1 - p))
