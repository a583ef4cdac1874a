"""Local reparameterisation, weight sampling and their folding: the right laws, exactly and by fixed-n z-tests."""

from __future__ import annotations

import copy
import warnings
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.func import jacrev

import headstart as hs
from headstart.kernels.noise import Reused, fresh
from headstart.linalg.affine import affine, split
from headstart.network.branching import crossed_layers, schedule
from headstart.network.forward import draw_weights, forward
from headstart.network.layer import Bayesian
from headstart.network.samplers import Local, Weights, local_moments, repeat_rows
from headstart.posteriors import POSTERIORS, LowRank
from tests.cases import LAYER_POSTERIOR, LAYERS, NETS, Residual, chain, layer, scramble_

pytestmark = pytest.mark.usefixtures("float64")
N = 4000


def jacobian_covariance(model: Bayesian, x: Tensor) -> Tensor:
    """Cov of the output for one input x: J Cov(w) Jᵀ, since the output is linear in the weights; (outputs, outputs)."""
    q = model.posterior
    jacobian = (
        jacrev(lambda w: affine(model.op, x, *split(model.op, w)))(q.mean.detach())
        .flatten(-2)
        .flatten(0, -2)
    )
    if q.name == "matrix_normal":
        inputs, outputs = q.inputs.matrix(), q.outputs.matrix()
        cov = torch.kron(outputs @ outputs.T, inputs @ inputs.T)
    else:
        d, v = q.diagonal(), q.factors()
        dense = 0.0 if v is None else torch.einsum("rui,ruj->uij", v, v)
        cov = torch.block_diag(*(dense + (0.0 if d is None else torch.diag_embed(d))))
    return jacobian @ cov @ jacobian.T


@pytest.mark.parametrize(("name", "family"), LAYER_POSTERIOR)
def test_local_moments_are_the_jacobian_s(name: str, family: str) -> None:
    model, x = layer(name, family)
    mean, var = local_moments(model.op, model.posterior, x)
    with hs.drawing(model, "mean"):
        torch.testing.assert_close(mean, model(x))
    for row in range(len(x)):
        exact = jacobian_covariance(model, x[row : row + 1]).diagonal()
        torch.testing.assert_close(var[row].flatten(), exact, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(("name", "family"), LAYER_POSTERIOR)
@torch.no_grad()
def test_both_samplers_have_these_marginals(name: str, family: str) -> None:
    model, x = layer(name, family)
    mean, var = local_moments(model.op, model.posterior, x)
    for sampler in ("local", "weights"):
        draws = hs.draw(model, x, N, sampler)
        z_mean = (draws.mean(0) - mean) / (var / N).sqrt()
        z_var = ((draws - mean).square().mean(0) - var) / (var * (2 / N) ** 0.5)
        assert float(z_mean.abs().max()) < 5, sampler
        assert float(z_var.abs().max()) < 6, sampler


@pytest.mark.parametrize("family", ["mean_field", "full_covariance", "matrix_normal", "low_rank"])
@torch.no_grad()
def test_dense_layers_agree_in_the_whole_law(family: str) -> None:
    """For one row per example LRT is exact: the covariance between units is that of the weights too."""
    model, x = layer("linear", family)
    exact = jacobian_covariance(model, x[:1])
    for sampler in ("local", "weights"):
        draws = hs.draw(model, x[:1], N, sampler)[:, 0]
        centred = draws - draws.mean(0)
        z = (centred.T @ centred / N - exact) / (
            (torch.outer(exact.diagonal(), exact.diagonal()) + exact.square()) / N
        ).sqrt()
        assert float(z.abs().max()) < 5, sampler


@torch.no_grad()
def test_convolutions_drop_the_covariance_between_positions() -> None:
    """Documented: weight sampling has it, LRT has the marginals only."""
    model, x = layer("conv1d")
    exact = jacobian_covariance(model, x[:1])
    correlation = exact / torch.outer(exact.diagonal(), exact.diagonal()).sqrt()
    off = ~torch.eye(len(exact), dtype=torch.bool)
    first, second = divmod(int((correlation.abs() * off).argmax()), len(exact))
    truth = float(correlation[first, second])
    assert abs(truth) > 0.3
    for sampler, expected in (("weights", truth), ("local", 0.0)):
        draws = hs.draw(model, x[:1], N, sampler)[:, 0].flatten(1)
        measured = float(torch.corrcoef(draws.T)[first, second])
        assert measured == pytest.approx(expected, abs=5 / N**0.5), sampler


@pytest.mark.parametrize("name", ["linear", "conv2d", "conv2d-groups"])
def test_sharing_the_first_layer_equals_repeating_the_input(name: str) -> None:
    model, x = layer(name)
    torch.manual_seed(1)
    shared = Local(branches=4)(model.op, model.posterior, x)
    torch.manual_seed(1)
    repeated = Local()(model.op, model.posterior, repeat_rows(x, 4))
    torch.testing.assert_close(shared, repeated)
    draws = model.posterior.sample(4)
    torch.testing.assert_close(
        Weights(draws, enters=True)(model.op, model.posterior, x),
        Weights(draws)(model.op, model.posterior, repeat_rows(x, 4)),
    )


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


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize(
    ("sampler", "averaged"), [("local", False), ("weights", False), ("weights", True)]
)
@torch.no_grad()
def test_folded_draws_of_a_net_equal_one_draw_at_a_time(
    net: str, sampler: str, averaged: bool
) -> None:
    """S draws in one pass have the law of S passes: residual nets, whose input goes around the first layer, included."""
    model = hs.bayesianize(NETS[net]())
    scramble_(model)
    x = torch.randn(3, 4)
    n = 1500
    folded = hs.draw(model, x, n, sampler, averaged=averaged)
    single = torch.cat([hs.draw(model, x, 1, sampler) for _ in range(n)])
    spread = (folded.var(0) / n + single.var(0) / n).sqrt()
    assert float(((folded.mean(0) - single.mean(0)) / spread).abs().max()) < 4.5
    ratio = folded.var(0) / single.var(0)
    assert float((ratio.log() / (4 / n) ** 0.5).abs().max()) < 6


@torch.no_grad()
def test_weight_draws_are_functions() -> None:
    """Within a scope the same weights serve every call, every row and both calls of a tied layer."""
    model = hs.bayesianize(chain())
    x = torch.randn(3, 4)
    with hs.drawing(model, "weights", 5):
        torch.testing.assert_close(model(x), model(x))
        whole, parts = (
            model(x).unflatten(0, (5, -1)),
            [model(row).unflatten(0, (5, -1)) for row in x.split(1)],
        )
    torch.testing.assert_close(whole, torch.cat(parts, 1))
    outside = model(x), model(x)
    assert not torch.equal(*outside)


@torch.no_grad()
def test_rows_that_need_not_share_weights_share_them_where_that_is_the_law() -> None:
    """A dense first layer draws each row for itself, but not where an example has several rows, nor within a tied layer."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.first(x)
            return self.second(hidden) - self.second(hidden)

    alone, sequence = hs.bayesianize(nn.Linear(4, 3)), torch.ones(5, 6, 4)
    rows = hs.draw(alone, torch.ones(5, 4), 8, "weights", averaged=True)
    assert not torch.allclose(rows[:, :1].expand_as(rows), rows)
    positions = hs.draw(alone, sequence, 8, "weights", averaged=True)
    torch.testing.assert_close(positions[:, :1, :1].expand_as(positions), positions)
    for family in POSTERIORS:
        tied = hs.bayesianize(Tied(), posterior=family)
        assert (
            float(hs.draw(tied, torch.randn(5, 4), 8, "weights", averaged=True).abs().max()) == 0
        ), family
        assert float(hs.draw(tied, torch.randn(5, 4), 8, "local").abs().max()) > 0


class Difference(nn.Module):
    """A Bayesian net of somebody's inside a module of theirs, which calls it twice."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) - self.inner(x)


class Mixed(Difference):
    """The same, once on rows and once on sequences of one."""

    def __init__(self, inner: nn.Module, *dims: int) -> None:
        super().__init__(inner)
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        first, second = (
            self.inner(x if dim == 2 else x.unsqueeze(1)).view(-1, 2) for dim in self.dims
        )
        return first - second


@torch.no_grad()
def test_an_entry_that_is_called_again_after_all_shares_its_weights() -> None:
    inner = hs.bayesianize(nn.Linear(3, 2))
    assert inner.entry
    for net in (Difference(inner), Mixed(inner, 2, 3), Mixed(inner, 3, 2)):
        assert (
            float(hs.draw(net, torch.randn(5, 3), 8, "weights", averaged=True).abs().max()) < 1e-12
        )


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


def gate_names(model: nn.Module) -> list[str]:
    names = {found: name for name, found in hs.bayesian_layers(model).items()}
    return [
        names[gate].removeprefix("layers.") for gate in crossed_layers(hs.bayesian_layers(model))
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
def test_gates_are_the_layers_that_all_goes_through(way: str) -> None:
    model = hs.bayesianize(Chain(way))
    assert "".join(gate_names(model)) == WAYS[way]
    assert [found.entry for found in hs.bayesian_layers(model).values()] == [True] + [False] * 5
    twin = copy.deepcopy(model)
    assert "".join(gate_names(twin)) == WAYS[way]
    assert (
        crossed_layers(hs.bayesian_layers(nn.Sequential(model))) == []
    )  # what is built around it is another net


@pytest.mark.parametrize("way", WAYS)
def test_the_nelbo_is_unbiased_whichever_way_the_net_goes(way: str) -> None:
    """Fixed n: against independent samples, in value and in the gradient of what the first layers share."""
    torch.manual_seed(1)
    model, lik, n, samples = hs.bayesianize(Chain(way)), hs.Gaussian(0.5), 800, 8
    scramble_(model)
    x, y = torch.randn(3, 4), torch.randn(3, 3)

    def estimates(averaged: bool) -> Tensor:
        found = []
        for _ in range(n):
            f = hs.draw(model, x, samples, averaged=averaged)
            nll = -lik.log_prob(f, y).mean(0).sum()
            first = torch.autograd.grad(nll, model.layers[1].posterior.mean)[0]
            found.append(torch.cat([nll.detach().view(1), first.flatten()]))
        return torch.stack(found)

    ours, plain = estimates(True), estimates(False)
    z = (ours.mean(0) - plain.mean(0)) / ((ours.var(0) + plain.var(0)) / n).sqrt()
    assert float(z.abs().max()) < 4.5


@torch.no_grad()
def test_a_net_that_goes_another_way_than_when_it_was_converted_shares_no_draws() -> None:
    model, x = hs.bayesianize(Chain()), torch.randn(3, 4)
    assert hs.draw(model, x, 8, averaged=True).shape == (8, 3, 3)
    model.depth = 3
    assert hs.draw(model, x, 8, averaged=True).shape == (8, 3, 3)
    model.layers[1] = nn.Identity()
    assert hs.draw(model, x, 8, averaged=True).shape == (8, 3, 3)


def handed_on(samples: int, layers: int) -> list[tuple[int, int]]:
    return [(branch.received, branch.given) for branch in schedule(layers, samples)]


def test_samples_are_shared_by_the_first_layers() -> None:
    assert handed_on(16, 6) == [(1, 4), (4, 8), (8, 8), (8, 8), (8, 16), (16, 16)]
    assert handed_on(16, 4) == [(1, 4), (4, 8), (8, 16), (16, 16)]
    assert handed_on(16, 3) == [(1, 4), (4, 8), (8, 16)]
    assert handed_on(16, 2) == [(1, 8), (8, 16)]
    assert handed_on(12, 4) == [(1, 6), (6, 12), (12, 12), (12, 12)]
    assert handed_on(4, 3) == [(1, 2), (2, 4), (4, 4)]
    assert all(handed_on(samples, 3) == [] for samples in (1, 2, 3, 5, 6, 7))
    assert handed_on(16, 1) == handed_on(16, 0) == []


@torch.no_grad()
def test_early_layers_see_fewer_rows_only_where_an_average_is_wanted() -> None:
    model, x = hs.bayesianize(deep()), torch.randn(3, 4)
    # the first pass of a net also looks at how it treats rows (`headstart.network.probe`)
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


@torch.no_grad()
def test_by_weights_functions_behind_a_convolution_come_in_pairs() -> None:
    """Two functions of the second layer for each of the first, in the order of the samples; the same rows in all of them."""
    net = nn.Sequential(
        nn.Conv1d(1, 3, 2), nn.Tanh(), nn.Conv1d(3, 2, 2), nn.Flatten(), nn.Linear(4, 3)
    )
    model, x = hs.bayesianize(net), torch.randn(1, 1, 4).repeat(3, 1, 1)
    scramble_(model)
    # the first pass of a net also looks at how it treats rows (`headstart.network.probe`)
    hs.draw(model, x)
    seen: list[Tensor] = []
    model[2].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    draws = hs.draw(model, x, 8, "weights", averaged=True)
    assert len(seen[0]) == 4 * 3
    torch.testing.assert_close(draws[:, :1].expand_as(draws), draws)  # a sample is one function
    assert len({round(float(draw[0, 0]), 9) for draw in draws}) == 8
    model[2].posterior.logvar.fill_(-200)
    model[4].posterior.logvar.fill_(-200)
    draws = hs.draw(model, x, 8, "weights", averaged=True)
    torch.testing.assert_close(draws[:4], draws[4:])


@pytest.mark.parametrize("sampler", ["local", "weights"])
@pytest.mark.parametrize("noise", ["fresh", "reused"])
@pytest.mark.parametrize("net", ["dense", "wide", "convolutional"])
@torch.no_grad()
def test_each_sample_that_shares_its_first_layers_has_the_law_of_one_alone(
    net: str, noise: str, sampler: str
) -> None:
    """Fixed n: means, variances and the correlation between outputs of every sample, over many passes."""
    torch.manual_seed(3)
    conv = nn.Sequential(
        nn.Conv1d(1, 3, 2), nn.Tanh(), nn.Conv1d(3, 2, 2), nn.Flatten(), nn.Tanh(), nn.Linear(4, 3)
    )
    rows, n, samples = (
        40 if net == "wide" else 2,
        1500,
        8,
    )  # a wide layer's samples have the same numbers at other places
    model = hs.bayesianize({"dense": deep(), "wide": Chain(width=20), "convolutional": conv}[net])
    x = torch.randn(rows, 1, 4) if net == "convolutional" else torch.randn(rows, 4)
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


@pytest.mark.parametrize("sampler", ["local", "weights"])
def test_gradients_of_several_outputs_at_once(sampler: str) -> None:
    """`is_grads_batched` and `jacobian(vectorize=True)` go through the backward passes with one axis more."""
    model, x = hs.bayesianize(chain()), torch.randn(3, 4)
    f = hs.draw(model, x, 4, sampler, Reused(4, 3), averaged=True).flatten()
    parameters = list(model.parameters())
    eye = torch.eye(len(f))
    together = torch.autograd.grad(f, parameters, eye, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(f, parameters, row, retain_graph=True) for row in eye]
    for found, expected in zip(together, zip(*each, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(expected))


@torch.no_grad()
def test_diagonal_and_factors_have_noise_of_their_own_even_of_one_shape() -> None:
    model = hs.bayesianize(
        nn.Sequential(nn.Identity(), nn.Linear(3, 4, bias=True)), posterior=partial(LowRank, rank=4)
    )
    scramble_(model)
    q, x = model[1].posterior, torch.randn(2, 3)  # both (samples, 4, 4)
    draws = hs.draw(model, x, N, "weights", averaged=True)
    truth = (
        torch.einsum("ruf,bf->bru", q.factors(), torch.cat([x, torch.ones(2, 1)], 1))
        .square()
        .sum(1)
    )
    truth = truth + torch.cat([x.square(), torch.ones(2, 1)], 1) @ q.diagonal().T
    assert float(((draws.var(0) / truth).log() / (2 / N) ** 0.5).abs().max()) < 4.5


def test_a_row_of_zeros_without_bias_has_a_finite_gradient() -> None:
    model, _ = layer("linear-no-bias")
    hs.draw(model, torch.zeros(2, 4), 3).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_every_layer_of_the_table_is_a_case() -> None:
    assert {name for name, _ in LAYER_POSTERIOR} == set(LAYERS)


class Sequence(nn.Module):
    """A layer used at many positions of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.each(x)).mean(1))


class Tied(nn.Module):
    """A layer called twice, with the batch flattened in between."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        flat = self.each(x.reshape(-1, 4))
        return self.head(self.each(flat).reshape(-1, 6, 4).sum(1))


class Branches(nn.Module):
    """Two heads side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(24, 2), nn.Linear(24, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.left(x.flatten(1)), self.right(x.flatten(1))], 1)


class FullyConvolutional(nn.Module):
    """A grouped convolution and a pool as the head."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv1d(6, 6, 3, groups=2), nn.Conv1d(6, 3, 1, groups=3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).relu()).mean(2)


class Siamese(nn.Module):
    """Two halves of a row under one another through the same layer, then side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.head = nn.Linear(12, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.each(torch.cat([x[:, :3].flatten(1), x[:, 3:].flatten(1)])).chunk(2)
        return self.head(one - other.tanh())


SHAPES = [Sequence, Tied, Branches, FullyConvolutional, Siamese]


@pytest.mark.parametrize("net", SHAPES)
@pytest.mark.parametrize("sampler", ["local", "weights"])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_draws_without_noise_are_the_mean_network(
    net: type[nn.Module], sampler: str, rows: int
) -> None:
    """Every sample of every row: the samples are not mixed up, whatever the net does with its rows."""
    model = hs.bayesianize(net())
    for each in hs.bayesian_layers(model).values():
        nn.init.constant_(each.posterior.logvar, -60.0)
    x = torch.randn(rows, 6, 4)
    mean = hs.draw(model, x, 1, "mean")
    torch.testing.assert_close(
        hs.draw(model, x, 4, sampler), mean.expand(4, -1, -1), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("net", SHAPES)
def test_folded_weight_draws_equal_one_function_at_a_time(net: type[nn.Module]) -> None:
    """Exactly, with the same weights: whatever the net does with its rows."""
    model = hs.bayesianize(net())
    scramble_(model)
    x = torch.randn(5, 6, 4)
    weights = draw_weights(model, 3)
    folded = forward(model, x, 3, "weights", weights)
    single = torch.cat(
        [forward(model, x, 1, "weights", [w[s : s + 1] for w in weights]) for s in range(3)]
    )
    torch.testing.assert_close(folded, single)


def test_nets_that_move_the_batch_are_refused_in_words() -> None:
    class TimeFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.each(x.transpose(0, 1)).relu().mean(0))

    class Query(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.each, self.head = (
                nn.Parameter(torch.randn(1, 4)),
                nn.Linear(4, 3),
                nn.Linear(4, 3),
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x) + self.each(self.query)

    class Summary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.each(x).mean(0)

    for net, x in (
        (TimeFirst(), torch.randn(32, 5, 4)),
        (Query(), torch.randn(32, 4)),
        (Summary(), torch.randn(32, 4)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = hs.bayesianize(net)
        for sampler in ("local", "weights"):
            with pytest.raises(hs.HeadstartError, match=r"batch|row for each"):
                hs.draw(model, x, 16, sampler)


def test_shared_weights_are_predicted_by_whole_functions() -> None:
    """A mean over 50 equal positions is as uncertain as one of them; independent noise would say √50 times less."""

    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each = nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.each(x).mean(1)

    model = hs.bayesianize(Mean())
    one = torch.randn(1, 1, 4)
    single = hs.predict(model, hs.Gaussian(), one, samples=2000, seed=0).epistemic_std
    many = hs.predict(
        model, hs.Gaussian(), one.expand(1, 50, 4), samples=2000, seed=0
    ).epistemic_std
    torch.testing.assert_close(many, single, rtol=0.1, atol=0)


def test_local_draws_of_a_matrix_normal_have_the_gradient_of_their_law() -> None:
    """`E (f_0 f_1) = V_01 · x̃ᵀUx̃` for a mean of zero, and V_01 = l_00 l_10: by l_10 the gradient is l_00 · x̃ᵀUx̃."""
    model, x = (
        hs.bayesianize(nn.Linear(3, 2), posterior="matrix_normal"),
        torch.tensor([[1.0, -2.0, 0.5]]),
    )
    scramble_(model)
    posterior = model.posterior
    torch.nn.init.zeros_(posterior.mean)
    n = 20_000
    torch.manual_seed(3)
    f = hs.draw(model, x, n, "local").squeeze(1)
    product = f[:, 0] * f[:, 1]
    (gradient,) = torch.autograd.grad(product.mean(), posterior.outputs.lower)
    with torch.no_grad():
        quadratic = (torch.cat([x[0], torch.ones(1)]) @ posterior.inputs.matrix()).square().sum()
        expected = posterior.outputs.matrix()[0, 0] * quadratic
        # ∂(f_0 f_1)/∂l_10 = f_0 · ε_0 √(x̃ᵀUx̃) = f_0² / l_00, whose standard deviation is √2 times its mean
        assert abs(float((gradient[1, 0] - expected) / (expected * (2 / n) ** 0.5))) < 4
