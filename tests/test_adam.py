"""Adam that goes straight to the kernel is torch's, number for number."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from headstart.inference.adam import Adam


def pair() -> tuple[list[list[nn.Parameter]], list[torch.optim.Optimizer]]:
    """The same parameters twice, in two groups, one for each optimizer."""
    torch.manual_seed(0)
    first = [nn.Parameter(torch.randn(3, 5)), nn.Parameter(torch.randn(7)), nn.Parameter(torch.randn(()))]
    sets = [first, copy.deepcopy(first)]
    groups = [[{"params": p[:2]}, {"params": p[2:], "lr": 0.3}] for p in sets]
    return sets, [Adam(groups[0], lr=0.1), torch.optim.Adam(groups[1], lr=0.1, fused=True)]


def set_gradients(sets: list[list[nn.Parameter]], step: int, skip: int | None = None) -> None:
    torch.manual_seed(step)
    for index, both in enumerate(zip(*sets, strict=True)):
        gradient: Tensor | None = None if index == skip else torch.randn_like(both[0])
        for parameter in both:
            parameter.grad = None if gradient is None else gradient.clone()


def assert_same(sets: list[list[nn.Parameter]]) -> None:
    for mine, theirs in zip(*sets, strict=True):
        assert torch.equal(mine, theirs)


def test_it_is_torchs() -> None:
    sets, optimizers = pair()
    schedules = [torch.optim.lr_scheduler.LambdaLR(each, lambda step: 1 / (1 + step)) for each in optimizers]
    for step in range(6):
        set_gradients(sets, step, skip=step % 4 if step else None)  # one of them has no gradient now and then
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        assert_same(sets)
    optimizers[0].zero_grad()
    assert all(p.grad is None for p in sets[0])


def test_its_state_is_torchs() -> None:
    """Told after three steps, taken up by the other, and gone on with."""
    sets, optimizers = pair()
    for step in range(3):
        set_gradients(sets, step)
        for optimizer in optimizers:
            optimizer.step()
    mine, theirs = (copy.deepcopy(each.state_dict()) for each in optimizers)
    assert mine["state"].keys() == theirs["state"].keys()
    for key, state in theirs["state"].items():
        assert all(torch.equal(mine["state"][key][name], part) for name, part in state.items())
    optimizers[0].load_state_dict(theirs)
    optimizers[1].load_state_dict(mine)
    set_gradients(sets, 3)
    for optimizer in optimizers:
        optimizer.step()
    assert_same(sets)
