"""`condition`: a posterior of the read-out for each of several draws of the layers below it.

A read-out that is independent of the layers below cannot follow them: whatever they draw, its
weights stay the same, and so their noise stays in the function, inside the data most of all.
Here `q(h, w) = q(h) p(w | h, data)`: S draws h_s of the layers below, and for each the exact
posterior of the read-out on its features. Its evidence lower bound,
`E_q(h) log p(data | h) − KL(q(h)‖p(h))`, is never below that of a read-out independent of h
(for Gaussian noise and the same prior; other likelihoods take a bounded number of steps).
Layers that were trained beside an independent read-out are too sure: all their noise was a loss.
One that follows them makes up for a part of it, so their variances are multiplied by the factor
that maximizes this bound.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from rich.progress import Progress
from torch import Tensor, nn

from headstart.batching import Data
from headstart.distributed.collectives import ProcessGroup, group_of
from headstart.distributed.fabric import Fabric
from headstart.errors import HeadstartError
from headstart.kernels.random_state import seeded
from headstart.likelihoods import Likelihood
from headstart.likelihoods.base import require_likelihood
from headstart.linalg.conjugate import Observations
from headstart.linalg.read_out import Moments
from headstart.network.members import separate
from headstart.predictive import Predictive, predict
from headstart.training.closed_form import best_hyperparameters, solve_at, targets
from headstart.training.hidden_draws import HiddenLayers, fix_hidden
from headstart.training.leverage import LeverageFlag, leverage
from headstart.training.natural_gradient import negative_bound, observe, step_up
from headstart.training.progress import progress_bar
from headstart.training.read_out import MAX_ROWS, MomentSums, ReadOut, find_read_out
from headstart.training.refine import replace_read_out_

FACTORS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)
"""What the variances of the layers below may be multiplied by."""
SEARCH_DRAWS = 8
"""Draws of which the factor is chosen."""
PRIOR_DRAWS = 4
"""Draws of which the prior variance of read-outs without a closed form is chosen."""
PRIOR_RATIO, MAX_PLACES, PRIOR_LOG_SD = 4.0, 5, 2.0
"""Steps of that variance, how many there are each way, and the sd of its logarithm a priori."""


@dataclass(frozen=True)
class Conditioned:
    """A mixture of nets: draws of the layers below the read-out, each with its own posterior of it.

    Args:
        nets: S Bayesian nets; only their read-outs are random.
        likelihood: of the labels, its noise the best for all of them.
        nelbo: the negative evidence lower bound.
        read_out_nelbo: its part without the KL of the layers below: for Gaussian noise the negative
            log evidence of the read-outs, on average.
        num_data: the rows of the data set.
        prior_var: the prior variance of the read-out; None where there is no single one.
        factor: what the variances of the layers below were multiplied by.
        seconds: that it took.
        max_leverage: the largest leverage of a row that is not called unlike the training data;
            None where `condition` was given no held-out rows.
    """

    nets: tuple[nn.Module, ...] = field(repr=False)
    likelihood: Likelihood
    nelbo: float
    read_out_nelbo: float
    num_data: int
    prior_var: float | None
    factor: float
    seconds: float
    max_leverage: float | None = None

    def predict(
        self,
        x: Any,
        samples: int = 128,
        *,
        seed: int | None = None,
        fabric: Fabric | None = None,
    ) -> Predictive:
        """The predictive distribution at `x`.

        Args:
            x: Inputs, a tensor or an array with rows on axis 0.
            samples: Draws of the weights, of every net as many; at least one of each.
            seed: Seeds the draws; None: the caller's random numbers.
            fabric: As in `hs.predict`: each rank predicts its shard of the rows, all return all.

        Returns:
            The predictive distribution of the rows; `unlike_training` says which of them are unlike
            the training data, where `condition` was given held-out rows.
        """
        each = max(1, samples // len(self.nets))
        draws: list[Tensor] = []
        with seeded(seed, *self.nets):
            for net in self.nets:
                found = predict(net, self.likelihood, x, each, fabric=fabric)
                draws.append(found.draws)
        unlike = None
        if self.max_leverage is not None:
            unlike = leverage(self, x, fabric=fabric) > self.max_leverage
        return Predictive(torch.cat(draws), found.likelihood, unlike_training=unlike)


@torch.no_grad()
def condition(
    model: nn.Module,
    likelihood: Likelihood,
    batches: Data,
    *,
    draws: int = 32,
    widen: bool = True,
    learn_prior: bool = True,
    held_out: Any = None,
    rows: int | None = None,
    num_data: int | None = None,
    seed: int = 0,
    progress: bool = True,
    fabric: Fabric | None = None,
) -> Conditioned:
    """Give each of several draws of the layers below the read-out its own exact posterior of it.

    Noise and prior variance maximize the mean of the log evidences, for Gaussian noise. Other
    likelihoods take natural-gradient steps for each draw; of prior variances that differ by a
    factor of 4 theirs has the best bound of four draws, less `½ (log v/v₀)² / 2²` for one that is
    not the given v₀. Of a mixture as many draws are those of each member, and the bound is the
    mean of the members'.

    Args:
        model: The Bayesian net, trained; it stays as it is.
        likelihood: The likelihood of its labels; it stays as it is.
        batches: The training rows, as in `fit`.
        draws: How many draws of the layers below, rounded up to a multiple of the members.
        widen: Whether the variances of the layers below are multiplied by the factor between 0.5
            and 8 that maximizes the bound.
        learn_prior: Whether the read-out's prior variance is set too, where it has a single one.
        held_out: Inputs of at least 99 rows that the net was not trained on: predictions then say
            of each row whether it is unlike the training data, of rows like these ones of 1 %.
        rows: A bound on the rows read; None for 262 144.
        num_data: The number of training rows, where a loader's length does not tell.
        seed: Seeds the draws; the caller's random numbers come back afterwards.
        progress: Whether to show a progress bar. Ctrl-C ends the work, and the model stays as it
            is.
        fabric: A launched `lightning.fabric.Fabric`: each rank draws the features of a shard of the
            rows, the statistics are summed over ranks, and all return the same, that of one
            process.

    Returns:
        A mixture of nets that predicts.

    Raises:
        HeadstartError: The net does not end in a linear read-out, there is not a single draw, or
            there are held-out rows but too few.

    Example:
        >>> import headstart as hs
        >>> x = torch.linspace(-2, 2, 200).unsqueeze(1)
        >>> model, lik = hs.bayesianize(hs.models.create("mlp-1x50", 1, 1)), hs.Gaussian()
        >>> _ = hs.initialize_(model, "iblm", lik, (x, x.sin()))
        >>> conditioned = hs.condition(model, lik, (x, x.sin()), draws=4, progress=False)
        >>> conditioned.predict(x[:3], seed=0).std.shape
        torch.Size([3, 1])
    """
    start = time.perf_counter()
    require_likelihood(likelihood)
    if draws < 1:
        raise HeadstartError(f"At least one draw of the layers below is needed, not {draws}.")
    group = group_of(fabric, model)
    with seeded(seed, model), progress_bar(progress and group.is_first) as bar:
        read_out = find_read_out(model, likelihood, batches, num_data, group)
        limit = min(read_out.num_data, MAX_ROWS if rows is None else rows)
        below = HiddenLayers.of(separate(model), read_out.name, draws)
        mixture = _Mixture(likelihood, batches, num_data, group, below, limit, learn_prior, bar)
        factor = mixture.best_factor() if widen and below.can_widen else 1.0
        solved = mixture.solved(factor, len(below.draws))
        group.broadcast_(*solved.nets, solved.heads[0].likelihood)
    prior = solved.heads[0].layer.prior
    var = None if prior.with_variance(1.0) is None else 1 / prior.mean_precision()
    found = Conditioned(
        solved.nets,
        solved.heads[0].likelihood,
        solved.bound + below.kl_at(factor),
        solved.bound,
        read_out.num_data,
        var,
        factor,
        time.perf_counter() - start,
    )
    if held_out is None:
        return found
    flag = LeverageFlag.calibrate(found, held_out, fabric=fabric)
    return replace(found, max_leverage=flag.threshold)


class _Solved(NamedTuple):
    """Nets with their read-outs solved, and the read-outs' part of the negative bound."""

    nets: tuple[nn.Module, ...]
    heads: list[ReadOut]
    bound: float


@dataclass(frozen=True)
class _Mixture:
    """What `condition` was asked for."""

    likelihood: Likelihood
    batches: Data
    num_data: int | None
    group: ProcessGroup
    below: HiddenLayers
    rows: int
    learn_prior: bool
    bar: Progress

    def best_factor(self) -> float:
        """The factor on the variances below that maximizes the bound, up the hill from 1."""
        # Of each member as many.
        draws = -(-SEARCH_DRAWS // self.below.members) * self.below.members

        def value(place: int) -> float:
            return self.solved(FACTORS[place], draws).bound + self.below.kl_at(FACTORS[place])

        return FACTORS[lowest(value, FACTORS.index(1.0), 0, len(FACTORS) - 1)]

    def solved(self, factor: float, draws: int) -> _Solved:
        """The nets of the first draws, with their read-outs solved."""
        drawn = self.below.draws[:draws]
        nets = tuple(fix_hidden(each, math.sqrt(factor)) for each in drawn)
        lik = copy.deepcopy(self.likelihood)
        # It was found for another posterior.
        lik.forget_predictive_noise_()
        data = self.batches, self.num_data, self.group
        heads = [find_read_out(net, lik, *data) for net in nets]
        solve = _solve_each if lik.noise_model(heads[0].outputs) is not None else _step_each
        task = self.bar.add_task(f"read-outs, {factor:g} × variance", total=len(heads))
        bound = solve(heads, self.rows, self.learn_prior, lambda: self.bar.advance(task))
        self.bar.remove_task(task)
        # Which factor comes next depends on it.
        return _Solved(nets, heads, heads[0].of_first(bound))


def _solve_each(
    heads: Sequence[ReadOut], rows: int, learn_prior: bool, advance: Callable[[], None]
) -> float:
    """Gaussian noise: every read-out in closed form, noise and prior variance shared."""
    first = heads[0]
    lik = first.likelihood
    noise = lik.noise_model(first.outputs)
    assert noise is not None
    each = [_moments_of_draw(head, rows, advance) for head in heads]
    best = best_hyperparameters(each, noise, [head.layer for head in heads], learn_prior)
    for head, moments in zip(heads, each, strict=True):
        replace_read_out_(head.layer, *solve_at(best, moments, noise, head.layer))
    # The noise of the bound is that of predictions too: no variance of the layers below is in it.
    lik.set_noise_(best.log_noise, best.log_noise)
    return float(each[0].rows * noise.scale.log().sum()) - best.bound


def _moments_of_draw(head: ReadOut, rows: int, advance: Callable[[], None]) -> Moments:
    sums = MomentSums(head.groups)
    for part in head.read(rows, 1):
        sums.add(part.x, targets(head, part))
    advance()
    return sums.total(head.num_data, head.group.rows)


def _step_each(
    heads: Sequence[ReadOut], rows: int, learn_prior: bool, advance: Callable[[], None]
) -> float:
    """Any likelihood: every read-out by natural-gradient steps, the prior variance shared."""
    seen = [observe(head, rows, once=True).fit for head in heads[:PRIOR_DRAWS]]
    if learn_prior and heads[0].layer.prior.with_variance(1.0) is not None:
        _share_prior_(heads, seen)
    total = 0.0
    for number, head in enumerate(heads):
        known = number < len(seen)
        total += _step_up_(head, seen[number] if known else observe(head, rows, once=True).fit)
        advance()
    return total / len(heads)


def _step_up_(head: ReadOut, seen: Observations) -> float:
    """Solve a read-out with its prior as it is; its negative bound."""
    found = step_up(seen, head.layer, False, head.num_data)
    replace_read_out_(head.layer, found.gaussian, found.prior)
    return negative_bound(seen, head.layer)


def _share_prior_(heads: Sequence[ReadOut], seen: Sequence[Observations]) -> None:
    """Give all read-outs the prior variance of the best mean bound of the first, up the hill.

    The logarithm of the variance has a normal prior around the given one: where labels say little,
    the bound alone would take the variance to 0, and all doubt with it.
    """
    given = heads[0].layer.prior
    var = 1 / given.mean_precision()

    def share_(place: int) -> None:
        for head in heads:
            prior = given.with_variance(var * PRIOR_RATIO**place)
            assert prior is not None
            head.layer.prior = prior

    def value(place: int) -> float:
        share_(place)
        pairs = zip(heads, seen, strict=False)
        bounds = [_step_up_(head, observations) for head, observations in pairs]
        away = place * math.log(PRIOR_RATIO) / PRIOR_LOG_SD
        return sum(bounds) / len(bounds) + 0.5 * away**2

    share_(lowest(value, 0, -MAX_PLACES, MAX_PLACES))


def lowest(value: Callable[[int], float], start: int, first: int, last: int) -> int:
    """The place of the lowest value, down the hill from `start`.

    Args:
        value: asked once for each place on the way.
        start: where to begin.
        first: the first place there is.
        last: the last one.

    Example:
        >>> lowest(lambda place: (place - 3) ** 2, 0, -5, 5)
        3
    """
    known = cache(value)
    place = start
    step = 1 if start < last and known(start + 1) < known(start) else -1
    while first <= place + step <= last and known(place + step) < known(place):
        place += step
    return place
