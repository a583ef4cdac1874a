"""Stock modules with several weights, taken apart into layers that convert."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.network.decompose import decompose_, recompose_
from headstart.network.forward import draw_weights, drawing, forward

pytestmark = pytest.mark.usefixtures("float64")

ROWS, STEPS, INPUTS, WIDTH = 3, 5, 4, 6


class Conv1D(nn.Module):
    """As in transformers, which keeps its weight as (inputs, units)."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight, self.bias = nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.randn(nf))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


Conv1D.__module__ = "transformers.pytorch_utils"


def sequence(batch_first: bool = True) -> tuple[Tensor, ...]:
    x = torch.randn(ROWS, STEPS, INPUTS)
    return (x if batch_first else x.transpose(0, 1),)


def attention_inputs(batch_first: bool = True, kdim: int = WIDTH) -> tuple[Tensor, ...]:
    query, key = torch.randn(ROWS, STEPS, WIDTH), torch.randn(ROWS, STEPS + 2, kdim)
    value = torch.randn(ROWS, STEPS + 2, kdim + 1 if kdim != WIDTH else WIDTH)
    inputs = query, key, value
    return inputs if batch_first else tuple(each.transpose(0, 1) for each in inputs)


PADDING = torch.zeros(ROWS, STEPS + 2, dtype=torch.bool)
PADDING[1, -2:] = True
CAUSAL = torch.ones(STEPS, STEPS + 2, dtype=torch.bool).triu(3)
BY_HEAD = torch.randn(ROWS * 2, STEPS, STEPS + 2, dtype=torch.float64)
STATE = torch.randn(2, ROWS, WIDTH, dtype=torch.float64)

Case = tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]], dict[str, Any]]
CASES: dict[str, Case] = {
    "lstm": (lambda: nn.LSTM(INPUTS, WIDTH, batch_first=True), sequence, {}),
    "lstm, two layers, both ways": (
        lambda: nn.LSTM(INPUTS, WIDTH, 2, batch_first=True, bidirectional=True),
        sequence,
        {},
    ),
    "lstm, projected": (
        lambda: nn.LSTM(INPUTS, WIDTH, 2, proj_size=2, bidirectional=True, bias=False),
        lambda: sequence(False),
        {},
    ),
    "lstm, given states": (
        lambda: nn.LSTM(INPUTS, WIDTH, batch_first=True),
        sequence,
        {"hx": (STATE[:1], STATE[1:])},
    ),
    "gru, both ways": (
        lambda: nn.GRU(INPUTS, WIDTH, 2, batch_first=True, bidirectional=True),
        sequence,
        {},
    ),
    "gru, given states": (
        lambda: nn.GRU(INPUTS, WIDTH),
        lambda: sequence(False),
        {"hx": STATE[:1]},
    ),
    "rnn": (lambda: nn.RNN(INPUTS, WIDTH, 2, batch_first=True), sequence, {}),
    "rnn, relu": (
        lambda: nn.RNN(INPUTS, WIDTH, nonlinearity="relu", batch_first=True),
        sequence,
        {},
    ),
    "lstm cell": (
        lambda: nn.LSTMCell(INPUTS, WIDTH),
        lambda: (torch.randn(ROWS, INPUTS),),
        {"hx": (STATE[0], STATE[1])},
    ),
    "gru cell": (lambda: nn.GRUCell(INPUTS, WIDTH), lambda: (torch.randn(ROWS, INPUTS),), {}),
    "rnn cell": (
        lambda: nn.RNNCell(INPUTS, WIDTH, bias=False, nonlinearity="relu"),
        lambda: (torch.randn(ROWS, INPUTS), torch.randn(ROWS, WIDTH)),
        {},
    ),
    "attention": (lambda: nn.MultiheadAttention(WIDTH, 2, batch_first=True), attention_inputs, {}),
    "attention, masks": (
        lambda: nn.MultiheadAttention(WIDTH, 2, batch_first=True),
        attention_inputs,
        {"key_padding_mask": PADDING, "attn_mask": CAUSAL, "average_attn_weights": False},
    ),
    "attention, a mask for each head": (
        lambda: nn.MultiheadAttention(WIDTH, 2, bias=False),
        lambda: attention_inputs(False),
        {"attn_mask": BY_HEAD, "need_weights": False},
    ),
    "attention, other keys": (
        lambda: nn.MultiheadAttention(WIDTH, 3, kdim=4, vdim=5, batch_first=True),
        lambda: attention_inputs(kdim=4),
        {"need_weights": False},
    ),
    "bilinear": (
        lambda: nn.Bilinear(4, 5, 3),
        lambda: (torch.randn(ROWS, STEPS, 4), torch.randn(ROWS, STEPS, 5)),
        {},
    ),
    "conv1d of transformers": (
        lambda: Conv1D(WIDTH, INPUTS),
        lambda: (torch.randn(ROWS, STEPS, INPUTS),),
        {},
    ),
}


def tensors(found: Any) -> list[Tensor]:
    """All tensors of nested tuples, in order."""
    if isinstance(found, Tensor):
        return [found]
    return [] if found is None else [each for part in found for each in tensors(part)]


@pytest.mark.parametrize("name", CASES)
def test_what_is_taken_apart_computes_the_same_and_can_be_put_together(name: str) -> None:
    make, inputs, options = CASES[name]
    net, given = make(), inputs()
    before = copy.deepcopy(net)
    apart, stock = decompose_(copy.deepcopy(net))
    assert list(stock) == [""]
    expected = tensors(net(*given, **options))
    for one, other in zip(tensors(apart(*given, **options)), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    again = recompose_(apart)
    assert type(again) is type(before)
    for key, weight in before.state_dict().items():
        assert torch.equal(again.state_dict()[key], weight)
    for one, other in zip(tensors(again(*given, **options)), expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", CASES)
def test_the_mean_of_the_converted_module_is_the_stock_one(name: str) -> None:
    make, inputs, options = CASES[name]
    net, given = make(), inputs()
    model = hs.bayesianize(net)
    with drawing(model, "mean"):
        found = tensors(model(*given, **options))
    for one, other in zip(found, tensors(net(*given, **options)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    drawn = tensors(model(*given, **options))[0]
    assert not torch.allclose(drawn, found[0])


class Outputs(nn.Module):
    """The outputs of a recurrent module, without its states."""

    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


class Sequences(nn.Module):
    """A recurrent net whose output is that of its last step."""

    def __init__(self, kind: str = "LSTM") -> None:
        super().__init__()
        self.rnn = getattr(nn, kind)(INPUTS, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


def test_all_steps_of_a_sequence_share_a_draw_of_the_weights() -> None:
    """Local draws of a recurrent layer are draws of its weights: one for each sample."""
    model = hs.bayesianize(nn.RNN(INPUTS, WIDTH, batch_first=True))
    # Without a state equal steps give equal outputs.
    with torch.no_grad():
        model.hidden_l0.posterior.mean.zero_()
        model.hidden_l0.posterior.logvar.fill_(-80.0)
    x = torch.randn(1, 1, INPUTS).expand(2, STEPS, INPUTS)
    outputs = model(x)[0]
    torch.testing.assert_close(outputs, outputs[:1, :1].expand_as(outputs))
    assert not torch.allclose(model(x)[0], outputs)
    samples = hs.draw(Outputs(model), x, 4)
    torch.testing.assert_close(samples, samples[:, :1, :1].expand_as(samples))
    assert len(samples[:, 0, 0].unique(dim=0)) == 4


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("members", [1, 2])
def test_draws_by_weights_and_local_draws_have_the_same_law(kind: str, members: int) -> None:
    torch.manual_seed(0)
    model = hs.bayesianize(Sequences(kind), members=members)
    # The read-out is the same in both: only the recurrent layers are compared.
    with torch.no_grad():
        model.head.posterior.logvar.fill_(-80.0)
    x, samples = torch.randn(2, STEPS, INPUTS), 4000
    found = [hs.draw(model, x, samples, sampler).detach() for sampler in ("local", "weights")]
    one, other = (each.flatten(1) for each in found)
    spread = ((one.var(0) + other.var(0)) / samples).sqrt()
    assert float(((one.mean(0) - other.mean(0)) / spread).abs().max()) < 4
    covariances = [each.T.cov() for each in (one, other)]
    size = torch.outer(one.std(0), one.std(0))
    assert float(((covariances[0] - covariances[1]) / size).abs().max()) < 5 * (2 / samples) ** 0.5


def test_what_a_recurrent_module_cannot_take_is_refused() -> None:
    model = hs.bayesianize(nn.GRU(INPUTS, WIDTH, batch_first=True))
    x = torch.randn(ROWS, STEPS, INPUTS)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 4, 2]), batch_first=True)
    with pytest.raises(hs.HeadstartError, match="not packed"):
        model(packed)
    with pytest.raises(hs.HeadstartError, match="add an axis for the rows"):
        model(x[0])
    cell = hs.bayesianize(nn.GRUCell(INPUTS, WIDTH))
    with pytest.raises(hs.HeadstartError, match=r"takes \(rows, inputs\)"):
        cell(x)
    attention = hs.bayesianize(nn.MultiheadAttention(WIDTH, 2))
    with pytest.raises(hs.HeadstartError, match="add an axis for the rows"):
        attention(*3 * [torch.randn(STEPS, WIDTH)])
    with pytest.raises(hs.HeadstartError, match="pass the mask too"):
        attention(*3 * [torch.randn(ROWS, STEPS, WIDTH)], is_causal=True)


@pytest.mark.parametrize("training", [True, False])
def test_a_transformer_keeps_off_the_fused_path(training: bool) -> None:
    """The mean is the net's, masks included; the layers are called and draw."""
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True)
    net = nn.TransformerEncoder(layer, 2).train(training)
    model = hs.bayesianize(net)
    assert len(hs.bayesian_layers(model)) == 12
    x, padding = torch.randn(ROWS, STEPS, WIDTH), PADDING[:, 2:]
    with torch.no_grad():
        expected = net.train()(x, src_key_padding_mask=padding)
        with drawing(model, "mean"):
            found = model(x, src_key_padding_mask=padding)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        drawn = model(x, src_key_padding_mask=padding)
    assert not torch.allclose(drawn, found)


def test_dropout_between_layers_is_that_of_torch() -> None:
    net = nn.GRU(INPUTS, WIDTH, 2, dropout=0.5, batch_first=True)
    apart, _ = decompose_(copy.deepcopy(net))
    (x,) = sequence()
    assert torch.equal(apart.eval()(x)[0], apart(x)[0])
    apart.train()
    assert not torch.equal(apart(x)[0], apart(x)[0])
    torch.testing.assert_close(apart.eval()(x)[0], net.eval()(x)[0], rtol=1e-12, atol=1e-12)


class Tokens(nn.Module):
    """A net of tokens with a module of every kind that is taken apart."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn = nn.Embedding(9, 4), nn.GRU(4, 4, batch_first=True)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.pair, self.mixed = nn.Bilinear(4, 4, 3), Conv1D(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        h, last = self.rnn(self.embed(x))
        return self.mixed(self.pair(self.attention(h, h, h)[0].mean(1), last[0]).tanh())


def test_a_net_of_such_modules_starts_trains_is_saved_and_loaded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randint(9, (200, STEPS))
    y = (x > 4).sum(1).ge(3).long()
    model, lik = hs.bayesianize(Tokens()), hs.Categorical(2)
    hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    first = hs.evaluate(model, lik, (x, y), samples=32, seed=0)["mnll"]
    hs.fit(model, lik, (x, y), steps=60, progress=False, seed=0)
    assert hs.evaluate(model, lik, (x, y), samples=32, seed=0)["mnll"] < first < 0.6932
    hs.save(tmp_path / "model", model, lik)
    again, lik_again = hs.load(tmp_path / "model", net=Tokens())
    assert list(hs.bayesian_layers(again)) == list(hs.bayesian_layers(model))
    one, other = (
        hs.predict(each, law, x, samples=8, seed=1).draws
        for each, law in ((model, lik), (again, lik_again))
    )
    assert torch.equal(one, other)


def test_a_trained_net_of_such_modules_gives_its_weights() -> None:
    net, x = Tokens(), torch.randint(9, (6, STEPS))
    model = hs.bayesianize(Tokens())
    before = copy.deepcopy(net.state_dict())
    hs.initialize_(model, "pretrained", net=net)
    with drawing(model, "mean"):
        torch.testing.assert_close(model(x), net(x), rtol=1e-12, atol=1e-12)
    assert type(net.rnn) is nn.GRU
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())


class Placed(nn.Module):
    """Tokens with embeddings of positions, which do not come from the batch."""

    def __init__(self, one_row: bool) -> None:
        super().__init__()
        self.embed, self.places, self.one_row = nn.Embedding(9, 4), nn.Embedding(7, 4), one_row
        self.hidden, self.head = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1])
        places = self.places(at.unsqueeze(0) if self.one_row else at)
        return self.head(self.hidden(self.embed(x) + places).relu().mean(1))


@pytest.mark.parametrize("one_row", [True, False])
def test_a_table_of_positions_needs_no_rows(one_row: bool) -> None:
    torch.manual_seed(0)
    x = torch.randint(9, (300, STEPS))
    y = (x[:, 0] > 4).long()
    model, lik = hs.bayesianize(Placed(one_row)), hs.Categorical(2)
    report = hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    assert any("'places' has the same inputs" in warning for warning in report.warnings)
    before = hs.evaluate(model, lik, (x, y), samples=16, seed=0)["mnll"]
    hs.fit(model, lik, (x, y), steps=30, batch_size=100, progress=False, seed=0)
    assert hs.evaluate(model, lik, (x, y), samples=16, seed=0)["mnll"] < before
    # Drawn by weights the functions are exact, whatever the plan.
    weights = draw_weights(model, 3)
    each = [forward(model, x[:4], 1, "weights", [w[i : i + 1] for w in weights]) for i in range(3)]
    torch.testing.assert_close(forward(model, x[:4], 3, "weights", weights), torch.cat(each))
    # Without an axis for rows one pass of local draws shares the table, another has another.
    model.requires_grad_(False)
    for name in ("embed", "hidden", "head"):
        model.get_submodule(name).posterior.logvar.fill_(-80.0)
    one, other = (hs.draw(model, x[:4], 3) for _ in range(2))
    assert torch.allclose(one[0], one[1]) is not one_row
    assert not torch.allclose(one, other)
