"""Forward passes of a Bayesian net: how many draws, by which sampler, folded into the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import cast

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError, unknown
from headstart.kernels.noise import Noise, Reused, fresh
from headstart.linalg.affine import is_dense
from headstart.network.layer import Bayesian, bayesian_layers, gates
from headstart.network.probe import check_rows
from headstart.network.samplers import SAMPLERS, Drawn, Local, Mean, Stacked, Weights


@contextmanager
def drawing(
    model: nn.Module,
    sampler: str = "local",
    samples: int = 1,
    *,
    rows: int | None = None,
    weights: list[Tensor] | None = None,
    noise: Noise | None = None,
    fold: bool = True,
    averaged: bool = False,
) -> Iterator[bool]:
    """Within this scope every forward pass of `model` draws `samples` times by `sampler`: `local`, `weights` or `mean`.

    Yields whether the net takes its input once and folds the samples in by itself; if not, repeat the input S times (`draw`
    does). With `weights` the draws are made here, once (or taken from `weights`): every call in the scope sees the same
    functions. Given the number of `rows` of the inputs, every layer checks that the batch is still on axis 0. Without
    `fold` the input is always to be repeated. `averaged` says that one pass is made, and only an average over its rows and
    samples taken. Rows then need not share a sample's weights: layers draw when they are called, and a dense one that sees the
    input draws its outputs, from the moments of one batch instead of S. Nor need samples be independent: unless `noise` says
    otherwise they use numbers again (`headstart.kernels.noise`), and share the draws of the first layers (`_sharing`, `_stages`).

    Example:
        >>> import torch, headstart as hs
        >>> model = hs.bayesianize(nn.Linear(3, 2))
        >>> with drawing(model, "mean"):
        ...     a, b = model(torch.ones(1, 3)), model(torch.ones(1, 3))
        >>> torch.equal(a, b)
        True
    """
    if sampler not in SAMPLERS:
        raise unknown("sampler", sampler, SAMPLERS)
    if samples < 1:
        raise HeadstartError(f"At least one sample must be drawn, not {samples}.")
    layers = list(bayesian_layers(model).values())
    before = [layer.sampler for layer in layers]
    folds = fold and sampler != "mean" and any(layer.entry for layer in layers)
    shared = (
        _stages(_sharing(model, sampler), samples)
        if folds and averaged and rows is not None
        else {}
    )
    shares = len(shared) > 0  # bool of a dict is not for every torch's compiler
    if sampler == "weights" and weights is None and not averaged:
        weights = draw_weights(model, samples, noise or fresh)
    try:
        for index, layer in enumerate(layers):
            expand = folds and layer.entry
            received, given = shared.get(layer, (1 if expand else samples, samples))
            batch = None if rows is None else rows * received
            numbers = noise or (
                fresh if batch is None or not averaged else Reused(given, cast(int, rows))
            )
            if sampler == "mean":
                layer.use(Mean())
            elif sampler == "local":
                layer.use(Local(given // received, batch, numbers, shares))
            elif weights is None:
                again = 1 if expand else given // received
                layer.use(Drawn(given, expand, batch, numbers, shares, again))
            else:
                layer.use(Weights(weights[index], expand, batch))
        yield folds
    finally:
        for layer, old in zip(layers, before, strict=True):
            layer.use(old)


def _sharing(model: nn.Module, sampler: str) -> list[Bayesian]:
    """The gates between which samples may share draws: by weights the first two, if that spares rows of a convolution."""
    chain = gates(model)
    if sampler == "weights":
        return [] if not chain or is_dense(chain[0].op) else chain[:2]
    return chain


def _stages(chain: Sequence[Bayesian], samples: int) -> dict[Bayesian, tuple[int, int]]:
    """How many samples of a row a gate receives, and how many it hands on, where samples may share draws.

    The first makes a quarter of them, and the second and the last but one (the third at the earliest) two of each that they
    receive, with opposite noise: fewer rows up to there, and what is drawn last cancels best. With two gates, or samples that
    are no multiple of eight, the second alone does so; it takes a multiple of four.

    Example:
        >>> import headstart as hs
        >>> model = hs.bayesianize(hs.models.create("mlp-5x100", (4,), 3))
        >>> list(_stages(gates(model), 16).values())
        [(1, 4), (4, 8), (8, 8), (8, 8), (8, 16), (16, 16)]
    """
    doubling = list(chain[1:2])
    if samples % 8 == 0:
        doubling += chain[max(2, len(chain) - 2) :][:1]
    if not doubling or samples % 4:
        return {}
    stages, received = {}, samples >> len(doubling)
    for gate in chain:
        given = 2 * received if gate in doubling else received
        stages[gate] = (1 if gate is chain[0] else received), given
        received = given
    return stages


def draw_weights(model: nn.Module, samples: int, noise: Noise = fresh) -> list[Tensor]:
    """Draws of every layer's weights, in the order of `bayesian_layers`."""
    return [layer.posterior.sample(samples, noise) for layer in bayesian_layers(model).values()]


def draw(
    model: nn.Module,
    x: Tensor,
    samples: int = 1,
    sampler: str = "local",
    noise: Noise | None = None,
    averaged: bool = False,
) -> Tensor:
    """S draws of the net's output, (S, B, ...): the samples run folded into the batch, in one forward pass.

    `averaged` as in `drawing`.

    Example:
        >>> import torch, headstart as hs
        >>> draw(hs.bayesianize(nn.Linear(3, 2)), torch.ones(5, 3), samples=7).shape
        torch.Size([7, 5, 2])
    """
    return forward(model, x, samples, sampler, noise=noise, averaged=averaged)


def forward(
    model: nn.Module,
    x: Tensor,
    samples: int,
    sampler: str,
    weights: list[Tensor] | None = None,
    noise: Noise | None = None,
    averaged: bool = False,
) -> Tensor:
    """`draw`, with the weights given where they have been drawn before.

    A net that stacks several batches on axis 0, as a siamese one does, goes without folding: repeated rows for local draws,
    one function after another for weights. One that does not go through its layers as it did when it was converted shares no draws.
    """
    check_rows(model, x)
    try:
        return _pass(model, x, samples, sampler, weights, noise, averaged=averaged)
    except Stacked:
        numbers = noise or (Reused(samples, x.shape[0]) if averaged else fresh)
        if sampler == "weights":
            weights = weights or draw_weights(model, samples, numbers)
        with suppress(Stacked):
            return _pass(model, x, samples, sampler, weights, numbers)
        if weights is None:
            return _pass(model, x, samples, sampler, None, numbers, fold=False)
    functions = zip(*(w.split(1) for w in weights), strict=True)
    return torch.cat([_pass(model, x, 1, sampler, list(function), noise) for function in functions])


def _pass(
    model: nn.Module,
    x: Tensor,
    samples: int,
    sampler: str,
    weights: list[Tensor] | None,
    noise: Noise | None,
    fold: bool = True,
    averaged: bool = False,
) -> Tensor:
    """All samples in one forward pass."""
    rows = x.shape[0]
    with drawing(
        model,
        sampler,
        samples,
        rows=rows,
        weights=weights,
        noise=noise,
        fold=fold,
        averaged=averaged,
    ) as folds:
        out: Tensor = model(x if folds else repeat_rows(x, samples))
    if not isinstance(out, Tensor) or out.ndim == 0 or out.shape[0] != samples * x.shape[0]:
        if averaged:  # where samples share draws a layer was left out, perhaps
            raise Stacked
        what = (
            f"a tensor of shape {tuple(out.shape)}"
            if isinstance(out, Tensor)
            else f"a {type(out).__name__}"
        )
        raise HeadstartError(
            f"The net must give one tensor with a row for each of the {samples * x.shape[0]} rows it received (samples are folded into "
            f"axis 0), but it gave {what}."
        )
    return out.unflatten(0, (samples, -1))


def check_outputs(f: Tensor) -> Tensor:
    """Draws (S, B, K) as a likelihood reads them, or a sentence."""
    if f.ndim != 3:
        raise HeadstartError(
            f"A likelihood reads outputs of shape (rows, outputs); the net gives (rows, {', '.join(map(str, f.shape[2:]))})."
        )
    return f.float() if f.dtype in (torch.float16, torch.bfloat16) else f


def repeat_rows(x: Tensor, samples: int) -> Tensor:
    """S copies of the batch, one after another: (S·B, ...)."""
    return x.repeat(samples, *[1] * (x.ndim - 1))
