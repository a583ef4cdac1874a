"""Predictions with their uncertainty, taken apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from headstart import metrics
from headstart.batching import Batches, Data
from headstart.distributed.collectives import ProcessGroup, group_of
from headstart.distributed.fabric import Fabric
from headstart.distributed.sharding import Shard, concatenate, rebalance, shard_common
from headstart.errors import HeadstartError
from headstart.likelihoods import Likelihood
from headstart.nested import TensorTree, join_tensors, map_each, shapes_of
from headstart.network import chunks
from headstart.network.chunks import draw_in_chunks
from headstart.network.forward import check_outputs
from headstart.network.inputs import (
    as_tensors,
    check_finite,
    is_array,
    place_inputs,
    read_inputs,
    to_tensor,
)
from headstart.network.layer import count_members
from headstart.network.probe import evaluating, local_is_approximate


@dataclass(frozen=True, repr=False)
class Predictive:
    """The predictive distribution of B rows, `p(y) = E_q p(y | weights)`, by S draws.

    Variances add up, `std² = aleatoric_std² + epistemic_std²`: noise in y, and doubt about the
    weights. Of a mixture, `epistemic_std² = within_members_std² + between_members_std²`: doubt
    within each member, and their disagreement.

    Args:
        draws: Draws of the net's K outputs, (S, B, K).
        likelihood: What the outputs say of the labels.
        members: The number M of members; each has S / M of the draws, one after another.

    Example:
        >>> import headstart as hs
        >>> pred = Predictive(torch.zeros(16, 3, 1), hs.Gaussian(4.0, learn_noise=False))
        >>> pred.std.flatten(), pred.epistemic_std.flatten()
        (tensor([2., 2., 2.]), tensor([0., 0., 0.]))
    """

    draws: Tensor
    likelihood: Likelihood
    members: int = 1

    def __repr__(self) -> str:
        samples, rows, outputs = self.draws.shape
        words = f"{rows} rows and {outputs} outputs by {samples} draws, {self.likelihood.name}"
        return f"<Predictive of {words}>"

    @property
    def mean(self) -> Tensor:
        """`E[y]`, (B, K); for classification the class probabilities."""
        return self.likelihood.mean(self.draws).mean(0)

    @property
    def std(self) -> Tensor:
        """The predictive standard deviation, (B, K)."""
        return (self._aleatoric() + self._epistemic()).sqrt()

    @property
    def epistemic_std(self) -> Tensor:
        """The standard deviation of `E[y | weights]`, (B, K): what more data would take away."""
        return self._epistemic().sqrt()

    @property
    def aleatoric_std(self) -> Tensor:
        """The standard deviation of the noise in y, (B, K): what no data takes away."""
        return self._aleatoric().sqrt()

    @property
    def probs(self) -> Tensor:
        """Class probabilities, (B, classes)."""
        return self.likelihood.probs(self.draws).mean(0)

    @property
    def entropy(self) -> Tensor:
        """The entropy of `probs` in nats, (B,): all the uncertainty about the class."""
        return metrics.entropy(self.probs)

    @property
    def mutual_information(self) -> Tensor:
        """The epistemic part of `entropy`, (B,): less the mean entropy given the weights."""
        return metrics.mutual_information(self.likelihood.probs(self.draws))

    @property
    def member_mean(self) -> Tensor:
        """`E[y]` by each member of a mixture, (M, B, K)."""
        return self._by_member(self.likelihood.mean).mean(1)

    @property
    def within_members_std(self) -> Tensor:
        """The part of `epistemic_std` within the members, (B, K)."""
        whole = self.epistemic_std.square() - self.between_members_std.square()
        return whole.clamp_min(0.0).sqrt()

    @property
    def between_members_std(self) -> Tensor:
        """The standard deviation of the members' means, (B, K): the rest of `epistemic_std`.

        What the finite number of draws adds to the variance of `member_mean` is taken off.
        """
        means = self._by_member(self.likelihood.mean)
        draws = means.shape[1]
        by_chance = means.var(1, correction=min(1, draws - 1)).mean(0) / draws
        share = (len(means) - 1) / len(means)
        return (means.mean(1).var(0, correction=0) - share * by_chance).clamp_min(0.0).sqrt()

    @property
    def mutual_information_between(self) -> Tensor:
        """The part of `mutual_information` between the members, (B,): less that within them."""
        return metrics.mutual_information(self._by_member(self.likelihood.probs).mean(1))

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """The central interval of y.

        Args:
            level: The probability that y lies in it, between 0 and 1.

        Returns:
            Its lower and its upper end, each (B, K).

        Raises:
            HeadstartError: The level is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise HeadstartError(f"An interval's level lies between 0 and 1, not {level}.")
        lower = self.likelihood.quantile(self.draws, (1 - level) / 2)
        return lower, self.likelihood.quantile(self.draws, (1 + level) / 2)

    def log_prob(self, y: Any) -> Tensor:
        """The log predictive density of labels, `log E_q p(y)`.

        Args:
            y: A label for each row.

        Returns:
            The density's logarithm for each row, (B,).

        Raises:
            HeadstartError: These are not labels of the likelihood's, or not B of them.
        """
        return self.likelihood.log_predictive(self.draws, self._labels(y))

    def evaluate(self, y: Any) -> dict[str, float]:
        """The likelihood's metrics, and those of one's own (`hs.register_metric`).

        Args:
            y: The true label of each row.

        Returns:
            Metrics by their names in `headstart.metrics.METRICS`.

        Raises:
            HeadstartError: These are not labels of the likelihood's, or not B of them.
        """
        labels = self._labels(y)
        own = {name: of(self, labels) for name, of in metrics.OWN_METRICS.items()}
        scores = self.likelihood.evaluate(self.draws, labels)
        return scores | {name: float(value) for name, value in own.items() if value is not None}

    def _labels(self, y: Any) -> Tensor:
        y = to_tensor(y, "y").to(self.draws.device)
        if len(y) != self.draws.shape[1]:
            raise HeadstartError(
                f"There are {self.draws.shape[1]} predictions but {len(y)} labels."
            )
        return self.likelihood.check(y, self.draws.shape[-1])

    def _by_member(self, of: Callable[[Tensor], Tensor]) -> Tensor:
        """A function of the draws, (M, S / M, B, K)."""
        return of(self.draws).unflatten(0, (self.members, -1))

    def _aleatoric(self) -> Tensor:
        return self.likelihood.variance(self.draws).mean(0)

    def _epistemic(self) -> Tensor:
        return self.likelihood.mean(self.draws).var(0, correction=0)


@torch.no_grad()
def predict(
    model: nn.Module,
    likelihood: Likelihood,
    x: Any,
    samples: int = 128,
    *,
    sampler: str | None = None,
    seed: int | None = None,
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
    return found if rows == len(x) else replace(found, draws=found.draws[:, :rows])


def _all_inputs(x: Any) -> TensorTree:
    """All rows that are to be predicted."""
    is_loader = isinstance(x, Iterable) and not isinstance(x, (tuple, list, Mapping))
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
    devices = [x.device] if x.device.type == "cuda" else []
    seed = group.common_seed(seed)
    with torch.random.fork_rng(devices, enabled=seed is not None), evaluating(model):
        if seed is not None:
            torch.manual_seed(seed)
        # Somebody who asks for functions may compare those of one row with those of another.
        functions = sampler is not None or not group.is_alone
        try:
            sampler = group.broadcast(
                sampler or ("weights" if local_is_approximate(model, x) else "local")
            )
            # Rows are drawn one by one; functions must be the same everywhere.
            if sampler == "local":
                group.separate_rng_()
            f = check_outputs(draw_in_chunks(model, x, samples, sampler, functions))
        # An error of torch's own is most often the wrong number of features.
        except RuntimeError as error:
            raise HeadstartError(
                f"The net cannot take inputs of shape {shapes_of(x)}: {error}"
            ) from error
    draws = map_each(lambda part: shard.gather(part.movedim(1, 0)).movedim(0, 1), f)
    return Predictive(draws, likelihood.for_prediction(), count_members(model))


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
    """The likelihood's metrics of the predictive distribution.

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
    group = group_of(fabric, model)
    data = Batches(
        data, batch_size=chunks.MAX_PASS_ROWS, shuffle=False, num_data=0, like=model, group=group
    )
    with torch.random.fork_rng([], enabled=not group.is_alone):
        # A loader that shuffles must do so alike.
        group.synchronize_rng_()
        batch = concatenate(list(data.shards()))
    if batch.shard.total < group.size:
        raise HeadstartError(
            f"There are {group.size} ranks but {batch.shard.total} rows to evaluate; "
            "use fewer ranks."
        )
    x, y, shard = rebalance(group, batch)
    with torch.no_grad():
        found = _predict(model, likelihood, x, samples, sampler, seed, group, shard)
    return group.broadcast(found.evaluate(map_each(shard.gather, y)))
