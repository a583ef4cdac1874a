"""Plans of a forward pass: which serve a request, and what every layer does in one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.kernels.noise import Reused, fresh
from headstart.network.branching import Branch, branch_along_chain, branch_at_entry
from headstart.network.layer import kl_and_moments
from headstart.network.plan import ForwardPlan, ForwardRequest
from headstart.network.samplers import Local, Mean, Weights, WeightsOnCall
from tests.cases import Residual, chain, scramble_

pytestmark = pytest.mark.usefixtures("float64")
ROWS = 5


def converted(net: Callable[[], nn.Module] = chain) -> nn.Module:
    model = hs.bayesianize(net())
    scramble_(model)
    return model


def request(
    model: nn.Module,
    sampler: str = "local",
    samples: int = 8,
    averaged: bool = False,
    weights: list[Tensor] | None = None,
) -> ForwardRequest:
    layers = hs.bayesian_layers(model)
    return ForwardRequest(layers, sampler, samples, ROWS, averaged, weights, None, {})


def kinds(asked: ForwardRequest) -> list[int]:
    """How many passes each kind of plan takes: branched, folded, repeated, one by one."""
    makes = (asked.branched, asked.folded, asked.repeated, asked.one_by_one)
    return [len(make()) for make in makes]


@pytest.mark.parametrize(
    ("net", "sampler", "samples", "averaged", "passes"),
    [
        (chain, "local", 8, False, [0, 1, 1, 0]),
        (chain, "local", 8, True, [1, 1, 1, 0]),
        # No multiple of four branches.
        (chain, "local", 6, True, [0, 1, 1, 0]),
        (chain, "weights", 3, False, [0, 1, 0, 3]),
        (chain, "weights", 1, False, [0, 1, 0, 0]),
        # For an average weights are drawn when a layer is called.
        (chain, "weights", 3, True, [1, 1, 0, 3]),
        (chain, "mean", 3, True, [0, 0, 1, 0]),
        (Residual, "local", 8, True, [0, 0, 1, 0]),
        (Residual, "weights", 3, False, [0, 0, 1, 3]),
    ],
)
def test_a_request_has_the_plans_that_may_serve_it(
    net: Callable[[], nn.Module], sampler: str, samples: int, averaged: bool, passes: list[int]
) -> None:
    assert kinds(request(converted(net), sampler, samples, averaged)) == passes


def test_weights_that_are_drawn_already_serve_every_plan() -> None:
    model = converted()
    weights = [layer.posterior.sample(3) for layer in hs.bayesian_layers(model).values()]
    asked = request(model, "weights", 3, averaged=True, weights=weights)
    assert asked.branched() == []
    (folded,) = asked.folded()
    assert folded.weights is weights
    one = asked.one_by_one()
    assert [plan.samples for plan in one] == [1, 1, 1]
    for k, plan in enumerate(one):
        assert plan.weights is not None
        for mine, whole in zip(plan.weights, weights, strict=True):
            assert torch.equal(mine, whole[k : k + 1])


def test_plans_of_a_request_have_the_same_weights_and_so_the_same_draws() -> None:
    model, x = converted(), torch.randn(ROWS, 4)
    layers, asked = hs.bayesian_layers(model), request(model, "weights", 3)
    (folded,) = asked.folded()
    together = folded.run(model, layers, x)
    apart = [plan.run(model, layers, x) for plan in asked.one_by_one()]
    repeated = ForwardPlan("weights", 3, ROWS, weights=asked.weights)
    assert not repeated.folds
    assert folded.folds
    assert together is not None
    assert together.shape == (3, ROWS, 3)
    torch.testing.assert_close(torch.cat([each for each in apart if each is not None]), together)
    torch.testing.assert_close(repeated.run(model, layers, x), together)


def samplers(model: nn.Module, plan: ForwardPlan) -> list[object]:
    """What each layer does within the plan; afterwards it does what it did before."""
    layers = hs.bayesian_layers(model)
    before = [layer.sampler for layer in layers.values()]
    with plan.installed(layers):
        found: list[object] = [layer.sampler for layer in layers.values()]
    assert [layer.sampler for layer in layers.values()] == before
    return found


def test_a_plan_tells_every_layer_what_to_draw() -> None:
    model = converted()
    layers = hs.bayesian_layers(model)
    assert [type(each) for each in samplers(model, ForwardPlan("mean", 1))] == [Mean, Mean]
    first, second = samplers(model, ForwardPlan("local", 8, ROWS))
    assert isinstance(first, Local)
    assert (first.branches, first.rows, first.noise) == (1, 8 * ROWS, fresh)
    at_entry = branch_at_entry(layers, 8)
    first, second = samplers(model, ForwardPlan("local", 8, ROWS, branching=at_entry))
    assert isinstance(first, Local)
    assert isinstance(second, Local)
    assert (first.branches, first.rows) == (8, ROWS)
    assert (second.branches, second.rows) == (1, 8 * ROWS)
    on_call = samplers(model, ForwardPlan("weights", 8, ROWS, True, at_entry))
    assert isinstance(on_call[0], WeightsOnCall)
    assert isinstance(on_call[0].noise, Reused)
    drawn = [layer.posterior.sample(8) for layer in layers.values()]
    fixed = samplers(model, ForwardPlan("weights", 8, ROWS, branching=at_entry, weights=drawn))
    assert [each.enters for each in fixed if isinstance(each, Weights)] == [True, False]
    assert [each.draws for each in fixed if isinstance(each, Weights)] == drawn


def test_samples_that_branch_along_the_chain_multiply_from_layer_to_layer() -> None:
    model = converted()
    branching = branch_along_chain(hs.bayesian_layers(model), "local", 8)
    assert list(branching.values()) == [Branch(1, 4, enters=True), Branch(4, 8)]
    plan = ForwardPlan("local", 8, ROWS, True, branching)
    first, second = samplers(model, plan)
    assert isinstance(first, Local)
    assert isinstance(second, Local)
    assert (first.branches, first.rows) == (4, ROWS)
    assert (second.branches, second.rows) == (2, 4 * ROWS)


def test_layers_draw_with_the_moments_that_are_known() -> None:
    model = converted()
    moments = kl_and_moments(model)[1]
    found = samplers(model, ForwardPlan("local", 2, ROWS, moments=moments))
    assert [each.moments for each in found if isinstance(each, Local)] == list(moments.values())


def test_layers_do_what_they_did_before_also_after_an_error() -> None:
    model = converted()
    layers = hs.bayesian_layers(model)
    before = [layer.sampler for layer in layers.values()]
    with pytest.raises(KeyError), ForwardPlan("mean", 1).installed(layers):
        raise KeyError
    assert [layer.sampler for layer in layers.values()] == before


class Transposed(nn.Module):
    """Moves the batch off axis 0."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).T


def test_a_plan_that_does_not_fit_gives_nothing_and_says_why() -> None:
    model, x = converted(Transposed), torch.randn(ROWS, 4)
    plan = ForwardPlan("local", 2, ROWS)
    assert plan.run(model, hs.bayesian_layers(model), x) is None
    assert plan.misfit == ("a tensor of shape (3, 10)", 0, 10)
    other = ForwardPlan("local", 2, ROWS + 1)
    assert other.run(model, hs.bayesian_layers(model), x) is None
    assert other.misfit == (model.layer.op, 2 * ROWS, 2 * (ROWS + 1))
