"""Weights that two modules share: one posterior, one KL, and in one draw the same weights."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import headstart as hs

pytestmark = [
    pytest.mark.usefixtures("float64"),
    pytest.mark.filterwarnings("ignore:These stay deterministic"),
]
TOKENS, WIDTH = 7, 5


class Language(nn.Module):
    """Words to words, through the same table both ways."""

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.words, self.body = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.write = nn.Linear(WIDTH, TOKENS, bias=bias)
        self.write.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.write(self.body(self.words(ids)).tanh())


class Twice(nn.Module):
    """The same matrix in two Linear layers, the second with a bias of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).tanh())


def ids(rows: int = 6) -> Tensor:
    return torch.randint(TOKENS, (rows, 3))


def test_there_is_one_posterior_and_one_kl() -> None:
    net = Language()
    model = hs.bayesianize(net)
    assert list(hs.bayesian_layers(model)) == ["words", "body"]
    torch.testing.assert_close(hs.kl(model), model.words.kl() + model.body.kl())
    assert model.write.weight.shape == (TOKENS, WIDTH)
    assert torch.equal(model.write.weight, net.words.weight)
    assert isinstance(net.write, nn.Linear)
    with hs.drawing(model, "mean"):
        x = ids()
        torch.testing.assert_close(model(x), net(x))


@pytest.mark.parametrize("make", [Language, Twice])
def test_one_draw_has_the_same_weights_in_both_places(make: type) -> None:
    net = make()
    x = ids() if make is Language else torch.randn(6, 4)
    model = hs.bayesianize(net)
    torch.manual_seed(0)
    draws = hs.draw(model, x, 3, "weights").detach()
    torch.manual_seed(0)
    layers = hs.bayesian_layers(model)
    each = [layer.posterior.sample(3).detach() for layer in layers.values()]
    for number, draw in enumerate(draws):
        plain = copy.deepcopy(net)
        with torch.no_grad():
            for name, weights in zip(layers, each, strict=True):
                found, module = weights[number], plain.get_submodule(name)
                if name == "words":
                    module.weight.copy_(found.T)
                elif name == "first":
                    module.weight.copy_(found)
                else:
                    module.weight.copy_(found[:, :-1])
                    module.bias.copy_(found[:, -1])
        torch.testing.assert_close(plain(x), draw, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("averaged", [False, True])
def test_a_weight_that_is_met_twice_is_squared(averaged: bool) -> None:
    net = Twice()
    net.first, net.second = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    net.second.weight = net.first.weight
    model = hs.bayesianize(net)
    model.first.posterior.mean.data.zero_()
    # Two weights of independent signs would make half of the outputs negative.
    draws = hs.draw(model, torch.ones(2, 1), 16, "weights", averaged=averaged)
    assert bool((draws > 0).all())


def test_local_draws_have_the_right_marginals() -> None:
    torch.manual_seed(0)
    model = hs.bayesianize(Language())
    model.words.posterior.logvar.data.fill_(-1.0)
    model.words.posterior.logvar.data[:, 2] = 1.0
    x = torch.randn(1, 3, WIDTH)
    draws = torch.stack([model.write(x).detach() for _ in range(4000)]).squeeze(1)
    posterior = model.words.posterior
    mean, var = (
        part.detach() for part in (x[0] @ posterior.mean, x[0] ** 2 @ posterior.diagonal())
    )
    assert float(((draws.mean(0) - mean) / (var / 4000).sqrt()).abs().max()) < 4.5
    assert float((draws.var(0) / var - 1).abs().max()) < 4.5 * (2 / 4000) ** 0.5


def test_it_starts_trains_predicts_saves_and_loads(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, x = Language(bias=True), ids(64)
    y, lik = (x + 1) % TOKENS, hs.PerPosition(hs.Categorical(TOKENS))
    model = hs.bayesianize(net)
    with pytest.warns(UserWarning, match="is not a fixed multiple"):
        report = hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    assert any("shares its weights with another" in warning for warning in report.warnings)
    start = hs.evaluate(model, lik, (x, y), samples=16, seed=0)["mnll"]
    hs.fit(model, lik, (x, y), steps=60, progress=False, seed=0)
    assert hs.evaluate(model, lik, (x, y), samples=16, seed=0)["mnll"] < start
    hs.save(tmp_path / "model.safetensors", model, lik)
    again, _ = hs.load(tmp_path / "model.safetensors", net=net)
    for sampler in ("mean", "weights"):
        one, other = (
            hs.predict(each, lik, x, 4, sampler=sampler, seed=0).probs for each in (model, again)
        )
        assert torch.equal(one, other)


def test_gradients_of_both_uses_reach_the_one_posterior() -> None:
    model = hs.bayesianize(Language())
    x = ids()
    with hs.drawing(model, "mean"):
        model(x).sum().backward()
    net = Language()
    net.load_state_dict(hs.mean_network(model).state_dict())
    net(x).sum().backward()
    torch.testing.assert_close(model.words.posterior.mean.grad.T, net.words.weight.grad)


def test_the_mean_network_shares_them_again() -> None:
    model = hs.bayesianize(Language(bias=True))
    plain, x = hs.mean_network(model), ids()
    assert plain.write.weight is plain.words.weight
    with hs.drawing(model, "mean"):
        torch.testing.assert_close(plain(x), model(x))


def test_what_cannot_be_shared_is_refused_in_a_sentence() -> None:
    with pytest.raises(hs.HeadstartError, match="converted together: select all of them"):
        hs.bayesianize(Language(), where="write")
    with pytest.raises(hs.HeadstartError, match="low_rank posterior cannot; choose mean_field"):
        hs.bayesianize(Language(), posterior="low_rank")
    with pytest.raises(hs.HeadstartError, match="the members of a mixture cannot"):
        hs.bayesianize(Language(), members=2)
    net = Twice()
    net.first.bias = nn.Parameter(torch.zeros(4))
    with pytest.raises(hs.HeadstartError, match="where one of them has no bias"):
        hs.bayesianize(net)
    hs.bayesianize(Twice(), posterior="low_rank")
    model = hs.bayesianize(Language())
    for call in (
        lambda: hs.freeze(model),
        lambda: hs.initialize_(
            model, "laplace", hs.PerPosition(hs.Categorical(TOKENS)), (ids(), ids())
        ),
    ):
        with pytest.raises(hs.HeadstartError):
            call()
    where = ["!words", "!write"]
    assert list(hs.bayesian_layers(hs.bayesianize(Language(), where=where))) == ["body"]
