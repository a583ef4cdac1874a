"""Draws of a single row by weights: the law of functions, without drawing the dense weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.network import chunks
from headstart.network.forward import forward
from headstart.network.single_row import draw_chain, single_row_chain

SAMPLES = 20_000


class Tied(nn.Module):
    """A dense layer that meets a row twice, behind a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.twice, self.head = (
            nn.Conv1d(1, 2, 3),
            nn.Linear(4, 4),
            nn.Linear(4, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.convolution(x).flatten(1).tanh()
        out: Tensor = self.head(self.twice(self.twice(h).tanh()))
        return out


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)
    )


def moments(draws: Tensor) -> Tensor:
    """Means, and products of the outputs."""
    products = draws[:, :1] * draws
    return torch.cat([draws, draws.square(), products[:, 1:]], 1)


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("family", ["mean_field", "matrix_normal", "low_rank"])
@pytest.mark.parametrize("make", [convolutional, Tied])
def test_one_row_has_the_law_of_functions(make: type[nn.Module], family: str, members: int) -> None:
    if members > 1 and family == "matrix_normal":
        pytest.skip("units of a matrix normal are not independent")
    torch.manual_seed(0)
    model, x = hs.bayesianize(make(), posterior=family, members=members), torch.randn(1, 1, 4)
    with torch.no_grad():
        few = moments(forward(model, x, SAMPLES, "weights", functions=False)[:, 0])
        many = moments(forward(model, x, SAMPLES, "weights")[:, 0])
    error = (few.var(0) / SAMPLES + many.var(0) / SAMPLES).sqrt()
    assert float(((few.mean(0) - many.mean(0)) / error).abs().max()) < 5


def test_predict_draws_no_dense_weights_of_a_single_row(monkeypatch: pytest.MonkeyPatch) -> None:
    model, lik, x = hs.bayesianize(convolutional()), hs.Categorical(2), torch.randn(1, 1, 4)
    drawn: list[int] = []
    sample = hs.MeanField.sample

    def counting(self: hs.MeanField, samples: int, *args: object) -> Tensor:
        drawn.append(samples * self.mean.numel())
        return sample(self, samples, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(hs.MeanField, "sample", counting)
    assert hs.predict(model, lik, x, samples=64).draws.shape == (64, 1, 2)
    assert sum(drawn) == 64 * 8
    drawn.clear()
    hs.predict(model, lik, x, samples=64, sampler="weights")
    assert sum(drawn) == 64 * (8 + 15 + 8)


def test_functions_of_a_seed_are_the_same_for_one_row_and_many() -> None:
    model, lik, x = hs.bayesianize(convolutional()), hs.Categorical(2), torch.randn(5, 1, 4)
    one, all_rows = (
        hs.predict(model, lik, rows, samples=8, sampler="weights", seed=0).draws
        for rows in (x[:1], x)
    )
    torch.testing.assert_close(one, all_rows[:, :1])


def images(kind: str) -> nn.Sequential:
    between: list[nn.Module] = {
        "pooled": [nn.ReLU(), nn.MaxPool2d(2)],
        "normed": [nn.BatchNorm2d(4).eval(), nn.Tanh()],
        "nested": [nn.Sequential(nn.GELU(), nn.Dropout(0.5)), nn.AvgPool2d(2)],
    }[kind]
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), *between, nn.Conv2d(4, 6, 3, stride=2), nn.ReLU(),
        nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(24, 5), nn.ReLU(), nn.Linear(5, 3),
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:BatchNorm")
@pytest.mark.parametrize("samples", [64, 100])
@pytest.mark.parametrize("kind", ["pooled", "normed", "nested"])
def test_samples_as_channels_give_the_draws_of_the_plan(
    kind: str, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = hs.bayesianize(images(kind)), torch.randn(1, 1, 12, 12)
    ways: list[bool] = []

    def spy(*args: Any) -> Tensor | None:
        found = draw_chain(*args)
        ways.append(found is not None)
        return found

    monkeypatch.setattr(chunks, "draw_chain", spy)
    mine = hs.predict(model, hs.Categorical(3), x, samples, seed=1).draws
    assert ways == [True]
    monkeypatch.setattr(chunks, "draw_chain", lambda *args: None)
    theirs = hs.predict(model, hs.Categorical(3), x, samples, seed=1).draws
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("samples", [64, 100])
@pytest.mark.parametrize(
    "pool",
    [nn.MaxPool2d(2), nn.MaxPool2d(3, 2, padding=1), nn.MaxPool2d(2, dilation=2), nn.AvgPool2d(2)],
    ids=["plain", "padded", "dilated", "mean"],
)
def test_a_maximum_may_come_before_a_relu(
    pool: nn.Module, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), pool, nn.Conv2d(4, 6, 2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.LazyLinear(5), nn.ReLU(), nn.Linear(5, 3),
    )  # fmt: skip
    x = torch.randn(1, 1, 14, 14, dtype=torch.float64)
    net.double()(x)
    model = hs.bayesianize(net)
    assert single_row_chain(model.eval(), x)
    mine = hs.predict(model, hs.Categorical(3), x, samples, seed=1).draws
    monkeypatch.setattr(chunks, "draw_chain", lambda *args: None)
    theirs = hs.predict(model, hs.Categorical(3), x, samples, seed=1).draws
    torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_nets_that_are_no_such_chain_go_the_long_way() -> None:
    x = torch.randn(1, 1, 12, 12)
    plain = hs.bayesianize(images("pooled"))
    assert len(single_row_chain(plain, x)) == 10
    assert single_row_chain(plain, x.expand(2, -1, -1, -1)) == []
    assert single_row_chain(hs.bayesianize(images("pooled"), posterior="low_rank"), x) == []
    dense = hs.bayesianize(nn.Sequential(nn.Flatten(), nn.Linear(144, 2)))
    assert single_row_chain(dense, x) == []

    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    own = nn.Sequential(nn.Conv2d(1, 2, 3), Own(), nn.Flatten(), nn.Linear(200, 2))
    assert single_row_chain(hs.bayesianize(own), x) == []
    plain[0].register_forward_hook(lambda *given: None)
    assert single_row_chain(plain, x) == []


def test_a_hook_sees_samples_as_rows() -> None:
    model, seen = hs.bayesianize(images("pooled")), []
    model[1].register_forward_hook(lambda module, args, output: seen.append(output.shape))
    hs.predict(model, hs.Categorical(3), torch.randn(1, 1, 12, 12), 16)
    assert seen[-1] == (16, 4, 12, 12)


def test_one_image_before_a_body_without_a_posterior() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))
    model = hs.bayesianize(net, where=["2"])
    likelihood = hs.PerPosition(hs.Categorical(2), axis=1)
    found = hs.predict(model, likelihood, torch.randn(1, 3, 8, 8), 300, seed=0)
    assert found.mean.shape == (1, 2, 8, 8)


@pytest.mark.parametrize("samples", [2.5, 0, "8"])
def test_samples_are_counted(samples: Any) -> None:
    model = hs.bayesianize(nn.Linear(2, 1))
    drawn = hs.predict(model, hs.Gaussian(), torch.ones(3, 2), np.int64(8)).draws
    assert drawn.shape == (8, 3, 1)
    with pytest.raises(hs.HeadstartError, match="whole number of at least one sample"):
        hs.predict(model, hs.Gaussian(), torch.ones(3, 2), samples)
