"""The chain of layers that every path crosses, and samples that branch along it."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.kernels.noise import fresh
from headstart.network.branching import crossed_layers, schedule
from tests.cases import Residual, chain, scramble_

pytestmark = pytest.mark.usefixtures("float64")


def test_the_entry_is_found_where_the_net_is_a_chain_and_only_there() -> None:
    class Shapes(nn.Module):
        """Uses the input's own batch size after the first layer."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x).reshape(x.shape[0], -1))

    class Twice(nn.Module):
        """Calls its first layer twice."""

        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.layer(self.layer(x).relu()))

    assert hs.bayesianize(chain())[0].entry
    assert not hs.bayesianize(Residual()).first.entry
    for net in (Shapes(), Twice(), Residual()):
        model = hs.bayesianize(net)
        assert not any(found.entry for found in hs.bayesian_layers(model).values())
        assert hs.draw(model, torch.randn(5, 4), 7).shape == (7, 5, 3)


class Chain(nn.Module):
    """Five layers, one after another, and a few ways to depart from that."""

    def __init__(self, way: str = "", width: int = 4) -> None:
        super().__init__()
        sizes = [4, *[width] * 4, 3]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.aside, self.way, self.depth = nn.Linear(width, 1), way, 5

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for number, layer_ in enumerate(self.layers, 1):
            if number > self.depth and number < 5:
                continue
            before, h = h, layer_(h)
            if number == 2:
                if self.way == "around":
                    h = h + before
                elif self.way == "shape":
                    h = h.reshape(before.shape[0], -1)
                elif self.way == "tied":
                    h = layer_(h)
                elif self.way == "mode" and self.training:
                    h = h + before
                elif self.way == "aside":
                    self.kept = self.aside(before)
                elif self.way == "stacked":
                    h = torch.cat([h, -h])
            if number == 3 and self.way == "stacked":
                first, second = h.chunk(2)
                h = first - second
            h = h.tanh() if number < 5 else h
        return h


def chain_names(model: nn.Module) -> list[str]:
    names = {found: name for name, found in hs.bayesian_layers(model).items()}
    return [
        names[crossed].removeprefix("layers.")
        for crossed in crossed_layers(hs.bayesian_layers(model))
    ]


WAYS = {
    "": "01234",
    "around": "0",
    "shape": "0",
    "tied": "0",
    "mode": "0",
    "aside": "0",
    "stacked": "01234",
}


@pytest.mark.parametrize("way", WAYS)
def test_the_chain_is_the_layers_that_every_path_crosses(way: str) -> None:
    model = hs.bayesianize(Chain(way))
    assert "".join(chain_names(model)) == WAYS[way]
    assert [found.entry for found in hs.bayesian_layers(model).values()] == [True] + [False] * 5
    twin = copy.deepcopy(model)
    assert "".join(chain_names(twin)) == WAYS[way]
    # What is built around it is another net, but what torch.compile wraps is the same one.
    assert crossed_layers(hs.bayesian_layers(nn.Sequential(model))) == []
    compiled = {f"_orig_mod.{name}": each for name, each in hs.bayesian_layers(model).items()}
    assert len(crossed_layers(compiled)) == len(WAYS[way])


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_nelbo_is_unbiased_whichever_way_the_net_goes(way: str) -> None:
    """Fixed n: against independent samples, in value and in the gradient of the shared prefix."""
    torch.manual_seed(1)
    model, lik = hs.bayesianize(Chain(way)), hs.Gaussian(0.5)
    scramble_(model)
    x, y = torch.randn(3, 4), torch.randn(3, 3)

    def estimates(n: int, samples: int, averaged: bool) -> Tensor:
        found = []
        for _ in range(n):
            f = hs.draw(model, x, samples, averaged=averaged)
            nll = -lik.log_prob(f, y).mean(0).sum()
            first = torch.autograd.grad(nll, model.layers[1].posterior.mean)[0]
            found.append(torch.cat([nll.detach().view(1), first.flatten()]))
        return torch.stack(found)

    # Independent samples may come many at once: their mean is as precise.
    ours, plain = estimates(800, 8, True), estimates(200, 32, False)
    errors = ours.var(0) / len(ours) + plain.var(0) / len(plain)
    z = (ours.mean(0) - plain.mean(0)) / errors.sqrt()
    assert float(z.abs().max()) < 4.5


@torch.no_grad()
def test_a_net_that_goes_another_way_than_when_it_was_converted_shares_no_draws() -> None:
    model, x = hs.bayesianize(Chain()), torch.randn(3, 4)
    assert hs.draw(model, x, 8, averaged=True).shape == (8, 3, 3)
    model.depth = 3
    assert hs.draw(model, x, 8, averaged=True).shape == (8, 3, 3)
    model.layers[1] = nn.Identity()
    assert hs.draw(model, x, 8, averaged=True).shape == (8, 3, 3)


def branches(
    samples: int, layers: int, members: int = 1, dense: bool = True
) -> list[tuple[int, int]]:
    found = schedule(layers, samples, members, dense)
    return [(branch.received, branch.given) for branch in found]


def test_samples_branch_along_the_chain() -> None:
    assert branches(16, 6) == [(1, 4), (4, 8), (8, 8), (8, 8), (8, 16), (16, 16)]
    assert branches(16, 4) == [(1, 4), (4, 8), (8, 16), (16, 16)]
    assert branches(16, 3) == [(1, 4), (4, 8), (8, 16)]
    assert branches(16, 2) == [(1, 8), (8, 16)]
    assert branches(12, 4) == [(1, 6), (6, 12), (12, 12), (12, 12)]
    assert branches(4, 3) == [(1, 2), (2, 4), (4, 4)]
    assert all(branches(samples, 3) == [] for samples in (1, 2, 3, 5, 6, 7))
    assert branches(16, 1) == branches(16, 0) == []


def test_behind_a_convolution_samples_branch_a_layer_later() -> None:
    assert branches(8, 5, dense=False) == [(1, 1), (1, 2), (2, 4), (4, 8), (8, 8)]
    assert branches(24, 6, dense=False) == [(1, 3), (3, 6), (6, 12), (12, 12), (12, 24), (24, 24)]
    assert branches(8, 5) == [(1, 2), (2, 4), (4, 4), (4, 8), (8, 8)]
    # In short chains the third layer is the last but one, and doubles in dense chains too.
    for layers in (2, 3, 4):
        assert branches(16, layers, dense=False) == branches(16, layers)
    for samples in (4, 12):
        assert branches(samples, 6, dense=False) == branches(samples, 6)
    mixture = [(1, 1), (1, 2), (2, 2), (2, 4), (4, 4)]
    assert branches(4, 5, members=2, dense=False) == mixture


@torch.no_grad()
def test_convolutions_see_the_fewest_rows() -> None:
    model, x = hs.bayesianize(deep_convolutional()), torch.randn(3, 1, 4)
    hs.draw(model, x)
    seen: list[int] = []
    for layer_ in hs.bayesian_layers(model).values():
        layer_.register_forward_pre_hook(lambda module, args: seen.append(len(args[0]) // 3))
    hs.nelbo(model, hs.Categorical(3), x, torch.zeros(3).long(), num_data=3, samples=8)
    assert seen == [1, 1, 2, 4, 8]


@torch.no_grad()
def test_early_layers_see_fewer_rows_only_where_an_average_is_wanted() -> None:
    model, x = hs.bayesianize(deep()), torch.randn(3, 4)
    # The first pass of a net also checks how it treats rows (`headstart.network.probe`).
    hs.draw(model, x)
    seen: list[int] = []
    for layer_ in hs.bayesian_layers(model).values():
        layer_.register_forward_pre_hook(lambda module, args: seen.append(len(args[0]) // 3))
    for sampler, averaged, expected in (
        ("local", True, [1, 2, 4, 4, 8]),
        ("local", False, [1, 8, 8, 8, 8]),
        ("weights", True, [1, 8, 8, 8, 8]),
    ):
        seen.clear()
        assert hs.draw(model, x, 8, sampler, averaged=averaged).shape == (8, 3, 3)
        assert seen == expected, sampler
    seen.clear()
    hs.nelbo(model, hs.Categorical(3), x, torch.zeros(3).long(), num_data=3, samples=8)
    assert seen == [1, 2, 4, 4, 8]


def deep() -> nn.Sequential:
    return nn.Sequential(
        *(part for _ in range(4) for part in (nn.Linear(4, 4), nn.Tanh())), nn.Linear(4, 3)
    )


def deep_convolutional() -> nn.Sequential:
    convolutions = (nn.Conv1d(1, 3, 2), nn.Tanh(), nn.Conv1d(3, 2, 2), nn.Flatten(), nn.Tanh())
    dense = (nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    return nn.Sequential(*convolutions, *dense)


@torch.no_grad()
def test_by_weights_functions_behind_a_convolution_come_in_pairs() -> None:
    """Two functions of the second layer for each of the first, in the order of the samples."""
    net = nn.Sequential(
        nn.Conv1d(1, 3, 2), nn.Tanh(), nn.Conv1d(3, 2, 2), nn.Flatten(), nn.Linear(4, 3)
    )
    model, x = hs.bayesianize(net), torch.randn(1, 1, 4).repeat(3, 1, 1)
    scramble_(model)
    # The first pass of a net also checks how it treats rows (`headstart.network.probe`).
    hs.draw(model, x)
    seen: list[Tensor] = []
    model[2].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    draws = hs.draw(model, x, 8, "weights", averaged=True)
    assert len(seen[0]) == 4 * 3
    # A sample is one function.
    torch.testing.assert_close(draws[:, :1].expand_as(draws), draws)
    assert len({round(float(draw[0, 0]), 9) for draw in draws}) == 8
    model[2].posterior.logvar.fill_(-200)
    model[4].posterior.logvar.fill_(-200)
    draws = hs.draw(model, x, 8, "weights", averaged=True)
    torch.testing.assert_close(draws[:4], draws[4:])


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["local", "weights"])
@pytest.mark.parametrize("noise", ["fresh", "reused"])
@pytest.mark.parametrize("net", ["dense", "wide", "convolutional", "deep convolutional"])
@torch.no_grad()
def test_each_sample_that_shares_its_first_layers_has_the_law_of_one_alone(
    net: str, noise: str, sampler: str
) -> None:
    """Fixed n: means, variances and correlations between outputs of every sample."""
    torch.manual_seed(3)
    conv = nn.Sequential(
        nn.Conv1d(1, 3, 2), nn.Tanh(), nn.Conv1d(3, 2, 2), nn.Flatten(), nn.Tanh(), nn.Linear(4, 3)
    )
    # A wide layer's samples have the same numbers at other places.
    rows, n, samples = 40 if net == "wide" else 2, 1500, 8
    nets = {"dense": deep(), "wide": Chain(width=20), "convolutional": conv}
    model = hs.bayesianize({**nets, "deep convolutional": deep_convolutional()}[net])
    x = torch.randn(rows, 1, 4) if net.endswith("convolutional") else torch.randn(rows, 4)
    torch.manual_seed(4)
    draws = torch.stack(
        [
            hs.draw(model, x, samples, sampler, None if noise == "reused" else fresh, True)[:, :2]
            for _ in range(n)
        ]
    )
    alone = hs.draw(model, x[:2], 4 * n, sampler)
    spread = alone.std(0)
    for sample in draws.unbind(1):
        z = (sample.mean(0) - alone.mean(0)) / (spread * (1 / n + 1 / (4 * n)) ** 0.5)
        assert float(z.abs().max()) < 4.5
        ratio = (sample.var(0) / alone.var(0)).log() / (2 * (1 / n + 1 / (4 * n))) ** 0.5
        assert float(ratio.abs().max()) < 6
        ours, plain = (torch.corrcoef(part[:, 0].T) for part in (sample, alone))
        assert float((ours - plain).abs().max()) < 5 * (1 / n + 1 / (4 * n)) ** 0.5
