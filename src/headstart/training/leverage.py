"""The leverage of rows in a read-out, and a flag for rows that are unlike the training data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from headstart.batching import Batches
from headstart.distributed.collectives import group_of
from headstart.distributed.fabric import Fabric
from headstart.distributed.sharding import FullShard, ShardedBatch, shard_common
from headstart.errors import HeadstartError
from headstart.initializers.layer_inputs import LayerInputs
from headstart.initializers.walk import execution_order
from headstart.kernels.random_state import kept_random_state, seed_
from headstart.linalg.precision import in_double
from headstart.network.inputs import check_finite, to_tensor
from headstart.network.layer import Bayesian
from headstart.network.members import separate

PASS_ROWS = 4096
"""Rows that go through the net at once."""
FUNCTIONS = 16
"""Draws of the layers below the read-out of a net, the same for every row."""


class HasNets(Protocol):
    """What `condition` returns: nets of which only the read-outs are random."""

    @property
    def nets(self) -> tuple[nn.Module, ...]: ...


def leverage(source: HasNets | nn.Module, x: Any, *, fabric: Fabric | None = None) -> Tensor:
    """`φᵀ Σ φ` of each row: the variance of the read-out at its features φ, (B,).

    The largest over outputs, the mean over draws of the layers below. It is small where training
    rows were, and grows away from them. A row's leverage does not depend on the rows beside it.

    Args:
        source: What `condition` returned, or a Bayesian net that `refine_` has given a read-out
            with full covariance.
        x: Inputs, a tensor or an array with rows on axis 0.
        fabric: A launched `lightning.fabric.Fabric`. Every rank has all of `x`, passes its shard of
            the rows and returns the leverage of all, in order.

    Example:
        >>> import headstart as hs
        >>> x = torch.linspace(-2, 2, 200).unsqueeze(1)
        >>> model, lik = hs.bayesianize(hs.models.create("mlp-1x50", 1, 1)), hs.Gaussian()
        >>> _ = hs.initialize_(model, "iblm", lik, (x, x.sin()))
        >>> conditioned = hs.condition(model, lik, (x, x.sin()), progress=False)
        >>> found = leverage(conditioned, [[0.0], [20.0]])
        >>> bool(found[1] > 10 * found[0])
        True
    """
    return _Functions.of(source).leverage(x, fabric)


@dataclass(frozen=True)
class _Functions:
    """Nets, and how many draws of each there are below its read-out."""

    nets: tuple[nn.Module, ...]
    draws: int

    @classmethod
    def of(cls, source: HasNets | nn.Module) -> _Functions:
        if isinstance(source, nn.Module):
            return cls(tuple(separate(source)), FUNCTIONS)
        return cls(source.nets, 1)

    @torch.no_grad()
    def leverage(self, x: Any, fabric: Fabric | None) -> Tensor:
        rows = to_tensor(x)
        check_finite(rows, "x")
        shard = shard_common(group_of(fabric, self.nets[0]), len(rows))
        mine = shard.of(rows)
        return shard.gather(torch.stack([self._of_net(net, mine) for net in self.nets]).mean(0))

    def _of_net(self, net: nn.Module, x: Tensor) -> Tensor:
        if not len(x):
            return in_double(x.new_zeros(0))
        batches = Batches((x, x.new_zeros(len(x))), batch_size=PASS_ROWS, shuffle=False, like=net)
        layer = list(execution_order(net, next(batches.take(2))[0]).values())[-1]
        inputs, found = LayerInputs(net, batches, "weights"), []
        with kept_random_state(net):
            for part, y in batches:
                batch, each = ShardedBatch(part, y, FullShard(len(part))), []
                for draw in range(self.draws):
                    seed_(draw, net)
                    each.append(_read_out_variance(layer, inputs.head_rows(layer, batch)[0]))
                found.append(torch.stack(each).mean(0))
        return torch.cat(found)


def _read_out_variance(layer: Bayesian, rows: Tensor) -> Tensor:
    """`φᵀ Σ φ` of features (G, N, D), the largest over units, (N,)."""
    q, groups = layer.posterior, len(rows)
    diagonal, factors = q.diagonal(), q.factors()
    each = rows.new_zeros(groups, q.units // groups, rows.shape[1])
    if diagonal is not None:
        each = each + in_double(diagonal).unflatten(0, (groups, -1)) @ rows.square().mT
    if factors is not None:
        tril = in_double(factors.permute(1, 2, 0)).unflatten(0, (groups, -1))
        each = each + torch.einsum("gnd,gude->gune", rows, tril).square().sum(-1)
    return each.flatten(0, 1).amax(0)


@dataclass(frozen=True)
class LeverageFlag:
    """A threshold on the leverage that rows like the training data pass rarely.

    `hs.predict(..., flag=flag)` asks it for every row: `Predictive.unlike_training`.

    Args:
        functions: The nets whose leverage is asked.
        threshold: The largest leverage that is not flagged.
        rate: The rate of false alarms that it was chosen for.
    """

    functions: _Functions
    threshold: float
    rate: float

    @classmethod
    def calibrate(
        cls,
        source: HasNets | nn.Module,
        held_out: Any,
        rate: float = 0.01,
        *,
        fabric: Fabric | None = None,
    ) -> LeverageFlag:
        """The threshold that a new row like the held-out ones passes with probability `rate`.

        Of n held-out rows it is the `⌈(n + 1)(1 − rate)⌉`-th smallest leverage: a new row of the
        same kind lies above it with a probability of at most `rate`, whatever its law.

        Args:
            source: What `condition` returned, or a refined net; the flag keeps a copy of a net,
                so that training it further does not change the flag.
            held_out: Inputs of rows that the net was not trained on.
            rate: The rate of false alarms, between 0 and 1.
            fabric: As in `leverage`.

        Raises:
            HeadstartError: The rate is none, or there are too few rows to tell such a rate.
        """
        if not 0 < rate < 1:
            raise HeadstartError(f"A rate of false alarms lies between 0 and 1, not {rate}.")
        functions = _Functions.of(source)
        found = functions.leverage(held_out, fabric).sort().values
        place = math.ceil((len(found) + 1) * (1 - rate))
        if place > len(found):
            raise HeadstartError(
                f"{len(found)} held-out rows are too few for false alarms at a rate of {rate}; "
                f"pass at least {math.ceil(1 / rate) - 1}."
            )
        return cls(functions, float(found[place - 1]), rate)

    def __call__(self, x: Any, *, fabric: Fabric | None = None) -> Tensor:
        """Whether each row is unlike the training data, (B,).

        Args:
            x: Inputs, a tensor or an array with rows on axis 0.
            fabric: As in `leverage`.
        """
        return self.functions.leverage(x, fabric) > self.threshold
