"""The average follows from its definition, and resumes to the bit."""

from __future__ import annotations

import copy
from contextlib import suppress
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.training.averaged import LOOK_AHEAD, RECENCY, SQUARES_DECAY, Averaged, current_rate


def test_centered_weights_move_as_those_of_centered_inputs_do() -> None:
    """[W b] on inputs x with their mean m given, and [W b + W m] on x − m: one function."""
    x = torch.randn(30, 3, dtype=torch.float64) + 2
    y = torch.randn(30, 2, dtype=torch.float64)
    m = x.mean(0, keepdim=True)
    start = torch.randn(2, 4, dtype=torch.float64)
    shifted = start.clone()
    shifted[:, -1] += (start[:, :-1] * m).sum(1)
    one, other = nn.Parameter(start.clone()), nn.Parameter(shifted)
    centered = Averaged([one], lr=0.1, warmup=3)
    centered.center_(one, m)
    plain = Averaged([other], lr=0.1, warmup=3)
    for _ in range(20):
        for optimizer, p, inputs in ((centered, one, x), (plain, other, x - m)):
            optimizer.zero_grad()
            with optimizer.look_ahead():
                (inputs @ p[:, :-1].T + p[:, -1] - y).square().sum().backward()
            optimizer.step()
        torch.testing.assert_close(
            x @ one[:, :-1].T + one[:, -1], (x - m) @ other[:, :-1].T + other[:, -1]
        )


def test_parts_of_the_units_move_around_mean_inputs_of_their_own() -> None:
    """The units of two members in one parameter, and each member's in a parameter of its own."""
    means = torch.randn(2, 3, dtype=torch.float64)
    start, slopes = torch.randn(2, 4, 4, dtype=torch.float64).unbind()
    both = nn.Parameter(start.clone())
    apart = [nn.Parameter(part.clone()) for part in start.split(2)]
    together = Averaged([both], lr=0.1, warmup=3)
    together.center_(both, means)
    separate = Averaged(apart, lr=0.1, warmup=3)
    for p, mean in zip(apart, means, strict=True):
        separate.center_(p, mean.unsqueeze(0))
    for _ in range(10):
        both.grad = slopes * both.detach()
        for p, part in zip(apart, slopes.split(2), strict=True):
            p.grad = part * p.detach()
        together.step()
        separate.step()
    torch.testing.assert_close(both.detach(), torch.cat(apart).detach(), rtol=0, atol=1e-12)


def test_a_center_of_another_shape_is_refused() -> None:
    p = nn.Parameter(torch.zeros(2, 4))
    for shape in ((1, 4), (3, 3), (3,)):
        with pytest.raises(HeadstartError, match=r"has 3 columns and .* divides 2, not"):
            Averaged([p], lr=0.1, warmup=3).center_(p, torch.zeros(shape))


def by_hand(
    start: Tensor, curvature: Tensor, rate: float, warmup: int, steps: int
) -> tuple[Tensor, Tensor]:
    """The average, as a weighted sum over all iterates, and the last iterate."""
    x, z, squares = start.clone(), start.clone(), torch.zeros_like(start)
    iterates, weights = [start.clone()], [1.0]
    for t in range(1, steps + 1):
        y = (1 - LOOK_AHEAD) * x + LOOK_AHEAD * z
        g = curvature * y
        squares = SQUARES_DECAY * squares + (1 - SQUARES_DECAY) * g**2
        share = min(1.0, t / warmup)
        z = z - rate * share * g / ((squares / (1 - SQUARES_DECAY**t)).sqrt() + 1e-8)
        iterates.append(z)
        weights.append(share**2 * (t / warmup) ** RECENCY)
        total = sum(weights)
        x = torch.stack([w / total * each for w, each in zip(weights, iterates, strict=True)]).sum(
            0
        )
    return x, z


def run(optimizer: Averaged, p: nn.Parameter, curvature: Tensor, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        with optimizer.look_ahead():
            (0.5 * curvature * p.square()).sum().backward()
        optimizer.step()


def test_parameters_are_the_average_of_their_iterates() -> None:
    curvature = torch.tensor([1.0, 30.0, 0.01], dtype=torch.float64)
    start = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    p = nn.Parameter(start.clone())
    optimizer = Averaged([p], lr=0.05, warmup=7)
    run(optimizer, p, curvature, 40)
    x, z = by_hand(start, curvature, 0.05, 7, 40)
    torch.testing.assert_close(p.detach(), x, rtol=0, atol=1e-9)
    torch.testing.assert_close(optimizer.state[p]["iterate"], z, rtol=0, atol=1e-9)


def test_the_start_is_left_slowly() -> None:
    """After one step of a long warm-up next to nothing has changed, however large the rate."""
    p = nn.Parameter(torch.ones(1, dtype=torch.float64))
    run(Averaged([p], lr=1.0, warmup=100), p, torch.ones(1, dtype=torch.float64), 1)
    assert 0 < 1 - float(p.detach()) < 1e-5


@pytest.mark.parametrize("damped", [False, True])
def test_it_resumes_to_the_bit(damped: bool) -> None:
    curvature = torch.tensor([[1.0, 5.0, 2.0]])
    whole, halves = (nn.Parameter(torch.tensor([[1.0, 2.0, 3.0]])) for _ in range(2))
    one, first, second = (Averaged([p], lr=0.1, warmup=5) for p in (whole, halves, halves))
    if damped:
        for optimizer, p in ((one, whole), (first, halves)):
            optimizer.damp_(p, torch.tensor([[[0.6, 0.8, 0.0]]]), torch.tensor([[0.5]]))
    run(one, whole, curvature, 12)
    run(first, halves, curvature, 6)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    second.check_state()
    run(second, halves, curvature, 6)
    assert torch.equal(whole, halves)


def test_a_parameter_without_a_gradient_stays() -> None:
    used, idle = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizer = Averaged([used, idle], lr=0.1, warmup=1)
    run(optimizer, used, torch.ones(1), 5)
    assert float(idle.detach()) == 1.0
    assert float(used.detach()) < 1.0


def test_there_and_back_changes_nothing() -> None:
    p = nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))
    optimizer = Averaged([p], lr=0.1, warmup=2)
    run(optimizer, p, torch.ones(2, dtype=torch.float64), 5)
    before = p.detach().clone()
    with suppress(KeyError), optimizer.look_ahead():
        assert not torch.equal(p, before)
        raise KeyError
    torch.testing.assert_close(p.detach(), before, rtol=0, atol=1e-14)


def test_without_a_warm_up_parameters_are_their_iterates() -> None:
    """`p ← p − r g / √v` from the first step on, and no memory of an average."""
    p = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer, expected = Averaged([p], lr=0.1, warmup=0), p.detach().clone()
    squares = torch.zeros(2, dtype=torch.float64)
    for t in range(1, 6):
        g = 3 * expected
        squares = SQUARES_DECAY * squares + (1 - SQUARES_DECAY) * g**2
        expected = expected - 0.1 * g / ((squares / (1 - SQUARES_DECAY**t)).sqrt() + 1e-8)
        run(optimizer, p, torch.tensor([3.0, 3.0], dtype=torch.float64), 1)
    torch.testing.assert_close(p.detach(), expected, rtol=0, atol=1e-12)
    assert "iterate" not in optimizer.state[p]


def test_a_warm_up_of_less_than_no_step_is_refused() -> None:
    with pytest.raises(HeadstartError, match="takes steps, not -1"):
        Averaged([nn.Parameter(torch.ones(1))], lr=0.1, warmup=-1)


def test_damped_weights_move_as_those_of_turned_inputs_do() -> None:
    """Directions that span all inputs: the step of weights W Qᵀ on inputs Q x, each at its rate."""
    x, y = torch.randn(30, 3, dtype=torch.float64), torch.randn(30, 2, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    damping = torch.tensor([0.25, 0.5, 1.0], dtype=torch.float64)
    start = torch.randn(2, 4, dtype=torch.float64)
    one = nn.Parameter(start.clone())
    damped = Averaged([one], lr=0.1, warmup=3)
    damped.damp_(one, turn.unsqueeze(0), damping.unsqueeze(0))
    turned = [nn.Parameter(column.clone()) for column in (start[:, :3] @ turn.T).unbind(1)]
    bias = nn.Parameter(start[:, 3].clone())
    rates = [*(0.1 * damping).tolist(), 0.1]
    plain = Averaged(
        [{"params": [p], "lr": rate} for p, rate in zip([*turned, bias], rates, strict=True)],
        lr=0.0,
        warmup=3,
    )
    for _ in range(20):
        damped.zero_grad()
        plain.zero_grad()
        with damped.look_ahead():
            (x @ one[:, :3].T + one[:, 3] - y).square().sum().backward()
        with plain.look_ahead():
            outputs = x @ turn.T @ torch.stack(turned) + bias
            (outputs - y).square().sum().backward()
        damped.step()
        plain.step()
        expected = torch.stack(turned, 1) @ turn
        torch.testing.assert_close(one[:, :3].detach(), expected.detach(), rtol=0, atol=1e-9)
        torch.testing.assert_close(one[:, 3].detach(), bias.detach(), rtol=0, atol=1e-9)


def test_what_is_at_right_angles_to_the_directions_moves_at_right_angles_to_them() -> None:
    direction = torch.tensor([[[0.6, 0.8, 0.0]]], dtype=torch.float64)
    p = nn.Parameter(torch.zeros(1, 3, dtype=torch.float64))
    optimizer = Averaged([p], lr=0.1, warmup=1)
    optimizer.damp_(p, direction, torch.tensor([[0.5]], dtype=torch.float64))
    p.grad = torch.tensor([[3.0, 4.0, 0.0]], dtype=torch.float64)
    optimizer.step()
    # Along the direction alone, by half the rate; the average has half of the way of the iterate.
    torch.testing.assert_close(p.detach(), -0.025 * direction[0], rtol=0, atol=1e-9)


def test_parts_of_the_units_are_damped_along_directions_of_their_own() -> None:
    turns = torch.linalg.qr(torch.randn(2, 3, 3, dtype=torch.float64))[0][:, :2]
    damping = torch.tensor([[0.1, 1.0], [0.5, 0.7]], dtype=torch.float64)
    start, slopes = torch.randn(2, 4, 4, dtype=torch.float64).unbind()
    both = nn.Parameter(start.clone())
    apart = [nn.Parameter(part.clone()) for part in start.split(2)]
    together, separate = Averaged([both], lr=0.1, warmup=3), Averaged(apart, lr=0.1, warmup=3)
    together.damp_(both, turns, damping)
    for p, turn, each in zip(apart, turns, damping, strict=True):
        separate.damp_(p, turn.unsqueeze(0), each.unsqueeze(0))
    for _ in range(10):
        both.grad = slopes * both.detach()
        for p, part in zip(apart, slopes.split(2), strict=True):
            p.grad = part * p.detach()
        together.step()
        separate.step()
    torch.testing.assert_close(both.detach(), torch.cat(apart).detach(), rtol=0, atol=1e-12)


def test_directions_of_another_shape_are_refused() -> None:
    p = nn.Parameter(torch.zeros(2, 4))
    for shape, count in (((1, 1, 2), 1), ((3, 1, 3), 1), ((1, 2, 3), 1), ((2, 3), 2)):
        with pytest.raises(HeadstartError, match=r"\(parts, k, inputs\) with a damping each"):
            Averaged([p], lr=0.1, warmup=3).damp_(p, torch.zeros(shape), torch.zeros(1, count))


@pytest.mark.parametrize("name", ["center", "directions", "damping", "stiff_squares"])
def test_a_state_of_layers_of_another_size_is_refused(name: str) -> None:
    p = nn.Parameter(torch.ones(2, 4))
    optimizer = Averaged([p], lr=0.1, warmup=3)
    optimizer.center_(p, torch.zeros(1, 3))
    optimizer.damp_(p, torch.eye(3)[:1].unsqueeze(0), torch.ones(1, 1))
    p.grad = torch.ones(2, 4)
    optimizer.step()
    optimizer.check_state()
    optimizer.state[p][name] = torch.zeros(5, 5, 5)
    with pytest.raises(HeadstartError, match="layers of another size"):
        optimizer.check_state()


def test_hooks_are_called_around_a_step_and_change_no_number() -> None:
    """Without a hook a step goes around torch's own way, with one it does not."""
    starts = torch.randn(2, 3)
    hooked, alone = nn.Parameter(starts.clone()), nn.Parameter(starts.clone())
    optimizers = [Averaged([p], lr=0.1, warmup=2) for p in (hooked, alone)]
    seen = list[str]()
    optimizers[0].register_step_pre_hook(lambda *_: seen.append("before"))
    optimizers[0].register_step_post_hook(lambda *_: seen.append("after"))
    for _ in range(3):
        for optimizer, p in zip(optimizers, (hooked, alone), strict=True):
            p.grad = 2 * p.detach()
            assert optimizer.step() is None
    assert seen == ["before", "after"] * 3
    assert torch.equal(hooked, alone)
    assert not torch.equal(alone, starts)


def test_a_step_returns_the_loss_of_its_closure() -> None:
    p = nn.Parameter(torch.ones(2))
    optimizer = Averaged([p], lr=0.1, warmup=1)

    def closure() -> float:
        loss = p.square().sum()
        loss.backward()
        return float(loss.detach())

    assert optimizer.step(closure) == 2.0
    assert bool((p < 1).all())


def test_gradients_are_dropped_or_filled_with_zeros() -> None:
    p = nn.Parameter(torch.ones(2))
    optimizer = Averaged([p], lr=0.1, warmup=1)
    p.grad = torch.ones(2)
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert p.grad is None


def test_slow_after_lets_the_rate_fall_as_the_inverse_square_of_the_steps() -> None:
    p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = Averaged([p], lr=0.1, warmup=0, slow_after=4)
    at = [0.0]
    for _ in range(40):
        # Of one gradient again and again a step is the rate.
        p.grad = torch.ones_like(p)
        optimizer.step()
        at.append(-p.item())
    expected = [0.1 * min(1.0, 4 / step) ** 2 for step in range(1, 41)]
    moved = [after - before for before, after in pairwise(at)]
    assert moved == pytest.approx(expected, rel=1e-6)
    assert at[-1] - at[4] < 4 * 0.1
    assert current_rate(optimizer.param_groups[0]) == pytest.approx(0.1 * (4 / 40) ** 2)
    assert current_rate(torch.optim.Adam([p], lr=0.3).param_groups[0]) == 0.3


def test_a_state_from_before_rates_fell_is_refused() -> None:
    p = nn.Parameter(torch.zeros(1))
    optimizer = Averaged([p], lr=0.1, warmup=0)
    state = optimizer.state_dict()
    del state["param_groups"][0]["slow_after"]
    optimizer.load_state_dict(state)
    with pytest.raises(HeadstartError, match="lacks a number"):
        optimizer.check_state()
    with pytest.raises(HeadstartError, match="slow_after is a number of steps, not -1"):
        Averaged([p], lr=0.1, warmup=0, slow_after=-1)
