"""The degrees of freedom that a net spends are those of its Gauss-Newton matrix."""

from __future__ import annotations

import copy

import pytest
import torch
from sklearn.datasets import make_friedman1
from torch import Tensor, nn

import headstart as hs
from headstart.models import create
from headstart.training import predictive_noise
from headstart.training.degrees_of_freedom import fraction_spent, spent_by_kernel
from headstart.training.read_out import find_read_out
from tests.training.problems import table

pytestmark = pytest.mark.usefixtures("float64")


class Shifted(nn.Module):
    """Activations in place, a layer without bias, an output that is twice the read-out's."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5, bias=False), nn.Linear(5, 3)
        self.last = nn.Linear(3, outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu_(self.first(x))
        return 2 * self.last(self.second(h).tanh_()) + x[:, :1]


def jacobian(model: nn.Module, x: Tensor) -> Tensor:
    """Of the outputs by all means, scaled by the prior's sd, (rows · outputs, weights)."""
    layers = list(hs.bayesian_layers(model).values())
    found = []
    with hs.drawing(model, "mean"):
        for output in model(x).flatten():
            means = [layer.posterior.mean for layer in layers]
            grads = torch.autograd.grad(output, means, retain_graph=True)
            scaled = zip(grads, layers, strict=True)
            found.append(
                torch.cat(
                    [g.flatten() / layer.prior.mean_precision() ** 0.5 for g, layer in scaled]
                )
            )
    return torch.stack(found)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("frozen", [False, True])
def test_weights_that_do_not_vary_have_the_hat_matrix_of_all_gradients(
    outputs: int, members: int, frozen: bool
) -> None:
    x, _ = table(50)
    model = hs.bayesianize(Shifted(outputs), prior=0.6, members=members)
    for layer in hs.bayesian_layers(model).values():
        nn.init.normal_(layer.posterior.mean)
        nn.init.constant_(layer.posterior.logvar, -80.0)
    noise = torch.tensor([0.3, 2.0])[:outputs]
    wanted = []
    for index in range(members):
        with hs.member(model, index):
            j = jacobian(model, x) / noise.sqrt().repeat(50).unsqueeze(1)
        precision = torch.eye(j.shape[1]) + j.T @ j
        each = torch.einsum("ri,ij,rj->r", j, torch.linalg.inv(precision), j)
        wanted.append(each.reshape(50, outputs).mean(0))
    model.requires_grad_(not frozen)
    read_out = find_read_out(model, hs.Gaussian(), (x, torch.zeros(50, outputs)))
    found = fraction_spent(read_out, noise)
    assert found is not None
    assert torch.allclose(found, torch.stack(wanted).mean(0), atol=1e-9)
    assert bool(((found > 0) & (found < 1)).all())


@pytest.mark.parametrize("weight", [1.0, 2.5])
def test_draws_smooth_the_gradient_and_add_to_the_precision(weight: float) -> None:
    j = torch.randn(3, 7, 20)
    flat = j.flatten(0, 1)
    precision = torch.eye(20) + weight / 3 * flat.T @ flat
    every = torch.einsum("sri,ij,trj->str", j, torch.linalg.inv(precision), j)
    expected = torch.stack([every[s, t] for s in range(3) for t in range(3) if s != t]).mean(0)
    kernel = (flat @ flat.T).unflatten(1, (3, 7)).unflatten(0, (3, 7))
    assert torch.allclose(spent_by_kernel(kernel, weight), expected, atol=1e-9)


class Twice(nn.Module):
    """A layer that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(self.first(x).tanh()).tanh())


class Convolved(nn.Module):
    """A convolution below the read-out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(1, 2, 2), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x.unsqueeze(1)).relu().flatten(1))


@pytest.mark.parametrize("net", [nn.Linear(4, 1), Twice(), Convolved()])
def test_where_gradients_are_not_known_rows_are_left_out(net: nn.Module) -> None:
    x, y = table(60)
    model, lik = hs.bayesianize(net), hs.Gaussian()
    assert fraction_spent(find_read_out(model, lik, (x, y)), torch.ones(1)) is None
    report = hs.refine_(model, lik, (x, y))
    assert report.noise_after is not None
    assert report.noise_predictive is not None
    assert 0 < report.noise_predictive[0] < 3 * report.noise_after[0]


@pytest.mark.slow
def test_the_noise_of_an_overfit_net_is_not_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the read-out leaves out the layers below have seen."""
    x, y = make_friedman1(1480, noise=1.0, random_state=0)
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    rows, labels = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y).float().unsqueeze(1)
    data, new = (rows[:480], labels[:480]), (rows[480:], labels[480:])
    torch.manual_seed(0)
    trained, noise = hs.bayesianize(create("mlp-1x50", (10,), 1)).float(), hs.Gaussian([0.1])
    hs.initialize_(trained, "iblm", noise, data, seed=0)
    hs.fit(trained, noise, data, steps=1000, batch_size=64, samples=8, lr=3e-3, seed=0)
    covered = {}
    for way, spent in (("left out", lambda *_: None), ("freedom", fraction_spent)):
        monkeypatch.setattr(predictive_noise, "fraction_spent", spent)
        model, lik = copy.deepcopy((trained, noise))
        hs.refine_(model, lik, data)
        covered[way] = hs.evaluate(model, lik, new, seed=0)["coverage_95"]
    assert covered["left out"] < 0.91
    assert 0.92 < covered["freedom"] < 0.97
