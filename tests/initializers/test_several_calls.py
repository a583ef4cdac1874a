"""I-BLM where a layer is called several times, or sees the same inputs for every row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.initializers.plain_start import feeds_itself
from headstart.initializers.regression import take_patches
from headstart.initializers.walk import count_calls, layer_inputs


class Cell(nn.Module):
    """A gated recurrent net by hand, whose first state is zero."""

    def __init__(self, inputs: int = 2, width: int = 8, outputs: int = 1) -> None:
        super().__init__()
        self.width = width
        self.from_input, self.from_state = nn.Linear(inputs, 2 * width), nn.Linear(width, 2 * width)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), self.width)
        for step in x.unbind(1):
            gate, new = (self.from_input(step) + self.from_state(state)).chunk(2, 1)
            state = state + gate.sigmoid() * (new.tanh() - state)
        return self.head(state)


class Siamese(nn.Module):
    """Two inputs through one body, stacked on axis 0."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3, 16), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.body(torch.cat(x.unbind(1))).relu().chunk(2)
        return self.head((first - second).square())


class Query(nn.Module):
    """A layer whose inputs are those of the first row of a table, whatever the data."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(4))
        self.query, self.body, self.head = nn.Linear(4, 6), nn.Linear(3, 6), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(self.table.expand(len(x), -1))
        return self.head((query + self.body(x)).tanh())


def sequences(rows: int = 600, steps: int = 6) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(rows, steps, 2)
    return x, x[:, -2:, 0].sum(1) + 0.1 * torch.randn(rows)


def test_a_layer_that_feeds_itself_keeps_its_mean() -> None:
    """Its inputs are its own outputs: regressed on them, it would change them."""
    x, y = sequences()
    model, lik = hs.bayesianize(Cell()), hs.Gaussian()
    before = model.from_state.posterior.mean.detach().clone()
    report = hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    assert torch.equal(model.from_state.posterior.mean.detach(), before)
    assert [layer.name for layer in report.layers if layer.zero_fraction == 1] == []
    named = [warning for warning in report.warnings if "feeds itself" in warning]
    assert len(named) == 1
    assert "'from_state'" in named[0]
    constant = -torch.distributions.Normal(y.mean(), y.std()).log_prob(y).mean()
    scores = hs.evaluate(model, lik, (x, y), samples=64, seed=0)
    assert scores["mnll"] < float(constant)


@pytest.mark.parametrize("name", ["from_input", "from_state", "head"])
def test_what_feeds_itself(name: str) -> None:
    model = hs.bayesianize(Cell())
    x, _ = sequences(2)
    assert feeds_itself(model, model.get_submodule(name), x) == (name == "from_state")


def test_all_calls_are_seen_and_the_pass_stops_at_the_last() -> None:
    x, _ = sequences(5)
    model = hs.bayesianize(Cell())
    assert count_calls(model, x) == {model.from_input: 6, model.from_state: 6, model.head: 1}
    seen = layer_inputs(model, model.from_state, x, "mean", count=6)
    state = torch.zeros(5, 8)
    assert [each.shape for each in seen] == [(5, 8)] * 6
    assert torch.equal(seen[0], state)
    assert not any(torch.equal(seen[0], each) for each in seen[1:])
    rows = take_patches(model.from_state, seen, 6)
    assert torch.equal(rows[0, :, 3, :-1], seen[3].double())
    assert take_patches(model.from_state, seen, 4).shape == (1, 5, 4, 9)


@pytest.mark.parametrize("initializer", ["iblm", "iblm-paper", "lsuv"])
def test_batches_stacked_on_axis_0_are_as_many_calls(initializer: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(500, 2, 3)
    y = (x[:, 0] - x[:, 1]).square().sum(1) + 0.1 * torch.randn(500)
    model, lik = hs.bayesianize(Siamese()), hs.Gaussian()
    hs.initialize_(model, initializer, lik, (x, y), seed=0)
    both = layer_inputs(model, model.body, x)
    assert torch.equal(torch.stack(both, 1), x)
    if initializer == "iblm":
        constant = -torch.distributions.Normal(y.mean(), y.std()).log_prob(y).mean()
        assert hs.evaluate(model, lik, (x, y), samples=64, seed=0)["mnll"] < float(constant)


def test_constant_inputs_are_named_and_leave_the_mean() -> None:
    torch.manual_seed(0)
    x = torch.randn(400, 3)
    y = x.sum(1).sin()
    model, lik = hs.bayesianize(Query()), hs.Gaussian()
    before = model.query.posterior.mean.detach().clone()
    report = hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    assert torch.equal(model.query.posterior.mean.detach(), before)
    sd = 0.1 * before.square().mean().sqrt()
    torch.testing.assert_close(
        model.query.posterior.variance().sqrt().detach(), sd.expand_as(before)
    )
    named = [warning for warning in report.warnings if "same inputs for every row" in warning]
    assert len(named) == 1
    assert "'query'" in named[0]


def test_an_embedding_of_too_many_tokens_keeps_its_mean() -> None:
    tokens = torch.arange(4000).remainder(3000).unsqueeze(1)
    net = nn.Sequential(nn.Embedding(3000, 2), nn.Flatten(), nn.Linear(2, 1))
    model = hs.bayesianize(net)
    report = hs.initialize_(model, "iblm", hs.Gaussian(), (tokens, tokens.sin()), seed=0)
    assert torch.equal(model[0].posterior.mean, net[0].weight.T)
    assert any("'0' has more than 2048 tokens" in warning for warning in report.warnings)
