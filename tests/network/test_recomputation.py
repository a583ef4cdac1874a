"""Activation checkpointing changes memory, not numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import headstart as hs

pytestmark = pytest.mark.usefixtures("float64")


class Net(nn.Module):
    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(8, 8), nn.Dropout(0.3), nn.Linear(8, 8))
        self.last = nn.Linear(8, 2)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if self.reentrant is None:
            h = self.body(h)
        else:
            h = checkpoint(self.body, h, use_reentrant=self.reentrant)
        return self.last(h.tanh())


def gradients(
    reentrant: bool | None, members: int = 1, together: bool = False, traced: bool = True
) -> list[Tensor]:
    torch.manual_seed(0)
    plain = Net(reentrant)
    model, lik = hs.bayesianize(plain, members=members), hs.Gaussian()
    if not traced:
        for layer in hs.bayesian_layers(model).values():
            layer.chain = ()
    x, y = torch.randn(20, 3), torch.randn(20, 2)
    losses = [hs.nelbo(model, lik, x, y, num_data=20, samples=8).value for _ in range(2)]
    if together:
        (losses[0] + 2 * losses[1]).backward()
    else:
        losses[1].backward()
        losses[0].backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("members", [1, 2])
def test_gradients_are_those_without_it(reentrant: bool, together: bool, members: int) -> None:
    # Tracing does not pass the reentrant variant, so samples branch nowhere.
    want = gradients(None, members, together, traced=not reentrant)
    found = gradients(reentrant, members, together)
    assert len(want) == len(found)
    for one, other in zip(want, found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_training_is_the_same(float64: None) -> None:
    losses = []
    for reentrant in (None, False):
        torch.manual_seed(0)
        model, lik = hs.bayesianize(Net(reentrant)), hs.Gaussian()
        x = torch.randn(40, 3)
        history = hs.fit(model, lik, (x, x[:, :2].sin()), steps=5, progress=False, seed=0)
        losses.append([step.nelbo for step in history.steps])
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


def test_draws_of_weights_are_refused_in_a_sentence() -> None:
    model, lik = hs.bayesianize(Net(False)), hs.Gaussian()
    loss = hs.nelbo(
        model, lik, torch.randn(20, 3), torch.randn(20, 2), num_data=20, sampler="weights"
    )
    with pytest.raises(hs.HeadstartError, match="train with sampler='local'"):
        loss.value.backward()


def test_a_plain_call_after_a_step_is_a_plain_call() -> None:
    model, lik = hs.bayesianize(Net(False)), hs.Gaussian()
    hs.nelbo(model, lik, torch.randn(20, 3), torch.randn(20, 2), num_data=20).value.backward()
    assert model(torch.randn(5, 3)).shape == (5, 2)


class SequenceNet(nn.Module):
    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.first, self.body = nn.Linear(3, 3), nn.LSTM(3, 4, batch_first=True)
        self.last, self.reentrant = nn.Linear(4, 1), reentrant

    def run_body(self, x: Tensor) -> Tensor:
        return self.body(x)[0][:, -1]

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if self.reentrant is None:
            return self.last(self.run_body(h))
        return self.last(checkpoint(self.run_body, h, use_reentrant=self.reentrant))


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("reentrant", [False, True])
def test_recurrent_layers_draw_the_weights_that_they_drew(reentrant: bool, members: int) -> None:
    found = []
    for kind in (None, reentrant):
        torch.manual_seed(0)
        model = hs.bayesianize(SequenceNet(kind), members=members)
        x, y = torch.randn(6, 5, 3), torch.randn(6, 1)
        # The first asks what the net does with its rows, which takes random numbers.
        for _ in range(2):
            model.zero_grad()
            torch.manual_seed(1)
            hs.nelbo(model, hs.Gaussian(), x, y, num_data=6, samples=4).value.backward()
        found.append([p.grad for p in model.parameters() if p.grad is not None])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
