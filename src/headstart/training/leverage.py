"""The leverage of rows in a read-out, and a flag for rows that are unlike the training data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headstart.batching import Batches
from headstart.distributed.sharding import FullShard, ShardedBatch
from headstart.errors import HeadstartError
from headstart.initializers.layer_inputs import LayerInputs
from headstart.initializers.walk import execution_order
from headstart.network.inputs import check_finite, to_tensor
from headstart.network.probe import local_is_approximate
from headstart.training.conditional import Conditioned

PASS_ROWS = 4096
"""Rows that go through the net at once."""


@torch.no_grad()
def leverage(conditioned: Conditioned, x: Any) -> Tensor:
    """`φᵀ Σ φ` of each row: the variance of the read-out at its features φ, (B,).

    The largest over outputs, the mean over draws of the layers below. It is small where training
    rows were, and grows away from them.

    Args:
        conditioned: What `condition` returned.
        x: Inputs, a tensor or an array with rows on axis 0.

    Example:
        >>> import headstart as hs
        >>> x = torch.linspace(-2, 2, 200).unsqueeze(1)
        >>> model, lik = hs.bayesianize(hs.models.create("mlp-1x50", 1, 1)), hs.Gaussian()
        >>> _ = hs.initialize_(model, "iblm", lik, (x, x.sin()))
        >>> found = leverage(hs.condition(model, lik, (x, x.sin())), [[0.0], [20.0]])
        >>> bool(found[1] > 10 * found[0])
        True
    """
    rows = to_tensor(x)
    check_finite(rows, "x")
    return torch.stack([_of_net(net, rows) for net in conditioned.nets]).mean(0)


def _of_net(net: nn.Module, x: Tensor) -> Tensor:
    batches = Batches((x, x.new_zeros(len(x))), batch_size=PASS_ROWS, shuffle=False, like=net)
    first = next(batches.take(2))[0]
    layer = list(execution_order(net, first).values())[-1]
    inputs = LayerInputs(net, batches, "weights" if local_is_approximate(net, first) else "local")
    factors = layer.posterior.factors()
    assert factors is not None
    found = []
    for part, y in batches:
        rows, _ = inputs.head_rows(layer, ShardedBatch(part, y, FullShard(len(part))))
        tril = factors.permute(1, 2, 0).double().unflatten(0, (len(rows), -1))
        each = torch.einsum("gnd,gude->gnue", rows, tril).square().sum(-1)
        found.append(each.transpose(0, 1).flatten(1).amax(1))
    return torch.cat(found)


@dataclass(frozen=True)
class LeverageFlag:
    """A threshold on the leverage that rows like the training data pass rarely.

    Args:
        conditioned: What `condition` returned.
        threshold: The largest leverage that is not flagged.
        rate: The rate of false alarms that it was chosen for.
    """

    conditioned: Conditioned
    threshold: float
    rate: float

    @classmethod
    def calibrate(cls, conditioned: Conditioned, held_out: Any, rate: float = 0.01) -> LeverageFlag:
        """The threshold that a new row like the held-out ones passes with probability `rate`.

        Of n held-out rows it is the `⌈(n + 1)(1 − rate)⌉`-th smallest leverage: a new row of the
        same kind lies above it with a probability of at most `rate`, whatever its law.

        Args:
            conditioned: What `condition` returned.
            held_out: Inputs of rows that the net was not trained on.
            rate: The rate of false alarms, between 0 and 1.

        Raises:
            HeadstartError: The rate is none, or there are too few rows to tell such a rate.
        """
        if not 0 < rate < 1:
            raise HeadstartError(f"A rate of false alarms lies between 0 and 1, not {rate}.")
        found = leverage(conditioned, held_out).sort().values
        place = math.ceil((len(found) + 1) * (1 - rate))
        if place > len(found):
            raise HeadstartError(
                f"{len(found)} held-out rows are too few for false alarms at a rate of {rate}; "
                f"pass at least {math.ceil(1 / rate) - 1}."
            )
        return cls(conditioned, float(found[place - 1]), rate)

    def __call__(self, x: Any) -> Tensor:
        """Whether each row is unlike the training data, (B,).

        Args:
            x: Inputs, a tensor or an array with rows on axis 0.
        """
        return leverage(self.conditioned, x) > self.threshold
