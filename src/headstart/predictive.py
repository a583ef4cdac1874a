"""Predictions with their uncertainty, taken apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from headstart.batching import Batches, Data
from headstart.distributed.collectives import ProcessGroup, group_of
from headstart.distributed.fabric import Fabric
from headstart.distributed.sharding import (
    Shard,
    ShardedBatch,
    concatenate,
    join_batches,
    rebalance,
    shard_common,
)
from headstart.errors import HeadstartError
from headstart.kernels.random_state import kept_random_state, seeded
from headstart.likelihoods import Likelihood
from headstart.likelihoods.base import require_likelihood
from headstart.likelihoods.predictions import Predictive, score_summaries
from headstart.nested import (
    Nested,
    TensorTree,
    is_whole,
    join_tensors,
    map_each,
    parts_of,
)
from headstart.network import chunks
from headstart.network.chunks import draw_in_chunks
from headstart.network.forward import forward
from headstart.network.inputs import (
    as_tensors,
    check_finite,
    is_array,
    read_inputs,
)
from headstart.network.layer import count_members
from headstart.network.net_errors import cannot_take, where_refused
from headstart.network.placement import place_inputs
from headstart.network.probe import evaluating, local_is_approximate

__all__ = ["Predictive", "evaluate", "predict"]
MAX_NUMBERS = 2**25
"""Numbers in the draws that `evaluate` holds at a time: rows × samples × outputs."""


@torch.no_grad()
def predict(
    model: nn.Module,
    likelihood: Likelihood,
    x: Any,
    samples: int = 128,
    *,
    sampler: str | None = None,
    seed: int | None = None,
    flag: Callable[[Any], Tensor] | None = None,
    fabric: Fabric | None = None,
) -> Predictive:
    """The predictive distribution at `x`, by draws of the weights, in chunks of bounded memory.

    The model predicts in evaluation mode, and is put back into its own afterwards.

    Args:
        model: The Bayesian net.
        likelihood: The likelihood of its labels.
        x: Inputs with rows on axis 0: a tensor or an array, a dictionary or tuple of them, or a
            DataLoader of such inputs, whose labels are left aside where it has any.
        samples: Draws of the weights. The members of a mixture have as many each, so that the
            number is rounded up to a multiple of theirs.
        sampler: `local` draws pre-activations row by row, `weights` draws whole functions, `mean`
            draws nothing. None is `weights` where a layer uses its weights more than once on a row
            (convolutions, sequences, tied layers), and `local` otherwise. A single row needs no
            whole functions: its dense layers then draw their outputs, by the same law and faster.
        seed: Seeds the draws, and the caller's random numbers come back afterwards; None: the
            caller's.
        flag: What says of rows whether they are unlike the training data, such as a `LeverageFlag`;
            the answer is `Predictive.unlike_training`.
        fabric: A launched `lightning.fabric.Fabric`. Every rank has all of `x`, predicts its shard
            of the rows and returns all of them, in order.

    Returns:
        The predictive distribution of the rows; training the model further does not change it.

    Raises:
        HeadstartError: `x` is not finite, the net cannot take it, or `samples` is below 1.

    Example:
        >>> import headstart as hs
        >>> model = hs.bayesianize(nn.Linear(3, 1))
        >>> pred = predict(model, hs.Gaussian(), torch.randn(5, 3), seed=0)
        >>> pred.mean.shape, pred.interval(0.9)[0].shape
        (torch.Size([5, 1]), torch.Size([5, 1]))
    """
    group, x = group_of(fabric, model), _all_inputs(x)
    check_finite(x, "x")
    rows = len(x)
    # Every rank needs a row.
    if 0 < rows < group.size:
        last = x[-1:]
        x = join_tensors([x, *[last] * (group.size - rows)])
    shard = shard_common(group, len(x))
    found = _predict(
        model, likelihood, place_inputs(shard.of(x), model), samples, sampler, seed, group, shard
    )
    unlike = None if flag is None else flag(x[:rows])
    draws = map_each(lambda part: part[:, :rows], found.draws)
    return replace(found, draws=draws, unlike_training=unlike)


def _all_inputs(x: Any) -> TensorTree:
    """All rows that are to be predicted."""
    is_loader = isinstance(x, Iterable) and not isinstance(x, (tuple, list, Mapping, Nested))
    if not is_loader or is_array(x):
        return as_tensors(x)
    parts = [read_inputs(batch, f"Batch {number}") for number, batch in enumerate(x)]
    if not parts:
        raise HeadstartError("The batches are empty: there is not a single row to predict.")
    return join_tensors(parts)


def _predict(
    model: nn.Module,
    likelihood: Likelihood,
    x: TensorTree,
    samples: int,
    sampler: str | None,
    seed: int | None,
    group: ProcessGroup,
    shard: Shard,
) -> Predictive:
    """All rows, from this rank's rows `x`."""
    require_likelihood(likelihood)
    seed = group.common_seed(seed)
    with seeded(seed, x), evaluating(model):
        # Somebody who asks for functions may compare those of one row with those of another.
        functions = sampler is not None or not group.is_alone
        try:
            sampler = group.broadcast(
                sampler or ("weights" if local_is_approximate(model, x) else "local")
            )
            # Rows are drawn one by one; functions must be the same everywhere.
            if sampler == "local":
                group.separate_rng_()
            given = draw_in_chunks(model, x, samples, sampler, functions)
            f, layout = likelihood.read(given), likelihood.layout(given)
        # An error of torch's own is most often the wrong number of features.
        except RuntimeError as error:
            raise cannot_take(x, where_refused(model, error)) from error
    draws = map_each(lambda part: shard.gather(part.movedim(1, 0)).movedim(0, 1), f)
    return Predictive(draws, likelihood.for_prediction(), count_members(model), layout)


def evaluate(
    model: nn.Module,
    likelihood: Likelihood,
    data: Data,
    samples: int = 128,
    *,
    sampler: str | None = None,
    seed: int | None = None,
    fabric: Fabric | None = None,
) -> dict[str, float]:
    """The likelihood's metrics of the predictive distribution, in bounded memory.

    Rows are read and predicted in parts; of each the metrics keep a few numbers of every row, and
    no draws. Only metrics of one's own (`hs.register_metric`) need the draws of all rows at once.

    Args:
        model: The Bayesian net.
        likelihood: The likelihood of its labels.
        data: As in `fit`: all rows at once, or a loader of batches.
        samples: Draws of the weights.
        sampler: As in `predict`.
        seed: As in `predict`.
        fabric: A launched `lightning.fabric.Fabric`: the metrics are those of the rows of all
            ranks.

    Returns:
        Metrics by their names in `headstart.metrics.METRICS`.

    Raises:
        HeadstartError: There are no rows, or labels and outputs do not match.

    Example:
        >>> import headstart as hs
        >>> model, x = hs.bayesianize(nn.Linear(3, 1)), torch.randn(50, 3)
        >>> sorted(evaluate(model, hs.Gaussian(), (x, x.sum(1)), seed=0))
        ['coverage_95', 'expected_nll', 'mnll', 'rmse']
    """
    samples = chunks.check_samples(samples)
    group = group_of(fabric, model)

    def predicted(part: ShardedBatch) -> tuple[Predictive, Any]:
        x, y, shard = rebalance(group, part)
        with torch.no_grad():
            found = _predict(model, likelihood, x, samples, sampler, seed, group, shard)
        return found, map_each(shard.gather, y)

    parts = _read_in_parts(model, data, samples, group)
    part, following = next(parts), next(parts, None)
    found, y = predicted(part)
    if following is None:
        return group.broadcast(found.evaluate(y))
    first = found.summarize(y)
    if first is None:
        found, y = predicted(concatenate([part, following, *parts]))
        return group.broadcast(found.evaluate(y))
    summaries = [first]
    for part in chain([following], parts):
        found, y = predicted(part)
        following_summary = found.summarize(y)
        if following_summary is None:
            raise HeadstartError(
                f"{type(likelihood).__name__}.summarize gave None for some rows and not for "
                "others; give a summary of every row, or of none."
            )
        summaries.append(following_summary)
    return group.broadcast(score_summaries(found.likelihood, summaries))


def _read_in_parts(
    model: nn.Module, data: Data, samples: int, group: ProcessGroup
) -> Iterator[ShardedBatch]:
    """All rows, so many at a time that their draws are at most `MAX_NUMBERS` numbers."""
    batches = Batches(
        data, batch_size=chunks.MAX_PASS_ROWS, shuffle=False, num_data=0, like=model, group=group
    )
    read: Iterator[ShardedBatch] = batches.shards()
    if not group.is_alone:
        with kept_random_state(model):
            # A loader that shuffles must do so alike.
            group.synchronize_rng_()
            every = list(read)
        total = sum(batch.shard.total for batch in every)
        if total < group.size:
            raise HeadstartError(
                f"There are {group.size} ranks but {total} rows to evaluate; use fewer ranks."
            )
        read = iter(every)
    first = next(read)
    limit = MAX_NUMBERS // max(1, samples * group.broadcast(_numbers_of_row(model, first.padded)))
    return join_batches(chain([first], read), max(group.size, limit), group.size)


def _numbers_of_row(model: nn.Module, x: TensorTree) -> int:
    """How many numbers the net gives for a row."""
    if is_whole(x):
        return 0
    with torch.no_grad(), evaluating(model):
        return sum(part.numel() for part in parts_of(forward(model, x[:1], 1, "mean")))
