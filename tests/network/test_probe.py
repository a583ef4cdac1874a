"""Samples are folded into axis 0: a net that keeps rows apart there works, others are refused."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import jacrev

import headstart as hs
from headstart.curvature import kronecker_factors
from headstart.network.forward import draw_weights, forward
from headstart.network.probe import check_rows
from tests.cases import scramble_

FEATURES, OUTPUTS, SAMPLES, ROWS, STEPS = 4, 3, 4, 6, 5

# what `bayesianize` says about attention and BatchNorm is tested elsewhere
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class Two(nn.Module):
    """Two layers, for nets that differ in how they call them, and learned vectors."""

    def __init__(self, steps: int = STEPS) -> None:
        super().__init__()
        self.each, self.head = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, OUTPUTS)
        self.vectors = nn.Parameter(torch.randn(steps, FEATURES))


class TimeFirst(Two):
    """Mixes features with time on axis 0, and brings the batch back there for the head."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = x.transpose(0, 1)
        hidden = hidden + self.each(hidden).tanh()
        return self.head(hidden.transpose(0, 1).mean(1))


class TimeFirstChain(Two):
    """The same, all through its first layer, which then draws from each row S times."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.each(x.transpose(0, 1)).tanh().transpose(0, 1).mean(1))


class PlainHead(Two):
    """The same with a head that stays as it is, so that only the output can tell."""

    def forward(self, x: Tensor) -> Tensor:
        return self.each(x.transpose(0, 1)).tanh().mean(1)[:, :OUTPUTS]


class Summary(Two):
    """A row of the output for each step in time."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.mean(0))


class Queries(Two):
    """A layer that sees learned vectors instead of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.mean(1) + self.each(self.vectors).mean(0))


class Pairs(Two):
    """A layer that sees every row beside every other."""

    def forward(self, x: Tensor) -> Tensor:
        h = x.mean(1)
        pairs = (h.unsqueeze(0) - h.unsqueeze(1)).flatten(0, 1)
        return self.head(h + self.each(pairs).tanh().view(len(x), len(x), -1).mean(1))


class Loop(Two):
    """A layer that is called for each row, on its steps in time."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.stack([self.each(row).tanh().mean(0) for row in x]))


SIZES = [STEPS, ROWS, SAMPLES * ROWS, 2 * SAMPLES * ROWS]
"""Steps in time. Whether they are as many as rows, or as rows of all samples, must not matter."""
MOVED = [TimeFirst, TimeFirstChain, PlainHead, Summary, Queries, Pairs, Loop]
LIKELIHOOD = hs.Gaussian(noise_var=0.5)


def _nelbo(model: nn.Module, x: Tensor, y: Tensor, sampler: str = "local") -> Tensor:
    return hs.nelbo(model, LIKELIHOOD, x, y, num_data=9, samples=SAMPLES, sampler=sampler).value


def _fit(model: nn.Module, x: Tensor, y: Tensor, steps: int = 1) -> None:
    options = {"samples": SAMPLES, "batch_size": len(x), "progress": False}
    hs.fit(model, hs.Gaussian(), (x, y), steps=steps, **options)


USES: dict[str, Callable[[nn.Module, Tensor, Tensor], object]] = {
    "draw-local": lambda model, x, y: hs.draw(model, x, SAMPLES),
    "draw-weights": lambda model, x, y: hs.draw(model, x, SAMPLES, "weights"),
    "draw-one": lambda model, x, y: hs.draw(model, x),
    "nelbo-local": _nelbo,
    "nelbo-weights": lambda model, x, y: _nelbo(model, x, y, "weights"),
    "predict": lambda model, x, y: hs.predict(model, LIKELIHOOD, x, SAMPLES),
    "fit": _fit,
    "iblm": lambda model, x, y: hs.initialize_(model, "iblm", hs.Gaussian(), (x, y)),
    "lsuv": lambda model, x, y: hs.initialize_(model, "lsuv", batches=(x, y)),
    "kronecker": lambda model, x, y: kronecker_factors(model, LIKELIHOOD, x),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("steps", SIZES)
@pytest.mark.parametrize("net", MOVED)
def test_nets_that_move_the_batch_are_refused(net: type[Two], steps: int, use: str) -> None:
    model = hs.bayesianize(net(steps), where="each" if net is PlainHead else None)
    x, y = torch.randn(ROWS, steps, FEATURES), torch.randn(ROWS, OUTPUTS)
    with pytest.raises(hs.HeadstartError, match=r"not the batch|its layers otherwise"):
        USES[use](model, x, y)


def test_the_sentence_names_the_layer_and_says_what_to_do() -> None:
    model, x = hs.bayesianize(TimeFirst()), torch.randn(ROWS, SAMPLES * ROWS, FEATURES)
    with pytest.raises(hs.HeadstartError) as caught:
        hs.draw(model, x, SAMPLES)
    assert str(caught.value) == (
        "Axis 0 of the input of layer 'each' is not the batch, into which samples are folded: it "
        "has 24 entries for two rows and 24 for four; keep the batch first from end to end "
        "(batch_first=True in attention and recurrent layers), or leave such a layer out with "
        "bayesianize(..., where=)."
    )


class Around(nn.Module):
    """Something that is not ours between two layers that become Bayesian."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.each, self.head = nn.Linear(FEATURES, FEATURES), nn.Linear(STEPS * FEATURES, OUTPUTS)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.between(self.each(x)).flatten(1))


class Recurrent(nn.LSTM):
    """An LSTM that gives its outputs alone."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[0]


class Alike(Two):
    """Two parts of each row through the same layer, one under another."""

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.each(torch.cat([x[:, 0], x[:, 1:].sum(1)])).chunk(2)
        return self.head(one - other.tanh())


class StepsAsRows(Two):
    """A layer that sees every step in time as a row."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.each(x.flatten(0, 1)).relu_().unflatten(0, x.shape[:2]).mean(1))


class Words(nn.Module):
    """Integers in."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(9, FEATURES), nn.Linear(FEATURES, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.table(x.abs().round().long().clamp(max=8)).mean((1, 2)))


class Slope(Two):
    """A net that takes a gradient of its own."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            given = x.detach().sum(1).requires_grad_()
            energy = self.each(given).square().sum()
            (slope,) = torch.autograd.grad(energy, given, create_graph=True)
        return self.head(slope.tanh())


def _encoder(batch_first: bool) -> nn.Module:
    return nn.TransformerEncoderLayer(FEATURES, 2, 8, dropout=0.0, batch_first=batch_first)


KEPT: dict[str, Callable[[], nn.Module]] = {
    "siamese": Alike,
    "sequence": lambda: Around(torch.tanh),
    "flattened": lambda: nn.Sequential(nn.Flatten(), nn.Linear(STEPS * FEATURES, OUTPUTS)),
    "steps as rows": StepsAsRows,
    "convolution": lambda: Around(nn.Conv1d(STEPS, STEPS, 3, padding=1)),
    "transformer": lambda: Around(nn.TransformerEncoder(_encoder(batch_first=True), 2)),
    "recurrent": lambda: Around(Recurrent(FEATURES, FEATURES, batch_first=True)),
    "batch norm": lambda: Around(nn.BatchNorm1d(STEPS)).eval(),
    "layer norm": lambda: Around(nn.LayerNorm(FEATURES)),
    "words": Words,
    "own gradient": Slope,
}
"""Nets that keep rows apart, on inputs (rows, STEPS, FEATURES)."""


@pytest.mark.parametrize("rows", [1, 2, STEPS, STEPS * SAMPLES])
@pytest.mark.parametrize("net", KEPT)
def test_nets_that_keep_rows_apart_go_on_working(net: str, rows: int) -> None:
    """Exactly: folded draws are those of one function after another, whatever the sizes."""
    model = hs.bayesianize(KEPT[net]()).double()
    scramble_(model, 0.3)
    x, y = torch.randn(rows, STEPS, FEATURES).double(), torch.randn(rows, OUTPUTS).double()
    weights = draw_weights(model, SAMPLES)
    folded = forward(model, x, SAMPLES, "weights", weights)
    functions = zip(*(each.split(1) for each in weights), strict=True)
    single = [forward(model, x, 1, "weights", list(function)) for function in functions]
    torch.testing.assert_close(folded, torch.cat(single), rtol=1e-9, atol=1e-9)
    for sampler in ("local", "weights"):
        assert torch.isfinite(_nelbo(model, x, y, sampler))
    assert hs.predict(model, LIKELIHOOD, x, SAMPLES).draws.shape == (SAMPLES, rows, OUTPUTS)


MIXED: dict[str, Callable[[], nn.Module]] = {
    "attention": lambda: Around(_encoder(batch_first=False)),
    "recurrent": lambda: Around(Recurrent(FEATURES, FEATURES)),
    "centered": lambda: Around(lambda x: x - x.mean(0)),
    "softmax": lambda: Around(lambda x: x.softmax(0)),
    "rolled": lambda: Around(lambda x: x.roll(1, 0)),
    "reversed": lambda: Around(lambda x: x.flip(0)),
    "cumulative": lambda: Around(lambda x: x.cumsum(0)),
    "later rows": lambda: Around(lambda x: x.flip(0).cumsum(0).flip(0)),
    "batch statistics": lambda: Around(nn.BatchNorm1d(STEPS, track_running_stats=False)),
}
"""Nets in which what comes of a row depends on the rows beside it."""


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("net", MIXED)
def test_nets_that_mix_rows_are_refused(net: str, use: str) -> None:
    model = hs.bayesianize(MIXED[net]())
    x, y = torch.randn(ROWS, STEPS, FEATURES), torch.randn(ROWS, OUTPUTS)
    said = r"layer .* (depends on the other|is not the batch).*batch_first=True"
    with pytest.raises(hs.HeadstartError, match=said):
        USES[use](model, x, y)


def test_rows_that_mix_are_seen_where_all_means_are_zero() -> None:
    """The mean network of such a start gives zeros, whatever goes on inside."""
    model = hs.bayesianize(MIXED["centered"]())
    hs.initialize_(model, "uninformative")
    with pytest.raises(hs.HeadstartError, match="depends on the other rows"):
        hs.draw(model, torch.randn(ROWS, STEPS, FEATURES), SAMPLES)


def test_batch_norm_that_trains_keeps_its_warning_and_works() -> None:
    """Only its training mode mixes rows, and that is what the warning says."""
    x, y = torch.randn(ROWS, STEPS, FEATURES), torch.randn(ROWS, OUTPUTS)
    with pytest.warns(UserWarning, match="in training mode its statistics mix the samples"):
        model = hs.bayesianize(Around(nn.BatchNorm1d(STEPS)).train())
    _fit(model, x, y, steps=2)
    assert int(model.between.num_batches_tracked) == 2


def _other_noise(*shape: int) -> Tensor:
    """Of another generator than torch's."""
    return torch.tensor(np.random.default_rng().normal(size=shape)).float()


@pytest.mark.parametrize("noise", [torch.randn, _other_noise])
def test_noise_of_a_net_s_own_is_not_taken_for_mixed_rows(noise: Callable[..., Tensor]) -> None:
    model = hs.bayesianize(Around(lambda x: x + noise(*x.shape)))
    found = hs.draw(model, torch.randn(ROWS, STEPS, FEATURES), SAMPLES)
    assert found.shape == (SAMPLES, ROWS, OUTPUTS)


@pytest.mark.parametrize("sampler", ["local", "weights"])
def test_a_first_look_changes_nothing(sampler: str) -> None:
    """Random state, modes, samplers, buffers; so the draws of a seed are what they are later."""
    net = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 1))
    model, x = hs.bayesianize(net), torch.randn(ROWS, FEATURES)
    model[1].eval()
    other, samplers = copy.deepcopy(model), [model[0].sampler, model[3].sampler]
    before = torch.get_rng_state()
    check_rows(model, x)
    assert torch.equal(torch.get_rng_state(), before)
    assert [model[0].sampler, model[3].sampler] == samplers
    assert [module.training for module in model] == [True, False, True, True]
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    torch.manual_seed(3)
    first = hs.draw(other, x, SAMPLES, sampler)
    torch.manual_seed(3)
    assert torch.equal(hs.draw(model, x, SAMPLES, sampler), first)


def test_a_net_is_looked_at_once_for_each_shape_of_a_row() -> None:
    sizes: list[int] = []

    def note(x: Tensor) -> Tensor:
        sizes.append(len(x))
        return x

    model = hs.bayesianize(Around(note))
    x, y = torch.randn(ROWS, STEPS, FEATURES), torch.randn(ROWS, OUTPUTS)
    for _ in range(2):
        _nelbo(model, x, y)
    assert sizes == [4, 2, 4, SAMPLES * ROWS, SAMPLES * ROWS]
    hs.draw(model, x[:4], SAMPLES)
    assert sizes[5:] == [SAMPLES * 4]
    with pytest.raises(hs.HeadstartError, match="cannot take inputs of shape"):
        hs.draw(model, x[:, :4], SAMPLES)
    assert sizes[6:] == [4]
    model = hs.bayesianize(Around(note))
    hs.draw(model, x, SAMPLES)
    assert sizes[7:] == [4, 2, 4, SAMPLES * ROWS]


def test_one_row_shows_sizes_and_more_show_what_mixes() -> None:
    model, x = hs.bayesianize(MIXED["centered"]()), torch.randn(ROWS, STEPS, FEATURES)
    assert hs.draw(model, x[:1], 1).shape == (1, 1, OUTPUTS)
    with pytest.raises(hs.HeadstartError, match="depends on the other rows"):
        hs.draw(model, x, SAMPLES)
    with pytest.raises(hs.HeadstartError, match="not the batch"):
        hs.draw(hs.bayesianize(TimeFirst()), x[:1], STEPS)


def test_what_was_looked_at_is_let_go() -> None:
    model = hs.bayesianize(nn.Linear(FEATURES, OUTPUTS))
    hs.draw(model, torch.randn(ROWS, FEATURES), SAMPLES)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


def test_no_rows_and_transforms_are_left_alone() -> None:
    model, x = hs.bayesianize(nn.Linear(FEATURES, OUTPUTS)), torch.randn(ROWS, FEATURES)
    assert hs.draw(model, x[:0]).shape == (1, 0, OUTPUTS)
    found = jacrev(lambda given: hs.draw(model, given, 2).sum(0))(x)
    assert found.shape == (ROWS, OUTPUTS, ROWS, FEATURES)


@pytest.mark.parametrize("call", ["fit", "steps", "initialize_", "nelbo", "predict", "refine_"])
def test_inputs_that_the_net_cannot_take_are_refused_in_a_sentence(call: str) -> None:
    x, y, lik = torch.randn(40, 3), torch.randn(40), hs.Gaussian()
    model = hs.bayesianize(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    calls: dict[str, Callable[[], object]] = {
        "fit": lambda: hs.fit(model, lik, (x, y), steps=3, progress=False),
        "steps": lambda: next(iter(hs.steps(model, lik, (x, y), steps=3))),
        "initialize_": lambda: hs.initialize_(model, "iblm", lik, (x, y)),
        "nelbo": lambda: hs.nelbo(model, lik, x, y, num_data=40),
        "predict": lambda: hs.predict(model, lik, x),
        "refine_": lambda: hs.refine_(model, lik, (x, y)),
    }
    with pytest.raises(hs.HeadstartError, match=r"The net cannot take inputs of shape \(rows, 3\)"):
        calls[call]()


def test_an_unknown_token_is_refused_in_a_sentence() -> None:
    model = hs.bayesianize(nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 2)))
    with pytest.raises(hs.HeadstartError, match=r"the index 9"):
        hs.draw(model, torch.tensor([[0, 9]]), 2)
