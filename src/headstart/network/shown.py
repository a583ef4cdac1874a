"""Means of Bayesian layers as others see them: to look at, not to compute with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.errors import HeadstartError

_COMPUTING = {
    F.linear,
    F.bilinear,
    F.embedding,
    F.embedding_bag,
    F.conv1d,
    F.conv2d,
    F.conv3d,
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
    F.multi_head_attention_forward,
    torch.matmul,
    torch.mm,
    torch.mv,
    torch.bmm,
    torch.addmm,
    torch.einsum,
    Tensor.matmul,
    Tensor.mm,
    Tensor.mv,
    Tensor.__matmul__,
    Tensor.__rmatmul__,
}
"""What layers do with weights."""


class ShownMean(Tensor):
    """A mean that answers for its shape, type and numbers, and is no layer's weight.

    A net whose `forward` computes with the weight of a layer instead of calling it would use the
    mean in every draw, and nobody would notice.

    Example:
        >>> mean = torch.ones(2, 3).as_subclass(ShownMean)
        >>> mean.shape, float(mean.sum())
        (torch.Size([2, 3]), 6.0)
        >>> F.linear(torch.ones(1, 3), mean)
        Traceback (most recent call last):
        ...
        headstart.errors.HeadstartError: linear was called with the weight of a Bayesian layer, ...
    """

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Refuse what would use the mean as a weight; the rest is as for any tensor."""
        if func in _COMPUTING:
            raise HeadstartError(
                f"{func.__name__} was called with the weight of a Bayesian layer, which is only "
                "its mean: call the layer itself, as in self.head(x); to compute with the mean, "
                "take layer.posterior.mean."
            )
        return super().__torch_function__(func, types, args, kwargs or {})
