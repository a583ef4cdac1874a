"""Forward passes of a Bayesian net: how many draws, by which sampler, folded into the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError, unknown
from headstart.kernels.noise import Noise, fresh
from headstart.nested import TensorTree, is_whole, join_tensors, row_count
from headstart.network.branching import Branching, branch_along_chain, branch_at_entry
from headstart.network.head import after_body
from headstart.network.inputs import as_tensors, fitted
from headstart.network.layer import bayesian_layers, common_members
from headstart.network.plan import ForwardPlan, ForwardRequest, Layers
from headstart.network.probe import check_rows
from headstart.network.samplers import SAMPLERS, PlanMisfit
from headstart.posteriors import KnownMoments, Posterior
from headstart.posteriors.mixture import sample_each


@contextmanager
def drawing(
    model: nn.Module,
    sampler: str = "local",
    samples: int = 1,
    *,
    rows: int | None = None,
    weights: list[Tensor] | None = None,
    noise: Noise | None = None,
    fold: bool = True,
    averaged: bool = False,
) -> Iterator[bool]:
    """Within this scope every forward pass of a net draws so many times.

    With `sampler="weights"` the draws are made once, at the start of the scope: every call in it
    sees the same functions.

    Args:
        model: A converted net.
        sampler: `"local"` draws each layer's outputs, `"weights"` its weights; `"mean"` draws
            nothing.
        samples: The number of samples S, folded into axis 0 of the output. The members of a
            mixture draw S/K each, one member after another.
        rows: The number of rows of the inputs. Given them, every layer checks that the batch is
            still on axis 0.
        weights: Draws of every layer's weights (`draw_weights`), for `sampler="weights"`.
        noise: Where the noise comes from (`headstart.kernels.noise`).
        fold: Whether the net may take the input once and draw S samples of it.
        averaged: Whether one pass is made, and only an average over its rows and samples taken.
            Rows then need not share a sample's weights, nor need samples be independent.

    Yields:
        Whether the net takes the input once. If not, repeat it S times, as `draw` does.

    Raises:
        HeadstartError: A layer saw other rows than `rows` says, or S is no multiple of K.

    Example:
        >>> import torch, headstart as hs
        >>> model = hs.bayesianize(nn.Linear(3, 2))
        >>> with drawing(model, "mean"):
        ...     a, b = model(torch.ones(1, 3)), model(torch.ones(1, 3))
        >>> torch.equal(a, b)
        True
    """
    check_sampler(sampler, samples)
    layers = bayesian_layers(model)
    members = common_members(layers)
    each = _divide(samples, members)
    branching: Branching = {}
    if fold and sampler != "mean":
        branching = (
            branch_along_chain(layers, sampler, each, members)
            if averaged and rows is not None
            else {}
        )
        branching = branching if len(branching) > 0 else branch_at_entry(layers, each)
    if sampler == "weights" and weights is None and not averaged:
        weights = draw_weights(model, samples, noise or fresh)
    plan = ForwardPlan(sampler, each, rows, averaged, branching, weights, noise, members=members)
    with plan.installed(layers):
        yield plan.folds


def draw_weights(model: nn.Module, samples: int, noise: Noise = fresh) -> list[Tensor]:
    """Draws of every layer's weights, in the order of `bayesian_layers`.

    Args:
        model: A converted net.
        samples: How many draws, of all members of a mixture together.
        noise: Where the noise comes from.

    Returns:
        A tensor (S, units, size) for each layer, the draws of a member together.

    Raises:
        HeadstartError: S is no multiple of the number of members.
    """
    layers = bayesian_layers(model)
    members = common_members(layers)
    each = _divide(samples, members)
    return [sample_each(layer.posterior, each, members, noise) for layer in layers.values()]


def _divide(samples: int, members: int) -> int:
    """The samples of each member."""
    if samples % members:
        raise HeadstartError(
            f"The samples are divided among {members} members: "
            f"their number must be a multiple of that, not {samples}."
        )
    return samples // members


def draw(
    model: nn.Module,
    x: Any,
    samples: int = 1,
    sampler: str = "local",
    noise: Noise | None = None,
    averaged: bool = False,
) -> Any:
    """S draws of a net's output: the samples run folded into the batch, in one forward pass.

    Args:
        model: A converted net.
        x: The inputs of B rows: a tensor, or a dictionary or tuple of tensors that `forward` takes.
        samples: The number of samples S. The K members of a mixture have as many each: S is
            rounded up to a multiple of K.
        sampler: `"local"`, `"weights"` or `"mean"`, as in `drawing`.
        noise: Where the noise comes from (`headstart.kernels.noise`).
        averaged: Whether only an average over rows and samples is taken, as in `drawing`.

    Returns:
        The draws, (S, B, ...), those of a member together.

    Example:
        >>> import torch, headstart as hs
        >>> draw(hs.bayesianize(nn.Linear(3, 2)), torch.ones(5, 3), samples=7).shape
        torch.Size([7, 5, 2])
    """
    x = fitted(as_tensors(x), model)
    return forward(model, x, samples, sampler, noise=noise, averaged=averaged)


def forward(
    model: nn.Module,
    x: TensorTree,
    samples: int,
    sampler: str,
    weights: list[Tensor] | None = None,
    noise: Noise | None = None,
    averaged: bool = False,
    moments: Mapping[Posterior, KnownMoments] | None = None,
    functions: bool = True,
    layers: Layers | None = None,
) -> Any:
    """`draw`, with what has been computed before.

    Plans are tried in turn, until one fits: samples that branch along a chain of layers, samples
    that all branch where the input enters the net, the input repeated S times, one function after
    another. A net that stacks several batches on axis 0, as a siamese one does, takes one of the
    last two; one that does not cross its layers as it did when it was converted shares no draws.
    Where only the last layer is Bayesian, the body before it runs once.

    Args:
        model: A converted net.
        x: The inputs of B rows.
        samples: The number of samples S, rounded up to a multiple of the members'.
        sampler: `"local"`, `"weights"` or `"mean"`.
        weights: Draws of every layer's weights, where they are made already.
        noise: Where the noise comes from.
        averaged: Whether only an average over rows and samples is taken.
        moments: The moments that the KL has computed (`kl_and_moments`).
        functions: Whether draws by weights are to be functions of any row. Of a single row dense
            layers may else draw their outputs, which have the same law and cost less.
        layers: The net's `bayesian_layers`, where they are known already.

    Returns:
        The draws, (S, B, ...).

    Raises:
        HeadstartError: No plan fits: the net does not keep the batch on axis 0.
    """
    check_sampler(sampler, samples)
    tables = check_rows(model, x)
    layers = bayesian_layers(model) if layers is None else layers
    if sampler != "mean" and samples > 1 and not branch_at_entry(layers, 1):
        model, (x,) = after_body(model, [x])
        layers = bayesian_layers(model)
    members = common_members(layers)
    if is_whole(x):
        return _pass_by_pass(model, x, samples, sampler, weights, noise)
    each, known = -(-samples // members), {} if moments is None else moments
    request = ForwardRequest(
        *(layers, sampler, each, row_count(x), averaged, weights, noise),
        *(known, members, functions, tables),
    )
    kinds = (
        *(request.branched, request.single_row),
        *(request.folded, request.repeated, request.one_by_one),
    )
    return run_plans(model, layers, x, kinds)


def run_plans(
    model: nn.Module,
    layers: Layers,
    x: TensorTree,
    kinds: Sequence[Callable[[], Sequence[ForwardPlan]]],
) -> Any:
    """The draws of the first plans that fit the net, (S, B, ...).

    Args:
        model: A net.
        layers: Its layers that draw.
        x: The inputs of B rows.
        kinds: What makes the plans of each kind, to be tried in turn.

    Raises:
        HeadstartError: No plan fits: the net does not keep the batch on axis 0.
    """
    tried: list[ForwardPlan] = []
    for make in kinds:
        plans = make()
        draws = [plan.run(model, layers, x) for plan in plans]
        found = [each for each in draws if each is not None]
        if plans and len(found) == len(plans):
            return found[0] if len(found) == 1 else join_tensors(found)
        tried += plans
    raise PlanMisfit(*tried[-1].misfit)


def _pass_by_pass(
    model: nn.Module,
    x: TensorTree,
    samples: int,
    sampler: str,
    weights: list[Tensor] | None,
    noise: Noise | None,
) -> Any:
    """Draws of a net whose rows belong together: one pass for each sample."""
    layers = bayesian_layers(model)
    if common_members(layers) > 1:
        raise HeadstartError(
            "hs.whole inputs go through nets with one posterior, not through the members of a "
            "mixture: take one of them with hs.member(model, index)."
        )
    if sampler == "weights" and weights is None:
        weights = draw_weights(model, samples, noise or fresh)
    draws = []
    for number in range(1 if sampler == "mean" else samples):
        own = None if weights is None else [each[number : number + 1] for each in weights]
        plan = ForwardPlan(sampler, 1, weights=own, noise=noise)
        found = plan.run(model, layers, x)
        if found is None:
            raise PlanMisfit(*plan.misfit)
        draws.append(found)
    return join_tensors(draws)


def check_sampler(sampler: str, samples: int) -> None:
    """Refuse a sampler that there is not, and fewer samples than one.

    Args:
        sampler: What should be one of `SAMPLERS`.
        samples: The number of samples.

    Raises:
        HeadstartError: It is not, or there are too few.
    """
    if sampler not in SAMPLERS:
        raise unknown("sampler", sampler, SAMPLERS)
    if samples < 1:
        raise HeadstartError(f"At least one sample must be drawn, not {samples}.")


def check_outputs(f: Any) -> Tensor:
    """Draws as a likelihood reads them.

    Args:
        f: Draws of a net's outputs.

    Returns:
        The draws (S, B, K), in float32 where they had half precision.

    Raises:
        HeadstartError: They have other axes, or there are several tensors.
    """
    if not isinstance(f, Tensor):
        raise HeadstartError(
            f"The net gives several outputs ({', '.join(f.keys)}): name a likelihood for each, "
            "hs.Joint({...}), or let the net return one tensor."
        )
    if f.ndim != 3:
        raise HeadstartError(
            "A likelihood reads outputs of shape (rows, outputs); "
            f"the net gives (rows, {', '.join(map(str, f.shape[2:]))}). Where a row has a label at "
            "each of several positions, hs.PerPosition(likelihood, axis=) reads it."
        )
    return f.float() if f.dtype in (torch.float16, torch.bfloat16) else f
