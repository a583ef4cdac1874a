"""Forward passes of a Bayesian net: how many draws, by which sampler, folded into the batch; and what the layers see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from headstart.affine import is_dense
from headstart.errors import HeadstartError, unknown
from headstart.layers import Bayesian, bayesian_layers
from headstart.noise import Noise, fresh
from headstart.sampling import SAMPLERS, Drawn, Local, Mean, Stacked, Weights


@contextmanager
def drawing(
    model: nn.Module,
    sampler: str = "local",
    samples: int = 1,
    *,
    rows: int | None = None,
    weights: list[Tensor] | None = None,
    noise: Noise = fresh,
    fold: bool = True,
    averaged: bool = False,
) -> Iterator[bool]:
    """Within this scope every forward pass of `model` draws `samples` times by `sampler`: `local`, `weights` or `mean`.

    Yields whether the net takes its input once and folds the samples in by itself; if not, repeat the input S times (`draw`
    does). With `weights` the draws are made here, once (or taken from `weights`): every call in the scope sees the same
    functions. Given the number of `rows` of the inputs, every layer checks that the batch is still on axis 0. Without
    `fold` the input is always to be repeated. `averaged` says that one pass is made, and only an average over its rows and
    samples taken. Rows then need not share a sample's weights: layers draw when they are called, and a dense one that sees the
    input draws its outputs, from the moments of one batch instead of S. Nor need samples be independent: by local draws they
    share those of the first layers, by twos or fours (`_stages`).

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
    stages = _stages(layers, samples, shared=averaged and sampler == "local") if fold and sampler != "mean" else {}
    if sampler == "weights" and weights is None and not averaged:
        weights = draw_weights(model, samples, noise)
    try:
        for index, layer in enumerate(layers):
            received, given = stages.get(layer.gate, (samples, samples))
            batch, expand = None if rows is None else rows * received, layer.gate == 1 and bool(stages)
            if sampler == "mean":
                layer.use(Mean())
            elif sampler == "local":
                layer.use(Local(given // received, batch, noise))
            elif weights is None:
                layer.use(Drawn(samples, expand, batch, noise))
            else:
                layer.use(Weights(weights[index], expand, batch))
        yield bool(stages)
    finally:
        for layer, old in zip(layers, before, strict=True):
            layer.use(old)


def _stages(layers: Sequence[Bayesian], samples: int, shared: bool) -> dict[int, tuple[int, int]]:
    """By gate: how many samples of a row a layer receives, and how many it hands on; at layers that are no gates they are all there.

    The first gate draws them all. Where they may share draws it makes a quarter of them, and the second gate and the last but one
    two of each that they receive, with opposite noise: fewer rows up to there, and what is drawn last cancels best. The variance
    of the gradient stays about that of independent samples (docs/results/speed.md).

    Example:
        >>> import headstart as hs
        >>> layers = list(bayesian_layers(hs.bayesianize(hs.models.create("mlp-5x100", (4,), 3))).values())
        >>> _stages(layers, 16, shared=True)
        {1: (1, 4), 2: (4, 8), 3: (8, 8), 4: (8, 8), 5: (8, 16), 6: (16, 16)}
    """
    found, gates = {layer.gate for layer in layers}, 0
    while gates + 1 in found:
        gates += 1
    doubling = [gate for gate in (2, max(3, gates - 1)) if gate <= gates] if shared else []
    while doubling and samples % (2 << len(doubling)):  # the first gate draws pairs, at the least one
        doubling.pop()
    stages, received = {}, 1
    for gate in range(1, gates + 1):
        given = samples >> len(doubling) if gate == 1 else received * (2 if gate in doubling else 1)
        stages[gate] = received, given
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
    noise: Noise = fresh,
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
    noise: Noise = fresh,
    averaged: bool = False,
) -> Tensor:
    """`draw`, with the weights given where they have been drawn before.

    A net that stacks several batches on axis 0, as a siamese one does, goes without folding: repeated rows for local draws,
    one function after another for weights. So does one that was built around its converted layers later, where the input
    goes past them and meets more rows than it has.
    """
    try:
        return _pass(model, x, samples, sampler, weights, noise, averaged=averaged)
    except Stacked:
        if sampler != "weights":
            return _pass(model, x, samples, sampler, None, noise, fold=False)
    functions = zip(*(w.split(1) for w in weights or draw_weights(model, samples, noise)), strict=True)
    return torch.cat([_pass(model, x, 1, sampler, list(function), noise) for function in functions])


def _pass(
    model: nn.Module,
    x: Tensor,
    samples: int,
    sampler: str,
    weights: list[Tensor] | None,
    noise: Noise,
    fold: bool = True,
    averaged: bool = False,
) -> Tensor:
    """All samples in one forward pass."""
    rows = x.shape[0]
    with drawing(
        model, sampler, samples, rows=rows, weights=weights, noise=noise, fold=fold, averaged=averaged
    ) as folds:
        try:
            out: Tensor = model(x if folds else repeat_rows(x, samples))
        except RuntimeError as error:
            if not folds or samples == 1:
                raise
            raise Stacked from error
    if not isinstance(out, Tensor) or out.ndim == 0 or out.shape[0] != samples * x.shape[0]:
        what = f"a tensor of shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
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


@torch.no_grad()
def calls(model: nn.Module, x: Tensor) -> list[tuple[str, Tensor]]:
    """Every call of a Bayesian layer in one pass of the mean network in evaluation mode: its name and its input, in order."""
    seen: list[tuple[str, Tensor]] = []
    handles = [
        layer.register_forward_pre_hook(lambda module, args, name=name: seen.append((name, args[0])))
        for name, layer in bayesian_layers(model).items()
    ]
    try:
        with evaluating(model), drawing(model, "mean"):
            model(x)
    finally:
        for handle in handles:
            handle.remove()
    return seen


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; every module gets its own mode back."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


def local_is_approximate(model: nn.Module, x: Tensor) -> bool:
    """Whether some layer uses its weights more than once on a row of `x` (convolutions, sequences, a layer called twice).

    There local draws have the right marginals only; dropout is the exception, which is defined by them.
    """
    layers = bayesian_layers(model)
    if all(layer.posterior.law_is_local for layer in layers.values()):
        return False
    seen = calls(model, x[:1])
    once = len({name for name, _ in seen}) == len(seen)
    return not (
        once
        and all(is_dense(layers[name].op) and inputs.ndim == 2 and len(inputs) == len(x[:1]) for name, inputs in seen)
    )
