"""Several heads: the sum of their likelihoods, a read-out for each, predictions by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import headstart as hs
from headstart.likelihoods.predictions import Predictive
from headstart.nested import Nested

ROWS = 80
KINDS = torch.zeros(ROWS, dtype=torch.long)


class TwoHeads(nn.Module):
    def __init__(self, as_tuple: bool = False) -> None:
        super().__init__()
        self.body, self.kind, self.size = nn.Linear(4, 16), nn.Linear(16, 3), nn.Linear(16, 2)
        self.as_tuple = as_tuple

    def forward(self, x: Tensor) -> Any:
        h = self.body(x).tanh()
        found = {"size": self.size(h), "kind": self.kind(h), "features": h}
        return (found["kind"], found["size"]) if self.as_tuple else found


def problem(as_tuple: bool = False) -> tuple[nn.Module, hs.Joint, Tensor, Any]:
    torch.manual_seed(0)
    x = torch.randn(ROWS, 4)
    kind, size = x[:, :3].argmax(1), x[:, :2].sin() + 0.1 * torch.randn(ROWS, 2)
    liks = hs.Categorical(3), hs.Gaussian()
    if as_tuple:
        return TwoHeads(True), hs.Joint(liks), x, (kind, size)
    named = {"kind": kind, "size": size}
    return TwoHeads(), hs.Joint(dict(zip(named, liks, strict=True))), x, named


def batches(x: Tensor, y: Any) -> Any:
    """Of a loader, as the default collate makes them."""
    named = isinstance(y, dict)
    parts = zip(*(y.values() if named else y), strict=True)
    labels = [dict(zip(y, part, strict=True)) if named else part for part in parts]
    return DataLoader(list(zip(x, labels, strict=True)), batch_size=16, shuffle=True)


@pytest.mark.parametrize("as_tuple", [False, True])
@pytest.mark.parametrize("loader", [False, True])
def test_every_head_starts_trains_and_predicts(as_tuple: bool, loader: bool) -> None:
    net, lik, x, y = problem(as_tuple)
    model, data = hs.bayesianize(net), batches(x, y) if loader else (x, y)
    hs.initialize_(model, "iblm", lik, data)
    start = hs.evaluate(model, lik, data, samples=32, seed=0)
    kind, size = ("0", "1") if as_tuple else ("kind", "size")
    # Each read-out has its own labels: far better than a constant.
    assert start[f"{kind}/error"] < 0.3
    assert start[f"{size}/rmse"] < 0.6
    history = hs.fit(
        model, lik, data, steps=60, validation=data, monitor=f"{kind}/mnll", progress=False, seed=0
    )
    assert history.best_step is not None
    trained = hs.evaluate(model, lik, data, samples=32, seed=0)
    assert trained["mnll"] < start["mnll"]
    pred = hs.predict(model, lik, x, samples=8, seed=0)
    assert pred[kind].probs.shape == (ROWS, 3)
    assert pred[size].std.shape == (ROWS, 2)
    assert pred.log_prob(y).shape == (ROWS,)
    assert kind in repr(pred)


def test_the_loss_is_the_sum_over_heads() -> None:
    net, lik, x, y = problem()
    model = hs.bayesianize(net)
    for layer in hs.bayesian_layers(model).values():
        layer.posterior.logvar.data.fill_(-80.0)
    total = hs.nelbo(model, lik, x, y, num_data=ROWS, samples=1).nll
    outputs = net(x)
    parts = lik.parts()
    want = -parts["kind"].log_prob(outputs["kind"], y["kind"]).sum()
    want = want - parts["size"].log_prob(outputs["size"], y["size"]).sum()
    torch.testing.assert_close(total, want)


def test_the_read_outs_are_those_of_the_heads_alone(float64: None) -> None:
    """A linear net with two heads has the posterior of each head's own linear model."""

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 2), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"a": self.a(x), "b": self.b(x)}

    x = torch.randn(ROWS, 4)
    y = {"a": torch.randn(ROWS, 2), "b": torch.randn(ROWS, 1)}
    net = Linear()
    model = hs.bayesianize(net, posterior="full_covariance")
    liks = {name: hs.Gaussian(0.3, learn_noise=False) for name in y}
    hs.initialize_(model, "iblm", hs.Joint(liks), (x, y))
    for name, labels in y.items():
        alone = hs.bayesianize(getattr(net, name), posterior="full_covariance")
        hs.initialize_(alone, "iblm", liks[name], (x, labels))
        found = getattr(model, name).posterior
        torch.testing.assert_close(found.mean, alone.posterior.mean, rtol=0, atol=1e-9)
        torch.testing.assert_close(found.variance(), alone.posterior.variance(), rtol=0, atol=1e-9)


def test_a_dense_head_beside_a_plain_one() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.mask = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 2, 1)
            self.kind = nn.Linear(6, 2)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            h = self.body(x).relu()
            return {"mask": self.mask(h), "kind": self.kind(h.mean((2, 3)))}

    torch.manual_seed(0)
    x = torch.randn(ROWS, 1, 5, 5)
    y = {"mask": (x[:, 0] > 0).long(), "kind": (x.mean((1, 2, 3)) > 0).long()}
    model = hs.bayesianize(Net())
    lik = hs.Joint({"mask": hs.PerPosition(hs.Categorical(2), axis=1), "kind": hs.Categorical(2)})
    hs.initialize_(model, "iblm", lik, (x, y))
    scores = hs.evaluate(model, lik, (x, y), samples=16, seed=0)
    assert scores["mask/error"] < 0.2
    assert hs.predict(model, lik, x, 4)["mask"].probs.shape == (ROWS, 2, 5, 5)


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    net, lik, x, y = problem()
    model = hs.bayesianize(net)
    hs.save(tmp_path / "model.safetensors", model, lik)
    again, found = hs.load(tmp_path / "model.safetensors", net)
    assert repr(found) == repr(lik)
    assert hs.evaluate(again, found, (x, y), 4, seed=0) == hs.evaluate(
        model, lik, (x, y), 4, seed=0
    )


def predicted() -> hs.Predictive:
    net, lik, x, _ = problem()
    return hs.predict(hs.bayesianize(net), lik, x, samples=2)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: predicted().mean, r"Each head has its own mean: ask one of pred\['kind'\]"),
        (lambda: predicted().entropy, "Each head has its own probs"),
        (lambda: predicted()["depth"], "There is no head 'depth'"),
        (lambda: predicted().log_prob(torch.zeros(ROWS)), "wants a dictionary of labels"),
        (
            lambda: predicted().log_prob({"kind": KINDS}),
            "no labels for the head 'size'",
        ),
        (lambda: hs.Joint({}), "at least one"),
        (
            lambda: hs.predict(
                hs.bayesianize(nn.Linear(2, 3)), hs.Joint([hs.Gaussian()]), torch.zeros(4, 2)
            ),
            "gives a single tensor",
        ),
        (
            lambda: hs.predict(
                hs.bayesianize(TwoHeads()), hs.Joint({"z": hs.Gaussian()}), torch.zeros(4, 4)
            ),
            "gives no head 'z'; there are: size, kind, features",
        ),
    ],
)
def test_what_does_not_fit_gets_a_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        call()


def test_names_that_torch_uses_are_refused_in_a_sentence() -> None:
    with pytest.raises(hs.HeadstartError, match=r"cannot be called 'values'"):
        hs.Joint({"values": hs.Gaussian()})


def test_a_head_knows_which_rows_are_unlike_the_training_data() -> None:
    lik = hs.Joint({"a": hs.Gaussian(), "b": hs.Gaussian()})
    draws = Nested(named={"a": torch.zeros(2, 3, 1), "b": torch.zeros(2, 3, 1)})
    unlike = torch.tensor([True, False, False])
    pred = Predictive(draws, lik, layout={"a": (), "b": ()}, unlike_training=unlike)
    assert pred["a"].unlike_training is unlike


@pytest.mark.parametrize("solve", [hs.refine_, hs.condition])
def test_several_read_outs_are_not_solved_again(solve: Any) -> None:
    net, lik, x, y = problem()
    with pytest.raises(hs.HeadstartError, match=r"Joint has several heads: train them .* fit"):
        solve(hs.bayesianize(net), lik, (x, y))
