"""A Bayesian last layer: its body runs once for all samples, whatever asks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.network.head import run_body

ROWS = 7


class Body(nn.Module):
    """A body that counts the rows that go through it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5))
        self.rows = 0

    def forward(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        out: Tensor = self.inner(x)
        return out


class Traced(nn.Module):
    """A net that fx can trace."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = Body(), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x))
        return out


class Untraced(Traced):
    """The same net, with a branch that fx cannot trace."""

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.isnan().any()):
            x = x.nan_to_num()
        return super().forward(x)


class Skipping(Untraced):
    """A net that goes on after its last layer."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x[:, :3]


class FromSequences(Untraced):
    """A net whose last layer sees positions, and is averaged."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.stack([x, x.flip(1)], 1)).mean(1)


def converted(kind: type[Traced], **options: object) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = hs.bayesianize(kind(), where="last", **options)  # type: ignore[arg-type]
    return model.eval()


def counted(model: nn.Module, act: Callable[[], object]) -> int:
    """The rows through the body in a second call: the first probes the net with a few rows."""
    act()
    model.body.rows = 0  # type: ignore[union-attr]
    act()
    return int(model.body.rows)  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize("kind", [Traced, Untraced])
@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("family", ["mean_field", "full_covariance"])
def test_the_body_runs_once(kind: type[Traced], members: int, family: str) -> None:
    model, lik = converted(kind, posterior=family, members=members), hs.Categorical(3)
    x, y = torch.randn(ROWS, 4), torch.arange(ROWS) % 3
    assert counted(model, lambda: hs.predict(model, lik, x, samples=128)) == ROWS
    assert counted(model, lambda: hs.predict(model, lik, x, 40, sampler="weights")) == ROWS
    assert counted(model, lambda: hs.nelbo(model, lik, x, y, num_data=9, samples=16)) == ROWS
    assert counted(model, lambda: hs.draw(model, x, 12, "weights")) == ROWS


@pytest.mark.parametrize("kind", [Traced, Untraced])
def test_refine_runs_the_body_once_apart_from_its_questions(kind: type[Traced]) -> None:
    model, lik = converted(kind), hs.Categorical(3)
    x = torch.randn(300, 4)
    y = x[:, :3].argmax(1)
    few = counted(model, lambda: hs.refine_(model, lik, (x[:20], y[:20])))
    many = counted(model, lambda: hs.refine_(model, lik, (x, y)))
    assert many - few == 280


@pytest.mark.parametrize("kind", [Skipping, FromSequences])
def test_a_net_that_goes_on_is_predicted_as_before(kind: type[Traced]) -> None:
    model, x = converted(kind), torch.randn(ROWS, 4)
    assert run_body(model, x) is None
    draws = hs.predict(model, hs.Gaussian(), x, samples=4000, sampler="weights", seed=0).draws
    with hs.drawing(model, "mean"):
        mean = model(x)
    spread = draws.std(0) / 4000**0.5
    assert bool(((draws.mean(0) - mean).abs() < 5 * spread).all())


@pytest.mark.parametrize("sampler", ["local", "weights"])
def test_draws_have_the_law_of_the_layer(sampler: str) -> None:
    model, x, count = converted(Untraced), torch.randn(ROWS, 4), 4000
    draws = hs.predict(model, hs.Gaussian(), x, samples=count, sampler=sampler, seed=0).draws
    head = run_body(model, x)
    assert head is not None
    law = head.layer.posterior
    features, weights, spread = (part.detach() for part in (head.inputs, law.mean, law.variance()))
    mean = features @ weights[:, :-1].T + weights[:, -1]
    var = features.square() @ spread[:, :-1].T + spread[:, -1]
    error = (draws.mean(0) - mean) / (var / count).sqrt()
    assert float(error.abs().max()) < 5
    assert float((draws.var(0) / var - 1).abs().max()) < 5 * (2 / count) ** 0.5


def test_gradients_reach_the_body_and_modes_stay() -> None:
    model, x = converted(Untraced).train(), torch.randn(ROWS, 4)
    model.body.inner[2].eval()
    hs.nelbo(model, hs.Categorical(3), x, torch.arange(ROWS) % 3, num_data=9).value.backward()
    assert float(model.body.inner[0].weight.grad.abs().sum()) > 0
    assert [module.training for module in model.body.inner] == [True, True, False]
    hs.predict(model, hs.Categorical(3), x)
    assert [module.training for module in model.body.inner] == [True, True, False]
