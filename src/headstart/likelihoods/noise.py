"""The noise of a likelihood whose size is the same in every row."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class NoiseModel(NamedTuple):
    """Gaussian noise of the same size in every row: of output k it is `exp(log_var) / scale_k²`."""

    log_var: Tensor
    """The logarithm of the variances in the units of y, one for all outputs or one for each."""
    scale: Tensor
    """What an output is multiplied by, (K,)."""
    learned: bool
    """Whether the variances may change."""

    def variances(self, log_var: Tensor, units: int) -> Tensor:
        """The noise variance of each unit of a read-out, in its own units, (U,).

        Args:
            log_var: The logarithms to take in the place of `log_var`.
            units: U, the outputs of one member after another.
        """
        each = log_var.exp() / self.scale.square()
        return each.repeat(units // len(each))
