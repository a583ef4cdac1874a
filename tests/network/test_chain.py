"""Chains of modules, and images in the order that their convolutions like best."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.network import chunks
from headstart.network.chain import chain_elements, channels_last


def images(*extra: nn.Module) -> nn.Module:
    return hs.bayesianize(
        nn.Sequential(
            nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *extra,
            nn.Flatten(),
            nn.Linear(27, 2),
        )
    )


def lies_so(x: object) -> bool:
    assert isinstance(x, Tensor)
    return x.stride(1) == 1


class Viewing(nn.Module):
    """A module that needs its activations in the usual order, as many forward methods do."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), -1)


def test_a_chain_is_sequentials_within_sequentials() -> None:
    model = images()
    kinds = [type(each).__name__ for each in chain_elements(model)]
    assert kinds[1:4] == ["ReLU", "MaxPool2d", "Flatten"]
    assert len(kinds) == 5
    model.register_forward_pre_hook(lambda module, args: None)
    assert chain_elements(model) == []

    class Own(nn.Sequential):
        pass

    assert chain_elements(Own(nn.Linear(2, 2))) == []


def test_only_chains_of_torchs_modules_get_their_channels_last() -> None:
    x = torch.randn(5, 1, 8, 8)
    found = channels_last(images(), x)
    assert lies_so(found)
    assert torch.equal(found, x)  # type: ignore[arg-type]
    assert channels_last(images(Viewing()), x) is x
    dense = hs.bayesianize(nn.Sequential(nn.Flatten(), nn.Linear(64, 2)))
    assert channels_last(dense, x) is x
    assert channels_last(images(), x[0]) is not None
    assert channels_last(images(), x[0]).ndim == 3  # type: ignore[union-attr]


@pytest.mark.parametrize("extra", [(), (Viewing(),)])
def test_predictions_are_those_of_the_usual_order(
    extra: tuple[nn.Module, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, x = images(*extra), torch.randn(600, 1, 8, 8)
    found = hs.predict(model, hs.Categorical(2), x, samples=3, seed=0)
    monkeypatch.setattr(chunks, "channels_last", lambda model, x: x)
    monkeypatch.setattr(chunks, "CACHED_PASS_ELEMENTS", 2**22)
    usual = hs.predict(model, hs.Categorical(2), x, samples=3, seed=0)
    torch.testing.assert_close(found.draws, usual.draws)


def test_a_drawn_function_takes_few_images_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = images(), list[tuple[int, bool]]()
    handle = chain_elements(model)[0].register_forward_pre_hook(
        lambda module, args: seen.append((len(args[0]), lies_so(args[0])))
    )
    monkeypatch.setattr(chunks, "CACHED_PASS_ELEMENTS", 300 * 64)
    hs.predict(model, hs.Categorical(2), torch.randn(700, 1, 8, 8), samples=2, seed=0)
    handle.remove()
    assert seen[-3:] == [(300, True), (300, True), (100, True)]
