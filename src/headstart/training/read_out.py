"""The read-out of a net, and draws of the features that reach it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headstart.batching import Batches, Data
from headstart.distributed.collectives import SINGLE_PROCESS, ProcessGroup, Value
from headstart.distributed.rows import LOCAL_ROWS, AllRows
from headstart.distributed.sharding import FullShard, Shard, ShardedBatch
from headstart.errors import HeadstartError
from headstart.initializers.layer_inputs import LayerInputs
from headstart.initializers.walk import count_outputs, execution_order, is_linear_head
from headstart.kernels.random_state import kept_random_state
from headstart.likelihoods import Likelihood
from headstart.linalg.affine import groups
from headstart.linalg.read_out import Moments
from headstart.network.layer import Bayesian, count_members
from headstart.network.members import member
from headstart.network.probe import local_is_approximate

MAX_DRAWS = 16
"""Draws of the layers below for each row, where rows are few."""
ROW_DRAWS = 2**15
"""Rows times draws that are worth reading: with more rows there is one draw of each."""
MAX_ROWS = 2**18
"""Rows of the data that are read; they stand for the others."""
DRAW_BUDGET = 2**22
"""Numbers in the features that are drawn at once."""
MAX_COVARIANCE = 2**27
"""Numbers in the covariances of a read-out."""


class FeatureDraws(NamedTuple):
    """S draws of the features of this rank's rows of a part of the data."""

    x: Tensor
    """(G, S, N, D), the units of each of G groups seeing the same; members have other groups."""
    offset: Tensor
    """What the net adds to the read-out, (S, N, U), the units of one member after another."""
    y: Tensor
    """The labels, as the likelihood's `check` returns them."""
    shard: Shard
    """Which rows of the part these are."""

    def gathered(self) -> FeatureDraws:
        """All rows of the part, in order, on every rank."""
        x = self.shard.gather(self.x.movedim(2, 0)).movedim(0, 2)
        offset = self.shard.gather(self.offset.transpose(0, 1)).transpose(0, 1)
        return FeatureDraws(x, offset, self.shard.gather(self.y), FullShard(self.shard.total))


@dataclass(frozen=True)
class ReadOut:
    """The last Bayesian layer of a net whose output is the net's, with the data that reaches it.

    The read-outs of a mixture are one with more units: those of a member see features of its own.

    Args:
        name: of the layer.
        layer: the layer.
        outputs: K, the outputs of the net.
        members: of the mixture; 1 for a single posterior.
        below: whether layers below it are random.
        inputs: what reaches the layer.
        likelihood: what checks the labels.
    """

    name: str
    layer: Bayesian
    outputs: int
    members: int
    below: bool
    inputs: LayerInputs
    likelihood: Likelihood

    @property
    def groups(self) -> int:
        """Groups of units that see the same features, those of all members."""
        return self.members * groups(self.layer.op)

    @property
    def num_data(self) -> int:
        """The rows of the data set."""
        return self.inputs.batches.num_data

    @property
    def group(self) -> ProcessGroup:
        """The processes that hold the rows together."""
        return self.inputs.batches.group

    def of_first(self, value: Value) -> Value:
        """The first rank's value: others have found the same, to rounding.

        Args:
            value: this rank's.
        """
        return self.group.broadcast(value)

    def draws(self, rows: int) -> int:
        """How many draws each of so many rows gets.

        Args:
            rows: the rows that are read.
        """
        return max(1, min(MAX_DRAWS, ROW_DRAWS // rows)) if self.below else 1

    def read(self, rows: int, few: int, first: int = 0) -> Iterator[FeatureDraws]:
        """One pass of at most `rows` rows, in parts of bounded memory; of each this rank's shard.

        Args:
            rows: how many rows, of all ranks together.
            few: the draws of each.
            first: so many rows get `MAX_DRAWS` draws.
        """
        done = 0
        for batch in self.inputs.chunks(rows):
            draws = MAX_DRAWS if self.below and done < first else few
            width = groups(self.layer.op) * self.layer.posterior.size
            for part in batch.split(max(1, DRAW_BUDGET // (draws * width))):
                y = self.likelihood.check(part.y, self.outputs)
                each = [self._draw(index, part, draws) for index in range(self.members)]
                x, offset = zip(*each, strict=True)
                yield FeatureDraws(torch.cat(x), torch.cat(offset, -1), y, part.shard)
            done += batch.shard.total
        # Ranks that shuffle rows of their own have drawn other numbers.
        self.group.synchronize_rng_()

    def _draw(self, index: int, part: ShardedBatch, draws: int) -> tuple[Tensor, Tensor]:
        """Features (G, S, N, D) and offsets (S, N, K) of one member."""
        # The same random numbers for each of them: members that are equal stay so.
        same = kept_random_state(self.inputs.model, enabled=index < self.members - 1)
        with same, member(self.inputs.model, index):
            pairs = [self.inputs.head_rows(self.layer, part) for _ in range(draws)]
        x, offset = (torch.stack(each) for each in zip(*pairs, strict=True))
        return x.transpose(0, 1), offset


def find_read_out(
    model: nn.Module,
    likelihood: Likelihood,
    data: Data,
    num_data: int | None = None,
    group: ProcessGroup = SINGLE_PROCESS,
) -> ReadOut:
    """The read-out of a net.

    Args:
        model: a net from `bayesianize`.
        likelihood: the likelihood of its labels.
        data: a loader, or a pair of arrays.
        num_data: the number of rows, where the data cannot tell it.
        group: the processes that hold the rows together.

    Raises:
        HeadstartError: where the net does not end in a Bayesian layer, or its law is not Gaussian.
    """
    if None not in likelihood.heads():
        raise HeadstartError(
            "refine_ and condition solve one read-out, and hs.Joint has several heads: train them "
            "together with fit and without refine, from initialize_, which solves one for each."
        )
    if not likelihood.is_plain:
        raise HeadstartError(
            "The read-out is solved for one label of each row and nothing beside it, not those of "
            f"{likelihood.name}: train with fit alone."
        )
    batches = Batches(data, batch_size=1024, num_data=num_data, like=model, group=group)
    x = next(batches.take(2))[0]
    group.synchronize_rng_()
    members = count_members(model)
    # Of a mixture one member says it for all: they differ by their weights alone.
    with member(model, 0):
        *below, (name, layer) = execution_order(model, x).items()
        outputs = count_outputs(model, x)
        linear = layer.may_give(outputs) and is_linear_head(model, layer, x)
        sampler = "weights" if local_is_approximate(model, x) else "local"
    # Found on rows of a rank's own, and to be the same everywhere.
    linear, sampler = group.broadcast((linear, sampler))
    q = layer.posterior
    if not linear:
        raise HeadstartError(
            "The net's output is not a fixed multiple, sum or mean of that of its last Bayesian "
            f"layer {name!r} (plus what does not depend on it), so there is no linear read-out to "
            "solve; let the net end in that layer: the likelihood applies the link function."
        )
    if q.law_is_local:
        raise HeadstartError(
            f"The posterior of the last layer {name!r} is {q.name}, which has no density; convert "
            "the net with another family for that layer."
        )
    if q.units * q.size**2 > MAX_COVARIANCE:
        raise HeadstartError(
            f"The covariances of the last layer {name!r} would hold {q.units * q.size**2:,} "
            f"numbers ({q.units} units of {q.size} weights), more than {MAX_COVARIANCE:,}; "
            "let a narrower layer come before it."
        )
    inputs = LayerInputs(model, batches, sampler)
    return ReadOut(name, layer, outputs, members, bool(below), inputs, likelihood)


class MomentSums:
    """Sums of `Moments` over parts of the data.

    Args:
        groups: groups of units that see the same features.
    """

    def __init__(self, groups: int) -> None:
        self.groups, self.rows = groups, 0
        self.sums: list[Tensor] = []

    def add(self, x: Tensor, t: Tensor) -> None:
        """Add rows, the mean over their draws.

        Args:
            x: features, (G, S, N, D).
            t: targets, less what the net adds, (S, N, U).
        """
        draws = x.shape[1]
        flat = x.flatten(1, 2)
        targets = t.flatten(0, 1).T.unflatten(0, (self.groups, -1))
        found = [flat.mT @ flat, targets @ flat, targets.square().sum(-1)]
        found = [part / draws for part in found]
        self.sums = [a + b for a, b in zip(self.sums, found, strict=True)] if self.sums else found
        self.rows += t.shape[1]

    def total(self, num_data: int, rows: AllRows = LOCAL_ROWS) -> Moments:
        """The moments of `num_data` rows, for which those that were added stand.

        Args:
            num_data: the rows of the data set.
            rows: sums over all rows, of which those that were added may be a shard.
        """
        # Few numbers in double precision: the rest is done where the likelihood's noise is.
        gram, moment, square = (rows.sum(part).cpu() for part in self.sums)
        read = rows.total(self.rows)
        return Moments(gram, moment, square, float(read)).scaled(num_data / read)
