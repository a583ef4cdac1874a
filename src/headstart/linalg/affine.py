"""The two verbs of an affine layer: the only file that knows Linear from Conv.

`affine(op, x, weight, bias)` runs the layer with other weights.
`design(op, x)` gives the rows of its linear model.
Every layer is a matrix `(units, size)`: one row of weights per output unit, its bias (if any) last.
An embedding is a linear layer whose inputs are all 0 but one, which is 1 and which `x` names.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.kernels.few_rows import are_few, convolve_apart, convolve_shared

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
Transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
CONVOLUTIONS = nn.Conv1d, nn.Conv2d, nn.Conv3d
TRANSPOSED = nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d
SUPPORTED: tuple[type[nn.Module], ...] = (nn.Linear, nn.Embedding, *CONVOLUTIONS, *TRANSPOSED)
CONVOLVE: tuple[Any, ...] = F.conv1d, F.conv2d, F.conv3d
TRANSPOSE: tuple[Any, ...] = F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d
"""What runs a convolution, by its number of dimensions less one."""
MANY_CHANNELS, FEW_POSITIONS = 256, 16
"""From so many on, at so few, a CPU is faster where positions, not channels, lie together."""


def is_affine(module: nn.Module) -> bool:
    """Whether this is a stock layer we know.

    A subclass may compute anything, so the type must match exactly.

    Example:
        >>> is_affine(nn.Linear(2, 3)), is_affine(nn.ReLU())
        (True, False)
    """
    if type(module) is nn.Embedding and not _is_plain_embedding(module):
        return False
    # spectral_norm and the like put a plain tensor in the place of the parameter
    return type(module) in SUPPORTED and isinstance(module.weight, nn.Parameter)


def _is_plain_embedding(module: nn.Embedding) -> bool:
    """Whether it is linear in its weights, and its gradient no other than theirs."""
    return module.max_norm is None and not module.scale_grad_by_freq and not module.sparse


def is_dense(op: nn.Module) -> bool:
    """Whether the layer is a matrix product; convolutions apply their weights at many positions."""
    return isinstance(op, nn.Linear)


def affine(op: nn.Module, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What the layer `op` would compute from `x` if it had this weight and bias.

    Example:
        >>> op = nn.Conv2d(2, 4, (3, 1), stride=2, padding_mode="circular", padding=(1, 0))
        >>> x = torch.randn(5, 2, 8, 8)
        >>> torch.equal(affine(op, x, op.weight, op.bias), op(x))
        True
    """
    # Tests of the type are what torch.compile can follow in every version.
    if isinstance(op, nn.Linear):
        return F.linear(x, weight, bias)
    if isinstance(op, nn.Embedding):
        found = F.embedding(x, weight)
        return found if op.padding_idx is None else found * _is_token(op, x).unsqueeze(-1)
    if isinstance(op, CONVOLUTIONS):
        return _convolve(op, x, weight, bias)
    if isinstance(op, TRANSPOSED):
        return _transpose(op, x, weight, bias)
    raise TypeError(f"{type(op).__name__} is not an affine layer")


def _is_token(op: nn.Embedding, x: Tensor) -> Tensor:
    """Which inputs are not the padding, whose embedding is zero whatever the weights."""
    return torch.ne(x, cast(int, op.padding_idx))


def squared(op: nn.Module, x: Tensor) -> Tensor:
    """What the layer must be given in the place of `x` so that its inputs are squared.

    Args:
        op: the layer.
        x: its input.
    """
    # Zeros and a one are their own squares.
    return x if isinstance(op, nn.Embedding) else x.square()


def _convolve(op: Convolution, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    padding: Any = op.padding
    if op.padding_mode != "zeros":
        x, padding = F.pad(x, _padding(op), mode=op.padding_mode), 0
    if x.is_cpu and op.in_channels >= MANY_CHANNELS and x.shape[2:].numel() <= FEW_POSITIONS:
        x = x.contiguous()
    run = CONVOLVE[len(op.kernel_size) - 1]
    return run(x, weight, bias, op.stride, padding, op.dilation, op.groups)


def _transpose(op: Transposed, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    run = TRANSPOSE[len(op.kernel_size) - 1]
    return run(x, weight, bias, op.stride, op.padding, op.output_padding, op.groups, op.dilation)


def _padding(op: Convolution) -> list[int]:
    """Before and after each axis, the last axis first, as `F.pad` takes it.

    Example:
        >>> _padding(nn.Conv2d(1, 1, (2, 5), padding="same"))
        [2, 2, 0, 1]
        >>> _padding(nn.Conv1d(1, 1, 3, padding=2))
        [2, 2]
    """
    if op.padding == "valid":
        return [0, 0] * len(op.kernel_size)
    if op.padding == "same":
        lost = [d * (k - 1) for d, k in zip(op.dilation, op.kernel_size, strict=True)]
        return [side for total in reversed(lost) for side in (total // 2, total - total // 2)]
    return [side for each in reversed(op.padding) for side in (each, each)]  # type: ignore[misc]


def affine_each(op: nn.Module, x: Tensor, draws: Tensor, shared: bool = False) -> Tensor:
    """`affine` with the weights of S draws.

    Args:
        op: the layer.
        x: S times the rows, one part for each draw, or the rows once.
        draws: (S, units, size).
        shared: whether all draws have the same rows.

    Example:
        >>> affine_each(nn.Conv1d(4, 6, 3), torch.randn(10, 4, 9), torch.randn(2, 6, 13)).shape
        torch.Size([10, 6, 7])
    """
    if draws.shape[0] == 1:
        return affine(op, x, *split(op, draws[0]))
    if is_plain_conv2d(op) and are_few(x, draws.shape[0], shared):
        settings: Any = op.kernel_size, op.stride, op.padding, op.dilation
        return (convolve_shared if shared else convolve_apart)(x, draws, *settings)
    # The two detours keep the batch size of an export open, which torch.vmap would fix there.
    if isinstance(op, nn.Embedding) and shared:
        return affine_apart(op, x, draws, shared).flatten(0, 1)
    if isinstance(op, nn.Linear) and x.ndim > 2:
        return _linear_each(op, x, draws, shared)
    rows = x if shared else x.unflatten(0, (draws.shape[0], -1))
    run = torch.vmap(lambda w, x: affine(op, x, *split(op, w)), in_dims=(0, None if shared else 0))
    return run(draws, rows).flatten(0, 1)


def is_plain_conv2d(op: nn.Module) -> bool:
    if not isinstance(op, nn.Conv2d) or isinstance(op.padding, str):
        return False
    return op.groups == 1 and op.padding_mode == "zeros"


def _linear_each(op: nn.Linear, x: Tensor, draws: Tensor, shared: bool) -> Tensor:
    """`affine_each` of a dense layer at many positions: products of matrices."""
    rows = x.flatten(0, -2)
    rows = rows if shared else rows.unflatten(0, (draws.shape[0], -1))
    found = rows @ draws[..., : op.in_features].mT
    if draws.shape[-1] > op.in_features:
        found = found + draws[..., None, :, op.in_features]
    return found.reshape(-1, *x.shape[1:-1], draws.shape[1])


def affine_apart(op: nn.Module, x: Tensor, weights: Tensor, shared: bool = False) -> Tensor:
    """`affine_each` for a few weights that have many rows each, the results apart.

    Convolutions run one after another: with so many rows that is faster than as groups of one
    convolution. Where weights have the same rows, the units of all of them are those of one layer.

    Args:
        op: the layer.
        x: K times the rows, one part for each of the weights, or the rows once.
        weights: (K, units, size).
        shared: whether all have the same rows.

    Returns:
        The outputs (K, N, ...), not always contiguous.

    Example:
        >>> affine_apart(nn.Conv1d(4, 6, 3), torch.randn(10, 4, 9), torch.randn(2, 6, 13)).shape
        torch.Size([2, 5, 6, 7])
    """
    axis, count = channel_axis(op), weights.shape[0]
    if shared and groups(op) == 1:
        wide = affine(op, x, *split(op, weights.flatten(0, 1)))
        axis %= wide.ndim
        return wide.unflatten(axis, (count, -1)).movedim(axis, 0)
    blocks = [x] * count if shared else x.unflatten(0, (count, -1)).unbind()
    return torch.stack(
        [affine(op, rows, *split(op, each)) for rows, each in zip(blocks, weights, strict=True)]
    )


def design(op: nn.Module, x: Tensor, at: Tensor | None = None) -> Tensor:
    """The rows each unit's weights multiply, without the bias's 1: (groups, N, positions, fan_in).

    `at` (N, few) names the positions wanted of each example, counted along the flattened output:
    the others take no memory.

    Example:
        >>> op = nn.Conv1d(4, 6, 3, groups=2)
        >>> design(op, torch.randn(5, 4, 10)).shape
        torch.Size([2, 5, 8, 6])
    """
    if isinstance(op, nn.Linear):
        return _taken(x.reshape(1, len(x), -1, op.in_features), at)
    if isinstance(op, nn.Embedding):
        named = _taken(x.reshape(1, len(x), -1), at)
        rows = F.one_hot(named, op.num_embeddings).to(torch.get_default_dtype())
        return rows if op.padding_idx is None else rows * _is_token(op, named).unsqueeze(-1)
    if isinstance(op, CONVOLUTIONS):
        return _patches(op, x, at)
    if isinstance(op, TRANSPOSED):
        return _responses(op, x, at)
    raise TypeError(f"{type(op).__name__} is not an affine layer")


def _patches(op: Convolution, x: Tensor, at: Tensor | None) -> Tensor:
    mode = "constant" if op.padding_mode == "zeros" else op.padding_mode
    patches = F.pad(x, _padding(op), mode=mode)
    settings = zip(op.kernel_size, op.stride, op.dilation, strict=True)
    for axis, (kernel, stride, dilation) in enumerate(settings, 2):
        patches = patches.unfold(axis, dilation * (kernel - 1) + 1, stride)[..., ::dilation]
    # The patches are (N, C, *positions, *kernel), a view until the reshape.
    dims = len(op.kernel_size)
    patches = patches.unflatten(1, (op.groups, -1))
    positions, within = range(3, 3 + dims), range(3 + dims, 3 + 2 * dims)
    patches = patches.permute(1, 0, *positions, 2, *within)
    if at is not None:
        index: list[Tensor] = []
        shape = patches.shape[2 : 2 + dims]
        for side in reversed(shape):
            index.insert(0, at % side)
            at = at // side
        patches = patches[(slice(None), torch.arange(len(x), device=x.device)[:, None], *index)]
    return patches.reshape(op.groups, len(x), -1, fan_in(op))


def _responses(op: Transposed, x: Tensor, at: Tensor | None) -> Tensor:
    # The map is linear in its weights: run it with each unit vector of one output unit per group.
    size = fan_in(op)
    eye = torch.eye(size, dtype=x.dtype, device=x.device)
    passes = (_transpose(op, x, _stock_layout(op, e.expand(op.groups, size)), None) for e in eye)
    return torch.stack([_taken(rows.movedim(1, 0).flatten(2), at) for rows in passes], dim=-1)


def _taken(rows: Tensor, at: Tensor | None) -> Tensor:
    """What is at these positions (N, few) of rows (groups, N, positions, ...)."""
    if at is None:
        return rows
    return rows[:, torch.arange(rows.shape[1], device=rows.device)[:, None], at]


def fan_in(op: nn.Module) -> int:
    """The number of inputs a unit sees, its bias not counted."""
    if isinstance(op, nn.Linear):
        return op.in_features
    if isinstance(op, nn.Embedding):
        return op.num_embeddings
    return _kernel_area(op) * op.in_channels // op.groups  # type: ignore[operator,return-value]


def active_inputs(op: nn.Module) -> int:
    """The number of inputs that are not zero at once: fan_in, and 1 for an embedding."""
    return 1 if isinstance(op, nn.Embedding) else fan_in(op)


def fan_out(op: nn.Module) -> int:
    """The number of units an input reaches: fan_in with the channels exchanged."""
    if isinstance(op, nn.Linear | nn.Embedding):
        return units(op)
    return _kernel_area(op) * op.out_channels // op.groups  # type: ignore[operator,return-value]


def units(op: nn.Module) -> int:
    """The number of output units."""
    if isinstance(op, nn.Linear):
        return op.out_features
    if isinstance(op, nn.Embedding):
        return op.embedding_dim
    return op.out_channels  # type: ignore[return-value]


def groups(op: nn.Module) -> int:
    """The number of groups of units that see different inputs."""
    if isinstance(op, nn.Linear | nn.Embedding):
        return 1
    return op.groups  # type: ignore[return-value]


def channel_axis(op: nn.Module) -> int:
    """The axis of the output that counts the units."""
    return -1 if isinstance(op, nn.Linear | nn.Embedding) else 1


def _kernel_area(op: nn.Module) -> int:
    return math.prod(op.kernel_size)  # type: ignore[arg-type]


def flatten(op: nn.Module, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The layer's weights as a matrix (units, size), the bias last.

    Example:
        >>> op = nn.Conv2d(2, 4, 3)
        >>> flatten(op, op.weight, op.bias).shape
        torch.Size([4, 19])
    """
    if isinstance(op, nn.Embedding):
        return weight.T
    rows = _units_first(op, weight) if isinstance(op, TRANSPOSED) else weight.flatten(1)
    return rows if bias is None else torch.cat([rows, bias.unsqueeze(1)], dim=1)


def split(op: nn.Module, matrix: Tensor) -> tuple[Tensor, Tensor | None]:
    """The inverse of `flatten`.

    Args:
        op: the layer.
        matrix: (units, size).

    Returns:
        The weight in the layer's own shape, and the bias where the matrix holds one.
    """
    size = fan_in(op)
    weight, bias = matrix[:, :size], matrix[:, size] if matrix.shape[1] > size else None
    if isinstance(op, nn.Linear):
        return weight, bias
    if isinstance(op, nn.Embedding):
        return weight.T, None
    if isinstance(op, TRANSPOSED):
        return _stock_layout(op, weight), bias
    return weight.reshape(len(matrix), -1, *op.kernel_size), bias  # type: ignore[misc]


def _stock_layout(op: Transposed, rows: Tensor) -> Tensor:
    """(units, fan_in) to the stock layout (in_channels, units/groups, *kernel)."""
    blocks = rows.reshape(op.groups, -1, op.in_channels // op.groups, *op.kernel_size)
    return blocks.transpose(1, 2).flatten(0, 1)


def _units_first(op: Transposed, weight: Tensor) -> Tensor:
    blocks = weight.unflatten(0, (op.groups, -1)).transpose(1, 2)
    return blocks.flatten(0, 1).flatten(1)
