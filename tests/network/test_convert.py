"""bayesianize: what is converted, what is left, and the sentences for what cannot be."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.network.layer import Bayesian
from tests.cases import LAYERS, Residual, chain


def net() -> nn.Module:
    return nn.ModuleDict(
        {"body": nn.Sequential(nn.Linear(4, 6), nn.ReLU()), "head": nn.Linear(6, 3)}
    )


@pytest.mark.parametrize("name", LAYERS)
def test_the_mean_network_is_the_net(name: str) -> None:
    op = LAYERS[name].make()
    x = torch.randn(2, *LAYERS[name].shape)
    model = hs.bayesianize(op)
    with hs.drawing(model, "mean"):
        torch.testing.assert_close(model(x), op(x))


def test_the_net_is_untouched_and_shares_nothing() -> None:
    source = chain()
    before = copy.deepcopy(source.state_dict())
    model = hs.bayesianize(source)
    hs.initialize_(model, "uninformative")
    assert all(torch.equal(before[k], v) for k, v in source.state_dict().items())
    assert type(model) is type(source)


def test_dtype_and_training_state_are_kept() -> None:
    source = nn.Sequential(nn.Linear(4, 3), nn.Dropout(), nn.Linear(3, 2)).double()
    source[2].eval()
    model = hs.bayesianize(source)
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    assert (model[0].training, model[1].training, model[2].training) == (True, True, False)


def test_tied_modules_stay_tied_and_count_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = self.a

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x))

    model = hs.bayesianize(Tied())
    assert model.a is model.b
    torch.testing.assert_close(hs.kl(model), model.a.kl())


def test_tied_weights_of_different_modules_are_refused() -> None:
    source = chain()
    other = nn.Linear(4, 6)
    other.weight = source[0].weight
    with pytest.raises(hs.HeadstartError, match="share one weight tensor"):
        hs.bayesianize(nn.ModuleList([source, other]))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, {"body.0", "head"}),
        ("last", {"head"}),
        ("!last", {"body.0"}),
        ("head", {"head"}),
        ("body", {"body.0"}),
        ("b*", {"body.0"}),
        (["body.0", "head"], {"body.0", "head"}),
        (["!body"], {"head"}),
        (lambda name, module: module.in_features == 4, {"body.0"}),
    ],
)
def test_where_selects(where: object, expected: set[str]) -> None:
    assert set(hs.bayesian_layers(hs.bayesianize(net(), where=where))) == expected


def test_posterior_and_prior_may_differ_by_layer() -> None:
    model = hs.bayesianize(
        net(),
        posterior={"head": "full_covariance", "*": "mean_field"},
        prior={"body*": "fan-in", "*": 0.5},
    )
    layers = hs.bayesian_layers(model)
    assert [layer.posterior.name for layer in layers.values()] == ["mean_field", "full_covariance"]
    assert [layer.prior.var for layer in layers.values()] == [0.25, 0.5]


class OwnLSTM(nn.LSTM):
    """A subclass may compute anything."""


def test_what_cannot_be_converted_is_named_in_a_warning_and_in_the_repr() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 4, max_norm=1.0)
            self.rnn = OwnLSTM(4, 4)
            self.attention = nn.MultiheadAttention(4, 2, add_bias_kv=True)
            self.norm = nn.LayerNorm(4)
            self.head = nn.Linear(4, 2)

    with pytest.warns(
        UserWarning, match=r"embed \(Embedding\), rnn \(OwnLSTM\), attention \(MultiheadAttention\)"
    ) as caught:
        model = hs.bayesianize(Mixed())
    assert "norm" not in str(caught[0].message)
    text = repr(model)
    assert "OwnLSTM(4, 4, deterministic)" in text
    assert "Embedding(5, 4, max_norm=1.0, deterministic)" in text
    assert list(hs.bayesian_layers(model)) == ["head"]
    assert "deterministic" in repr(copy.deepcopy(model))


def test_what_where_leaves_out_is_no_news() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = hs.bayesianize(net(), where="last")
    assert "deterministic" not in repr(model)


def test_batch_norm_is_warned_about() -> None:
    with pytest.warns(UserWarning, match=r"BatchNorm \(1\).*mix the samples"):
        hs.bayesianize(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)))


def test_batch_norm_and_dropout_nets_run_folded() -> None:
    with pytest.warns(UserWarning, match="BatchNorm"):
        model = hs.bayesianize(
            nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(), nn.Linear(3, 2))
        )
    assert hs.draw(model, torch.randn(6, 4), 5).shape == (5, 6, 2)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: hs.bayesianize(nn.Sequential(nn.ReLU())), "nothing to convert"),
        (lambda: hs.bayesianize(net(), where="haed"), "did you mean 'head'"),
        (lambda: hs.bayesianize(net(), where=lambda name, module: False), "selects no layer"),
        (lambda: hs.bayesianize(net(), posterior="mean_feild"), "did you mean 'mean_field'"),
        (lambda: hs.bayesianize(net(), prior="fan_in"), "did you mean 'fan-in'"),
        (lambda: hs.bayesianize(net(), prior=-1.0), "positive"),
        (lambda: hs.bayesianize(net(), posterior={"head": "mean_field"}), "add a '\\*'"),
        (lambda: hs.bayesianize(nn.LazyLinear(3)), "nothing to convert"),
        (
            lambda: hs.bayesianize(nn.Conv2d(2, 2, 3, groups=2), posterior="matrix_normal"),
            "does not support Conv2d",
        ),
        (lambda: hs.bayesian_layers(chain()), "no Bayesian layer"),
        (lambda: hs.bayesianize(hs.bayesianize(chain())), "Bayesian already"),
        (
            lambda: hs.bayesianize(net(), posterior={"haed": "low_rank", "*": "mean_field"}),
            "did you mean 'head'",
        ),
        (
            lambda: hs.drawing(hs.bayesianize(chain()), "wieghts").__enter__(),
            "did you mean 'weights'",
        ),
    ],
)
def test_bad_requests_get_a_sentence(call: object, sentence: str) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        call()  # type: ignore[operator]


def test_residual_nets_convert() -> None:
    model = hs.bayesianize(Residual())
    assert isinstance(model.first, Bayesian)
    assert model(torch.randn(5, 4)).shape == (5, 3)


def test_what_is_kept_from_us_stays_deterministic() -> None:
    """Hook-based norms take the weight away; such a layer is named, not converted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        normed = torch.nn.utils.spectral_norm(nn.Linear(4, 4))
    with pytest.warns(UserWarning, match=r"0 \(Linear\)"):
        model = hs.bayesianize(nn.Sequential(normed, nn.Linear(4, 2)))
    assert list(hs.bayesian_layers(model)) == ["1"]


def test_tracing_leaves_no_mark_on_the_model() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.count, self.seen = nn.Linear(4, 2), 0, None

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            self.seen = self.layer(x)
            return self.seen

    model = hs.bayesianize(Counting())
    assert (model.count, model.seen) == (0, None)
    assert model.layer.entry


def test_numpy_numbers_are_prior_variances() -> None:
    assert hs.bayesianize(nn.Linear(2, 1), prior=np.float32(0.5)).prior.var == 0.5


class Tagger(nn.Module):
    """Tokens to classes, with a module of each kind that keeps several weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4, padding_idx=0)
        self.rnn = nn.LSTM(4, 4, batch_first=True)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h, _ = self.rnn(self.embed(x))
        return self.head(self.attention(h, h, h, need_weights=False)[0].mean(1))


def test_modules_with_several_weights_are_converted_layer_by_layer() -> None:
    model = hs.bayesianize(Tagger(), posterior={"rnn": "low_rank", "*": "mean_field"})
    layers = hs.bayesian_layers(model)
    assert list(layers) == [
        "embed",
        *("rnn.input_l0", "rnn.hidden_l0"),
        *("attention.q", "attention.k", "attention.v", "attention.out_proj"),
        "head",
    ]
    assert layers["rnn.hidden_l0"].posterior.name == "low_rank"
    assert layers["head"].posterior.name == "mean_field"


def test_what_where_leaves_out_stays_the_stock_module_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = hs.bayesianize(Tagger(), where=["rnn", "head"])
    assert list(hs.bayesian_layers(model)) == ["rnn.input_l0", "rnn.hidden_l0", "head"]
    assert type(model.attention) is nn.MultiheadAttention
    assert type(model.embed) is nn.Embedding
    with pytest.raises(hs.HeadstartError, match=r"There is no affine layer 'body'"):
        hs.bayesianize(Tagger(), where="body")


def test_weights_that_an_embedding_shares_are_converted_together_or_not_at_all() -> None:
    net = Tagger()
    net.head = nn.Linear(4, 7, bias=False)
    net.head.weight = net.embed.weight
    assert "head" not in hs.bayesian_layers(hs.bayesianize(net))
    with pytest.raises(hs.HeadstartError, match=r"'embed', 'head' share one weight"):
        hs.bayesianize(net, where="!head")
    assert list(hs.bayesian_layers(hs.bayesianize(net, where="rnn"))) == [
        "rnn.input_l0",
        "rnn.hidden_l0",
    ]


def test_padding_with_an_embedding_of_its_own_is_refused() -> None:
    net = nn.Embedding(5, 3, padding_idx=1)
    assert float(hs.bayesianize(net)(torch.tensor([[1]])).detach().abs().max()) < 1e-15
    nn.init.ones_(net.weight)
    with pytest.raises(hs.HeadstartError, match="padding_idx whose embedding is not zero"):
        hs.bayesianize(net)
