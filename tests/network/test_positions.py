"""Layers whose input is the same for every row: embeddings of positions, learned constants."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import headstart as hs

pytestmark = pytest.mark.filterwarnings("ignore:These stay deterministic")


class Positions(nn.Module):
    """Words and their places."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(7, 6), nn.Embedding(5, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, ids: Tensor) -> Tensor:
        places = self.places(torch.arange(5).unsqueeze(0))
        return self.head((self.words(ids) + places).tanh().mean(1))


class Constant(nn.Module):
    """A net that makes weights of a constant, as a hypernetwork does."""

    def __init__(self) -> None:
        super().__init__()
        self.make, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x * self.make(torch.ones(1, 3)))


class OfTheBatch(Constant):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x * self.make(x.mean(0, keepdim=True)[:, :3]))


def case(name: str) -> tuple[nn.Module, Tensor]:
    if name == "positions":
        return Positions(), torch.randint(7, (6, 5))
    return Constant(), torch.randn(6, 4)


@pytest.mark.parametrize("name", ["positions", "constant"])
@pytest.mark.parametrize("members", [1, 2])
def test_every_sample_has_its_own_draw_of_them(name: str, members: int) -> None:
    net, x = case(name)
    model = hs.bayesianize(net, members=members)
    draws = hs.draw(model, x, samples=4, sampler="weights").detach()
    assert draws.shape == (4, 6, 2)
    # Only that layer is random: what samples differ by is its draws, the same for all rows.
    constant = model.places if name == "positions" else model.make
    for layer in hs.bayesian_layers(model).values():
        if layer is not constant:
            layer.posterior.logvar.data.fill_(-60.0)
    draws = hs.draw(model, x[:1].expand(3, *x.shape[1:]), samples=4, sampler="weights").detach()
    torch.testing.assert_close(draws, draws[:, :1].expand_as(draws))
    assert len({round(float(each), 6) for each in draws[:, 0, 0]}) == 4
    for sampler in ("local", "weights", "mean"):
        assert hs.draw(model, x, samples=4, sampler=sampler).shape[1:] == (6, 2)


@pytest.mark.parametrize("name", ["positions", "constant"])
def test_draws_are_those_of_whole_functions(name: str) -> None:
    net, x = case(name)
    model = hs.bayesianize(net)
    torch.manual_seed(0)
    draws = hs.draw(model, x, samples=3, sampler="weights")
    torch.manual_seed(0)
    each = [layer.posterior.sample(3) for layer in hs.bayesian_layers(model).values()]
    for number, draw in enumerate(draws):
        with torch.no_grad():
            for layer, weights in zip(hs.bayesian_layers(model).values(), each, strict=True):
                layer.posterior.mean.copy_(weights[number])
        with hs.drawing(model, "mean"):
            torch.testing.assert_close(model(x), draw)


@pytest.mark.parametrize("name", ["positions", "constant"])
@pytest.mark.parametrize("members", [1, 2])
def test_they_start_and_train(name: str, members: int) -> None:
    torch.manual_seed(0)
    net, _ = case(name)
    x = torch.randint(7, (80, 5)) if name == "positions" else torch.randn(80, 4)
    y = (x.float()[:, 0] > x.float().mean()).long()
    model, lik = hs.bayesianize(net, members=members), hs.Categorical(2)
    report = hs.initialize_(model, "iblm", lik, (x, y))
    assert any("same inputs for every row" in warning for warning in report.warnings)
    start = hs.evaluate(model, lik, (x, y), samples=32, seed=0)["mnll"]
    hs.fit(model, lik, (x, y), steps=100, progress=False, seed=0)
    assert hs.evaluate(model, lik, (x, y), samples=32, seed=0)["mnll"] < start


def test_what_depends_on_the_batch_is_refused() -> None:
    with pytest.raises(hs.HeadstartError, match="layer 'make' is for one row of the batch depends"):
        hs.draw(hs.bayesianize(OfTheBatch()), torch.randn(6, 4), samples=3)


class NumberedPlaces(Positions):
    """Places as one axis, without one of rows: what they give is added to every row."""

    def forward(self, ids: Tensor) -> Tensor:
        return self.head((self.words(ids) + self.places(torch.arange(5))).tanh().mean(1))


@pytest.mark.parametrize("samples", [5, 4])
def test_as_many_places_as_rows_are_no_rows(samples: int) -> None:
    model, ids = hs.bayesianize(NumberedPlaces(), where="places"), torch.randint(7, (1, 5))
    draws = hs.draw(model, ids, samples, "weights").detach()
    assert len({round(float(each), 6) for each in draws[:, 0, 0]}) == samples
    torch.manual_seed(0)
    draws = hs.draw(model, ids, samples, "weights").detach()
    torch.manual_seed(0)
    for weights, draw in zip(model.places.posterior.sample(samples), draws, strict=True):
        with torch.no_grad():
            model.places.posterior.mean.copy_(weights)
        with hs.drawing(model, "mean"):
            torch.testing.assert_close(model(ids), draw)


def test_members_refuse_to_draw_places_row_by_row() -> None:
    model = hs.bayesianize(NumberedPlaces(), members=5)
    ids = torch.randint(7, (1, 5))
    with pytest.raises(hs.HeadstartError, match="the same 5 entries whatever the batch is"):
        hs.draw(model, ids, 5, "local")
    assert hs.draw(model, ids, 5, "weights").shape == (5, 1, 2)


class OneTable(nn.Module):
    """Words and their places, looked up in one table."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(7, 6), nn.Linear(6, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head((self.table(ids) + self.table(torch.arange(5))).mean(1))


def test_a_table_of_words_too_is_drawn_for_every_sample() -> None:
    model = hs.bayesianize(OneTable(), where=["table"])
    draws = hs.draw(model, torch.randint(7, (3, 5)), samples=16, sampler="local").detach()
    assert float(draws.std(0).min()) > 0.01
