"""Adam that goes straight to the kernel is torch's, number for number."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from headstart.kernels.adam import Adam

pytestmark = pytest.mark.usefixtures("torch_names")


def pair() -> tuple[list[list[nn.Parameter]], list[torch.optim.Optimizer]]:
    """The same parameters twice, in two groups, one for each optimizer."""
    torch.manual_seed(0)
    first = [
        nn.Parameter(torch.randn(3, 5)),
        nn.Parameter(torch.randn(7)),
        nn.Parameter(torch.randn(())),
    ]
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


def test_it_is_torchs(monkeypatch: pytest.MonkeyPatch, torch_names: str) -> None:
    """With the kernel, after a first step, without torch's own: that is kept from being called."""
    sets, optimizers = pair()
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(each, lambda step: 1 / (1 + step)) for each in optimizers
    ]
    theirs = torch.optim.Adam.step
    for step in range(6):
        # One of them has no gradient now and then.
        set_gradients(sets, step, skip=step % 4 if step else None)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            if step and optimizer is optimizers[0] and torch_names == "private":
                monkeypatch.setattr(
                    torch.optim.Adam, "step", lambda *_: pytest.fail("the long way round")
                )
            optimizer.step()
            monkeypatch.setattr(torch.optim.Adam, "step", theirs)
            schedule.step()
        assert_same(sets)
    optimizers[0].zero_grad()
    assert all(p.grad is None for p in sets[0])


def test_its_state_is_torchs() -> None:
    """Told after three steps, each taken up by a fresh one of the other, and gone on with."""
    sets, optimizers = pair()
    for step in range(3):
        set_gradients(sets, step)
        for optimizer in optimizers:
            optimizer.step()
    _, others = pair()
    for mine, theirs, other, parameters in zip(
        optimizers, optimizers[::-1], others, sets, strict=True
    ):
        for group, kept in zip(other.param_groups, mine.param_groups, strict=True):
            group["params"] = kept["params"]
        other.load_state_dict(copy.deepcopy(theirs.state_dict()))
        assert len(other.state) == len(parameters)
    set_gradients(sets, 3)
    for other in others:
        other.step()
    assert_same(sets)


@pytest.mark.parametrize(
    "wish", ["hook", "any hook", "scaler", "decay", "decoupled", "maximize", "amsgrad"]
)
def test_what_torchs_can_do_it_does(wish: str, request: pytest.FixtureRequest) -> None:
    sets, optimizers = pair()
    seen: list[int] = []
    if wish == "any hook":
        request.addfinalizer(register_optimizer_step_post_hook(lambda *_: seen.append(1)).remove)
    for step in range(4):
        set_gradients(sets, step)
        for optimizer in optimizers:
            if step == 0 and wish == "hook":
                optimizer.register_step_post_hook(lambda *_: seen.append(1))
            if wish == "scaler":
                optimizer.grad_scale, optimizer.found_inf = (
                    torch.tensor(2.0),
                    torch.tensor(float(step == 2)),
                )
            names = {
                "decay": ("weight_decay", 0.5),
                "maximize": ("maximize", True),
                "amsgrad": ("amsgrad", True),
            }
            for group in optimizer.param_groups:
                group |= (
                    {"weight_decay": 0.5, "decoupled_weight_decay": True}
                    if wish == "decoupled"
                    else {}
                )
                group |= [names[wish]] if wish in names else {}
            optimizer.step()
        assert_same(sets)
    assert len(seen) == (8 if "hook" in wish else 0)


def test_its_hooks_are_called_where_torch_has_made_no_adam(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch has the step of a class call hooks from the first optimizer of that class on."""
    step = torch.optim.Adam.step
    if hasattr(step, "hooked"):
        monkeypatch.setattr(torch.optim.Adam, "step", step.__wrapped__)
    parameter = nn.Parameter(torch.ones(2))
    adam, seen = Adam([parameter], lr=0.1), []
    adam.register_step_pre_hook(lambda *_: seen.append("before"))
    adam.register_step_post_hook(lambda *_: seen.append("after"))
    for _ in range(2):
        parameter.grad = torch.ones(2)
        adam.step()
    assert seen == ["before", "after"] * 2
    torch.testing.assert_close(parameter.detach(), torch.full((2,), 0.8))
