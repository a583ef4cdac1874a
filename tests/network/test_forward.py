"""Folded draws equal one draw at a time, whatever a net does with its rows."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.network.forward import draw_weights, forward
from headstart.posteriors import POSTERIORS
from tests.cases import NETS, chain, scramble_

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize(
    ("sampler", "averaged"), [("local", False), ("weights", False), ("weights", True)]
)
@torch.no_grad()
def test_folded_draws_of_a_net_equal_one_draw_at_a_time(
    net: str, sampler: str, averaged: bool
) -> None:
    """S draws in one pass have the law of S passes, for residual nets too."""
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
    """Within a scope the same weights serve every call, every row and both calls if tied."""
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
    """A dense first layer draws row by row, unless an example has several or it is tied."""

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
    """Every sample of every row: samples are not mixed up, whatever the net does with its rows."""
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

    class Summary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.each(x).mean(0)

    for net, x in (
        (TimeFirst(), torch.randn(32, 5, 4)),
        (Summary(), torch.randn(32, 4)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = hs.bayesianize(net)
        for sampler in ("local", "weights"):
            with pytest.raises(hs.HeadstartError, match=r"batch|row for each"):
                hs.draw(model, x, 16, sampler)


def test_shared_weights_are_predicted_by_whole_functions() -> None:
    """A mean over 50 equal positions is as uncertain as one of them, not √50 times less."""

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


def test_a_scope_that_knows_its_rows_says_in_words_that_batches_are_stacked() -> None:
    model, x = hs.bayesianize(Siamese()), torch.randn(5, 6, 4)
    with (
        pytest.raises(hs.HeadstartError, match=r"stacks several batches.*hs\.draw"),
        hs.drawing(model, "local", 3, rows=5),
    ):
        model(x)
    with (
        pytest.raises(hs.HeadstartError, match=r"received 7 rows where the batch has 5"),
        hs.drawing(model, "local", 1, rows=5, fold=False),
    ):
        model.head(torch.randn(7, 5))


@torch.no_grad()
def test_a_net_that_has_lost_the_layer_it_entered_by_repeats_its_input() -> None:
    model = hs.bayesianize(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)))
    model[0] = nn.Identity()
    for sampler in ("local", "weights"):
        assert hs.draw(model, torch.randn(5, 4), 8, sampler, averaged=True).shape == (8, 5, 3)


class Annotated(nn.Module):
    """Gives a note beside its tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, str]:
        return self.each(x), "a note"


@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("sampler", ["local", "weights", "mean"])
def test_an_output_that_is_no_tensor_is_refused_in_words(sampler: str, averaged: bool) -> None:
    with pytest.raises(hs.HeadstartError, match=r"one tensor with a row for each.*gave a tuple"):
        hs.draw(hs.bayesianize(Annotated()), torch.randn(5, 4), 4, sampler, averaged=averaged)


@pytest.mark.parametrize("sampler", ["local", "weights", "mean"])
def test_several_tensors_are_drawn_together(sampler: str) -> None:
    model = hs.bayesianize(TwoHeads())
    draws = hs.draw(model, torch.randn(5, 4), 4, sampler)
    assert [part.shape[1:] for part in draws.tensors] == [(5, 3), (5, 3)]
    # The second head is twice the first, of the same draw.
    assert torch.equal(draws.named["twice"], 2 * draws.named["once"])


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        f = self.each(x)
        return {"once": f, "twice": 2 * f}
