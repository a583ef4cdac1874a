"""Plain nets from a Bayesian one: a fixed set of drawn functions, and the mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from tests.cases import scramble_

pytestmark = pytest.mark.usefixtures("float64")
SAMPLES, ANY = 6, torch.export.Dim.DYNAMIC


class Sequences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


class Siamese(nn.Module):
    """Stacks two batches on axis 0."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.body(torch.cat([x[:, 0], x[:, 1]])).tanh().chunk(2)
        return self.head(first * second)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean(1))


def convolutions() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4).eval(), nn.ReLU()),
        *(nn.Flatten(), nn.Dropout(), nn.Linear(64, 2)),
    )


Case = tuple[Callable[[], nn.Module], Callable[[int], Tensor], dict[str, Any]]
CASES: dict[str, Case] = {
    "dense": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
        lambda rows: torch.randn(rows, 3),
        {},
    ),
    "a layer alone": (lambda: nn.Linear(3, 2), lambda rows: torch.randn(rows, 3), {}),
    "convolutions": (convolutions, lambda rows: torch.randn(rows, 1, 6, 6), {}),
    "last layer": (convolutions, lambda rows: torch.randn(rows, 1, 6, 6), {"where": "last"}),
    "members": (Sequences, lambda rows: torch.randn(rows, 5, 3), {"members": 3}),
    "full covariance": (Siamese, lambda rows: torch.randn(rows, 2, 3), {"posterior": "low_rank"}),
    "recurrent": (Sequences, lambda rows: torch.randn(rows, 5, 3), {}),
    "siamese": (Siamese, lambda rows: torch.randn(rows, 2, 3), {}),
    "transformer": (Encoder, lambda rows: torch.randn(rows, 5, 4), {}),
    "tokens": (
        lambda: nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(12, 2)),
        lambda rows: torch.randint(9, (rows, 4)),
        {},
    ),
}


def make(name: str) -> tuple[nn.Module, Callable[[int], Tensor]]:
    net, inputs, options = CASES[name]
    model = hs.bayesianize(net(), **options)
    scramble_(model, 0.3)
    return model, inputs


@pytest.mark.filterwarnings("ignore:BatchNorm")
@pytest.mark.parametrize("name", CASES)
def test_frozen_draws_are_those_of_predict(name: str) -> None:
    model, inputs = make(name)
    x = inputs(5)
    state = torch.get_rng_state()
    frozen = hs.freeze(model, SAMPLES, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    expected = hs.predict(model, hs.Categorical(2), x, SAMPLES, sampler="weights", seed=3).draws
    torch.testing.assert_close(frozen(x), expected, rtol=1e-10, atol=1e-10)
    assert torch.equal(frozen(x), frozen.train()(x))
    assert len(expected.unique(dim=0)) == SAMPLES
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert not hs.network.layer.find_layers(frozen)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:BatchNorm")
@pytest.mark.parametrize(
    "name", ["dense", "convolutions", "last layer", "recurrent", "transformer", "tokens"]
)
def test_frozen_draws_are_exported_for_any_number_of_rows(name: str) -> None:
    model, inputs = make(name)
    frozen = hs.freeze(model, SAMPLES, seed=0)
    program = torch.export.export(frozen, (inputs(4),), dynamic_shapes=({0: ANY},))
    for rows in (1, 7):
        x = inputs(rows)
        torch.testing.assert_close(program.module()(x), frozen(x), rtol=1e-10, atol=1e-10)


def test_a_net_that_stacks_batches_is_exported_function_by_function() -> None:
    model, inputs = make("siamese")
    with pytest.raises(hs.HeadstartError, match="fold=False"):
        torch.export.export(hs.freeze(model, SAMPLES, seed=0), (inputs(4),))
    frozen = hs.freeze(model, SAMPLES, seed=0, fold=False)
    program = torch.export.export(frozen, (inputs(4),), dynamic_shapes=({0: ANY},))
    x = inputs(7)
    torch.testing.assert_close(program.module()(x), frozen(x), rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore:BatchNorm")
def test_the_body_before_a_last_layer_runs_once() -> None:
    model, inputs = make("last layer")
    rows = []
    model[0].register_forward_pre_hook(lambda module, given: rows.append(len(given[0])))
    hs.freeze(model, SAMPLES)(inputs(5))
    assert rows == [5]


def test_the_state_of_frozen_draws_is_saved_and_loaded(tmp_path: Path) -> None:
    model, inputs = make("recurrent")
    frozen, other = hs.freeze(model, SAMPLES, seed=0), hs.freeze(model, SAMPLES, seed=1)
    x = inputs(3)
    assert not torch.allclose(frozen(x), other(x))
    torch.save(frozen.state_dict(), tmp_path / "state.pt")
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(frozen(x), other(x))


@pytest.mark.filterwarnings("ignore")
def test_onnx_runs_frozen_draws(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    model, inputs = make("convolutions")
    frozen = hs.freeze(model.float(), SAMPLES, seed=0)
    x = inputs(4).float()
    file = str(tmp_path / "draws.onnx")
    torch.onnx.export(frozen, (x,), file, dynamo=True, dynamic_shapes=({0: ANY},))
    session = runtime.InferenceSession(file)
    (found,) = session.run(None, {session.get_inputs()[0].name: x[:3].numpy()})
    torch.testing.assert_close(torch.from_numpy(found), frozen(x[:3]), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_what_would_merge_the_noise_is_refused() -> None:
    model, inputs = make("dense")
    with pytest.raises(hs.HeadstartError, match="dynamo=True"):
        torch.jit.trace(hs.freeze(model, 2), inputs(2))
    pytest.importorskip("onnx")
    with pytest.raises(hs.HeadstartError, match="legacy ONNX exporter"):
        torch.onnx.export(model.eval(), (inputs(2),), "unused.onnx", dynamo=False)


def test_at_least_one_function_is_frozen() -> None:
    with pytest.raises(hs.HeadstartError, match="At least one function"):
        hs.freeze(hs.bayesianize(nn.Linear(2, 1)), 0)
    assert hs.freeze(hs.bayesianize(nn.Linear(2, 1), members=4), 6)(torch.ones(1, 2)).shape[0] == 8


@pytest.mark.filterwarnings("ignore:BatchNorm")
@pytest.mark.parametrize("name", [name for name in CASES if name != "members"])
def test_the_mean_network_is_a_plain_net_that_the_first_can_load(name: str) -> None:
    make_net, inputs, options = CASES[name]
    net = make_net().eval()
    model = hs.bayesianize(net, **options).eval()
    scramble_(model, 0.3)
    plain, x = hs.mean_network(model), inputs(4)
    with hs.drawing(model, "mean"):
        expected = model(x)
    torch.testing.assert_close(plain(x), expected, rtol=1e-12, atol=1e-12)
    net.load_state_dict(plain.state_dict())
    torch.testing.assert_close(net(x), expected, rtol=1e-12, atol=1e-12)
    assert len(hs.bayesian_layers(model)) > 0


def test_the_mean_network_of_a_mixture_is_that_of_a_member() -> None:
    model, inputs = make("members")
    with pytest.raises(hs.HeadstartError, match=r"with hs\.member"):
        hs.mean_network(model)
    x = inputs(3)
    with hs.member(model, 1):
        plain = hs.mean_network(model)
        with hs.drawing(model, "mean"):
            torch.testing.assert_close(plain(x), model(x), rtol=1e-12, atol=1e-12)


def test_the_embedding_of_padding_is_zero_in_the_mean_network() -> None:
    model = hs.bayesianize(nn.Embedding(5, 3, padding_idx=2))
    scramble_(model)
    weight = hs.mean_network(model).weight
    assert not weight[2].any()
    assert weight[0].any()


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.other = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, x: Tensor, shift: Tensor) -> dict[str, Tensor]:
        h = self.body(x).tanh() + shift
        return {"one": self.one(h), "other": self.other(h)}


def test_frozen_draws_of_several_inputs_and_heads() -> None:
    model = hs.bayesianize(Heads())
    frozen = hs.freeze(model, SAMPLES, seed=0)
    x = {"x": torch.randn(5, 3), "shift": torch.randn(5, 1)}
    lik = hs.Joint({"one": hs.Categorical(2), "other": hs.Gaussian()})
    expected = hs.predict(model, lik, x, SAMPLES, sampler="weights", seed=0).draws
    program = torch.export.export(frozen, (x,)).module()
    for name, draws in frozen(x).items():
        torch.testing.assert_close(draws, expected.part(name), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(program(x)[name], draws, rtol=1e-10, atol=1e-10)


class Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, nodes: Tensor, links: Tensor) -> Tensor:
        return links @ self.second((links @ self.first(nodes)).tanh())


def test_frozen_draws_of_a_whole_graph() -> None:
    model = hs.bayesianize(Graph())
    x = hs.whole(torch.randn(6, 3), torch.rand(6, 6))
    expected = hs.predict(model, hs.Categorical(2), x, 3, sampler="weights", seed=0).draws
    torch.testing.assert_close(hs.freeze(model, 3, seed=0)(x), expected, rtol=1e-10, atol=1e-10)


class Served(nn.Module):
    """A graph's tensors, made whole within."""

    def __init__(self, frozen: nn.Module) -> None:
        super().__init__()
        self.frozen = frozen

    def forward(self, nodes: Tensor, links: Tensor) -> Tensor:
        return self.frozen(hs.whole(nodes, links))


def test_frozen_draws_of_a_graph_are_exported_from_its_tensors() -> None:
    served = Served(hs.freeze(hs.bayesianize(Graph()), 3, seed=0))
    given = torch.randn(6, 3), torch.rand(6, 6)
    program = torch.export.export(served, given).module()
    torch.testing.assert_close(program(*given), served(*given), rtol=1e-10, atol=1e-10)
