"""Dense read-outs: with a label at each position the identities of single labels hold."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

import headstart as hs

pytestmark = pytest.mark.usefixtures("float64")
NOISE, PRIOR, ROWS = 0.3, 0.7, 15


def log_evidence(rows: Tensor, y: Tensor) -> Tensor:
    """log p(y) written out densely, the bias with the same prior as the weights."""
    rows = torch.cat([rows, torch.ones(len(rows), 1)], 1)
    cov = NOISE * torch.eye(len(rows)) + PRIOR * rows @ rows.T
    return MultivariateNormal(torch.zeros(len(rows)), cov).log_prob(y.T).sum()


def elbo(model: nn.Module, rows: Tensor, y: Tensor) -> Tensor:
    """E_q[log p(y|x, W)] − KL of the one layer, by the two moments of its outputs."""
    (layer,) = hs.bayesian_layers(model).values()
    mean = rows @ layer.posterior.mean[:, :-1].T + layer.posterior.mean[:, -1]
    linear = nn.Linear(rows.shape[1], y.shape[1])
    var = layer.posterior.local_variance(linear, rows)
    each = ((y - mean).square() + var) / NOISE + math.log(2 * math.pi * NOISE)
    return (-0.5 * each.sum() - layer.kl()).detach()


class Flipped(nn.Module):
    """Outputs on axis 1, made by a dense layer whose outputs are last."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).transpose(1, 2)


class StepByStep(nn.Module):
    """A loop over time, as in a recurrent net: the head is called for each step."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.head(step) for step in x.unbind(1)], 1)


@pytest.mark.parametrize("kind", ["sequence", "image", "transposed", "loop"])
def test_elbo_after_iblm_is_the_log_evidence_of_all_positions(kind: str) -> None:
    x = torch.randn(ROWS, 4, 3, 2) if kind == "image" else torch.randn(ROWS, 6, 4)
    net, axis = {
        "sequence": (nn.Linear(4, 2), -1),
        "image": (nn.Conv2d(4, 2, 1), 1),
        "transposed": (Flipped(), 1),
        "loop": (StepByStep(), -1),
    }[kind]
    rows = x.movedim(1, -1).reshape(-1, 4) if kind == "image" else x.reshape(-1, 4)
    y = rows @ torch.randn(4, 2) + NOISE**0.5 * torch.randn(len(rows), 2)
    # Labels have the net's own axes.
    given = y.reshape(ROWS, 3, 2, 2) if kind == "image" else y.reshape(ROWS, 6, 2)
    given = given.movedim(-1, 1) if axis == 1 else given
    model = hs.bayesianize(net, posterior="full_covariance", prior=PRIOR)
    lik = hs.PerPosition(hs.Gaussian(NOISE, learn_noise=False), axis=axis)
    hs.initialize_(model, "iblm", lik, (x, given))
    want = float(log_evidence(rows, y))
    assert float(elbo(model, rows, y)) == pytest.approx(want, abs=1e-9)
    with torch.no_grad():
        values = torch.stack(
            [
                hs.nelbo(model, lik, x, given, num_data=ROWS, samples=16, sampler="weights").value
                for _ in range(100)
            ]
        )
    z = (values.mean() + want) / (values.std() / len(values) ** 0.5)
    assert abs(float(z)) < 4


def test_the_nll_of_classes_is_the_sum_over_valid_positions() -> None:
    net = nn.Conv2d(3, 5, 3, padding=1)
    x, y = torch.randn(ROWS, 3, 4, 4), torch.randint(5, (ROWS, 4, 4))
    y[torch.rand(ROWS, 4, 4) < 0.3] = -100
    model = hs.bayesianize(net)
    (layer,) = hs.bayesian_layers(model).values()
    layer.posterior.logvar.data.fill_(-80.0)
    lik = hs.PerPosition(hs.Categorical(5, ignore_index=-100), axis=1)
    # Ten times the batch: num_data counts examples.
    loss = hs.nelbo(model, lik, x, y, num_data=10 * ROWS, samples=2)
    want = 10 * F.cross_entropy(net(x), y, ignore_index=-100, reduction="sum")
    torch.testing.assert_close(loss.nll, want, rtol=1e-9, atol=1e-9)


def test_positions_without_a_label_do_not_move_the_read_out() -> None:
    x, y = torch.randn(ROWS, 6, 4), torch.randint(3, (ROWS, 6))
    padded_x = torch.cat([x, 50 * torch.randn(ROWS, 3, 4)], 1)
    padded_y = torch.cat([y, torch.full((ROWS, 3), -100)], 1)
    means = []
    for data in ((x, y), (padded_x, padded_y)):
        model = hs.bayesianize(nn.Linear(4, 3), posterior="full_covariance")
        lik = hs.PerPosition(hs.Categorical(3, ignore_index=-100))
        hs.initialize_(model, "iblm", lik, data)
        means.append(model.posterior.mean.detach())
    torch.testing.assert_close(means[0], means[1], rtol=0, atol=1e-3)
