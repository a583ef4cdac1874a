"""Nets of whole graphs: rows are nodes, samples are passes, labels of some nodes are not known."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs

NODES = 90


class GraphNet(nn.Module):
    """Two graph convolutions, `A (A x W₁)₊ W₂`."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        h = torch.relu(adjacency @ self.first(x))
        return adjacency @ self.last(h)


def graph(sparse: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Three groups of nodes with edges mostly within, and features that say little."""
    torch.manual_seed(0)
    y = torch.arange(NODES) % 3
    edges = torch.rand(NODES, NODES) < torch.where(y[:, None] == y, 0.2, 0.02)
    adjacency = (edges | edges.T).float() + torch.eye(NODES)
    adjacency = adjacency / adjacency.sum(1, keepdim=True)
    x = torch.randn(NODES, 4)
    x[torch.arange(NODES), y] += 1.0
    return x, adjacency.to_sparse() if sparse else adjacency, y


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_a_graph_starts_trains_and_predicts(sparse: bool, named: bool) -> None:
    x, adjacency, y = graph(sparse)
    inputs = hs.whole(x, adjacency=adjacency) if named else hs.whole(x, adjacency)
    train, test = y.clone(), y.clone()
    train[NODES // 3 :], test[: NODES // 3] = -100, -100
    model, lik = hs.bayesianize(GraphNet()), hs.Categorical(3, ignore_index=-100)
    report = hs.initialize_(model, "iblm", lik, (inputs, train))
    assert report.expected_nll is not None
    start = hs.evaluate(model, lik, (inputs, test), samples=32, seed=0)
    assert start["mnll"] < 1.1
    hs.fit(model, lik, [(inputs, train)], steps=150, progress=False, seed=0)
    trained = hs.evaluate(model, lik, (inputs, test), samples=32, seed=0)
    assert trained["error"] < 0.25
    assert trained["mnll"] < start["mnll"]
    assert hs.predict(model, lik, inputs, samples=4).probs.shape == (NODES, 3)


@pytest.mark.parametrize("sampler", ["local", "weights"])
def test_samples_are_passes(sampler: str) -> None:
    x, adjacency, _ = graph()
    net = GraphNet()
    model = hs.bayesianize(net)
    for layer in hs.bayesian_layers(model).values():
        layer.posterior.logvar.data.fill_(-60.0)
    draws = hs.draw(model, hs.whole(x, adjacency), samples=5, sampler=sampler)
    torch.testing.assert_close(draws, net(x, adjacency).expand(5, -1, -1))


def test_draws_by_weights_are_functions_of_the_graph() -> None:
    """The variance over draws is that of the same net, function by function."""
    x, adjacency, _ = graph()
    model = hs.bayesianize(GraphNet())
    torch.manual_seed(0)
    draws = hs.draw(model, hs.whole(x, adjacency), samples=3, sampler="weights")
    torch.manual_seed(0)
    first = [layer.posterior.sample(3) for layer in hs.bayesian_layers(model).values()]
    for draw, w1, w2 in zip(draws, *first, strict=True):
        h = torch.relu(adjacency @ (x @ w1[:, :-1].T + w1[:, -1]))
        want = adjacency @ (h @ w2[:, :-1].T + w2[:, -1])
        torch.testing.assert_close(draw, want)


def test_the_loss_counts_the_nodes_with_a_label() -> None:
    x, adjacency, y = graph()
    net = GraphNet()
    model, lik = hs.bayesianize(net), hs.Categorical(3, ignore_index=-100)
    for layer in hs.bayesian_layers(model).values():
        layer.posterior.logvar.data.fill_(-60.0)
    y[10:] = -100
    loss = hs.nelbo(model, lik, hs.whole(x, adjacency), y, num_data=NODES)
    want = nn.functional.cross_entropy(net(x, adjacency)[:10], y[:10], reduction="sum")
    torch.testing.assert_close(loss.nll, want)


def test_members_are_refused_in_a_sentence() -> None:
    x, adjacency, _ = graph()
    model: Any = hs.bayesianize(GraphNet(), members=2)
    with pytest.raises(hs.HeadstartError, match="nets with one posterior"):
        hs.draw(model, hs.whole(x, adjacency), samples=2)
