"""Multi-head attention with its four layers apart."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.network.decomposed import Decomposed, fill_weights_, linear_layer


class Attention(Decomposed):
    """`nn.MultiheadAttention` with its layers `q`, `k`, `v` and `out_proj` apart.

    Args:
        stock: the stock module, whose weights are copied.

    Example:
        >>> net, x = nn.MultiheadAttention(6, 2, batch_first=True), torch.randn(4, 5, 6)
        >>> torch.allclose(Attention(net)(x, x, x)[0], net(x, x, x)[0], atol=1e-6)
        True
    """

    in_proj_bias = None
    """There is none: so torch's encoder layers keep off the fused path, which reads weights."""

    def __init__(self, stock: nn.MultiheadAttention) -> None:
        super().__init__()
        self.embed_dim, self.num_heads = stock.embed_dim, stock.num_heads
        self.kdim, self.vdim = stock.kdim, stock.vdim
        self.dropout, self.batch_first = stock.dropout, stock.batch_first
        whole, bias = stock.in_proj_weight, stock.in_proj_bias
        weights = (
            (stock.q_proj_weight, stock.k_proj_weight, stock.v_proj_weight)
            if whole is None
            else whole.chunk(3)
        )
        biases = (None, None, None) if bias is None else bias.chunk(3)
        self.q, self.k, self.v = (
            linear_layer(weight, each) for weight, each in zip(weights, biases, strict=True)
        )
        self.out_proj = linear_layer(stock.out_proj.weight, stock.out_proj.bias)
        self.train(stock.training)

    @staticmethod
    def accepts(stock: nn.MultiheadAttention) -> bool:
        """Whether all its weights are those of layers.

        Args:
            stock: the stock module.
        """
        return stock.bias_k is None and stock.bias_v is None and not stock.add_zero_attn

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Outputs and attention weights, as the stock module gives them.

        Args:
            query: (rows, length, embed_dim), or with `batch_first=False` the length first.
            key: the same with a length of its own.
            value: as key.
            key_padding_mask: (rows, length of the keys), True or -inf where there is padding.
            need_weights: whether to return the attention weights.
            attn_mask: (length, length of the keys), or one for each row and head.
            average_attn_weights: whether they are averaged over heads.
            is_causal: a hint that `attn_mask` is causal, which is then needed.

        Raises:
            HeadstartError: There is no axis of rows, or a causal mask is promised and missing.
        """
        if query.ndim != 3:
            raise HeadstartError(
                "Bayesian attention takes (rows, length, embed_dim), not a tensor of shape "
                f"{tuple(query.shape)}: add an axis for the rows."
            )
        if is_causal and attn_mask is None:
            raise HeadstartError("is_causal=True is a hint about attn_mask: pass the mask too.")
        if not self.batch_first:
            query, key, value = (each.transpose(0, 1) for each in (query, key, value))
        q, k, v = (
            self._heads(layer(each))
            for layer, each in ((self.q, query), (self.k, key), (self.v, value))
        )
        found, weights = self._attend(
            q, k, v, self._mask(attn_mask, key_padding_mask, q, k), need_weights
        )
        out = self.out_proj(found.transpose(1, 2).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        return out if self.batch_first else out.transpose(0, 1), weights

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """`softmax(q kᵀ / √width + mask) v` of each head, and its weights where they are needed."""
        dropout = self.dropout if self.training else 0.0
        if not need_weights:
            return F.scaled_dot_product_attention(q, k, v, mask, dropout), None
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        weights = (scores if mask is None else scores + mask).softmax(-1)
        weights = F.dropout(weights, dropout)
        return weights @ v, weights

    def _heads(self, x: Tensor) -> Tensor:
        """(rows, heads, length, width of a head)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _mask(
        self, attn_mask: Tensor | None, padding: Tensor | None, q: Tensor, k: Tensor
    ) -> Tensor | None:
        """What is added to the scores, (rows or 1, heads or 1, length or 1, length of the keys)."""
        parts = []
        if attn_mask is not None:
            given = _additive(attn_mask, q)
            parts.append(given if given.ndim == 2 else given.unflatten(0, (q.shape[0], -1)))
        if padding is not None:
            parts.append(_additive(padding, q)[:, None, None])
        return torch.stack(torch.broadcast_tensors(*parts)).sum(0) if parts else None

    def stock(self) -> nn.MultiheadAttention:
        """The stock module with the weights that the layers have now."""
        made = nn.MultiheadAttention(
            self.embed_dim,
            self.num_heads,
            self.dropout,
            bias=self.q.bias is not None,
            kdim=self.kdim,
            vdim=self.vdim,
            batch_first=self.batch_first,
            device="meta",
        )
        weights: list[Tensor] = [layer.weight for layer in (self.q, self.k, self.v)]
        if self.kdim == self.vdim == self.embed_dim:
            fill_weights_(made, {"in_proj_weight": torch.cat(weights)})
        else:
            names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
            fill_weights_(made, dict(zip(names, weights, strict=True)))
        biases: list[Tensor] = [layer.bias for layer in (self.q, self.k, self.v)]
        fill_weights_(made, {"in_proj_bias": None if biases[0] is None else torch.cat(biases)})
        fill_weights_(made.out_proj, {"weight": self.out_proj.weight, "bias": self.out_proj.bias})
        return made.train(self.training)

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, heads={self.num_heads}"


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """0 where one may look and -inf where a mask says True; numbers as they are."""
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, -math.inf)
