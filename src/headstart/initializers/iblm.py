"""I-BLM: each unit starts at the posterior of a Bayesian linear model from its layer's inputs to the labels.

Layer by layer in execution order: draw the layers before, take the layer's inputs as rows, a function of the labels as
targets, solve in closed form, project onto the layer's posterior.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headstart.affine import channel_axis, design, groups
from headstart.batches import Batches
from headstart.blm import Statistics
from headstart.errors import HeadstartError, unknown
from headstart.gaussians import Rescaled, Stacked, UnitGaussian
from headstart.initializers.walk import adds_up, count_outputs, execution_order, layer_input, replaced
from headstart.layers import Bayesian
from headstart.likelihoods import Likelihood
from headstart.passes import check_outputs, draw, drawing, evaluating, local_is_approximate
from headstart.sampling import local_moments

MOST_PASSES = 16
"""How often small data goes through the net for the read-out."""
FEWEST_ROWS, ROWS_PER_WEIGHT = 4096, 8
"""Rows of a regression, where they are not given: eight for each weight of a unit, at least 4096."""
FEWEST_IMAGES, PATCHES_PER_WEIGHT = 1024, 4
"""Images whose patches a convolution regresses on, at least; and patches for each weight of a filter."""
RESCALE_IMAGES = 512
"""Images on whose feature maps pre-activations are measured; a dense layer takes `FEWEST_ROWS` rows."""
ROWS_OF_A_DRAW, FEWEST_DRAWS = 256, 16
"""Rows that go through one draw of the weights at most, and draws of a batch: more draws say more, and small feature maps stay in the cache."""
FIT_DRAWS = 8
"""Draws of the net from which the likelihood is fitted."""
SCARCE, MOSTLY_NOISE = 8000, 0.5
"""Fewer rows than this are few for targets of which more than this share is noise: codes of classes, not a real label's features."""
LAST_ROWS = {"local": 16_384, "weights": 8192}
"""Rows of the read-out, where they are not given, by how the layers below are drawn: row by row, or as whole functions."""
MATRIX_BUDGET = 2**26
"""Numbers in the stack of precision matrices solved at once."""
ROW_BUDGET = 2**25
"""Numbers in the rows of one regression: a convolution with many positions takes fewer images."""


LEAST = {"rows": 2, "last_rows": 1, "patches": 2, "units_per_batch": 1, "evidence_rows": 1}
"""The least that these settings may be, where they are given."""


@dataclass(frozen=True)
class Settings:
    """The choices the paper leaves open.

    Hidden units: `targets` are `random_features` of the label or the `label` itself (a random class); `centre` and
    `standardize` them; a share of their standard deviation, from 0 in some units to `input_share` in others, is a random
    projection of the layer's own inputs, so that units differ and nothing is forgotten; `noise_var` replaces the likelihood's
    noise; the evidence of a unit with a hundred weights counts as that of `evidence_rows` rows, at most as many as there are, and
    less where units are wider or rows scarce (None: the rows at hand); `rescale` gives every pre-activation variance 1 and a mean
    drawn with standard deviation `bias_spread`; `units_per_batch` units (None: all of the layer) share a batch of `rows` rows
    (None: eight for each weight of a unit, at least 4096). A convolution takes `patches` patches from them, or four for each
    weight where those are more, evenly from all images (None: every patch).
    The read-out regresses on up to `last_rows` rows (None: 16 384, behind convolutions half as many), or without `read_out` like a
    hidden unit, on its own class; then `fit_noise` sets what the
    likelihood learns with the weights, a noise variance, to its best.
    """

    targets: str = "random_features"
    centre: bool = True
    standardize: bool = True
    input_share: float = 0.98
    noise_var: float | None = None
    evidence_rows: int | None = 10_000
    rescale: bool = True
    bias_spread: float = 0.7
    variance_scale: float = 1.0
    match: str = "kl_qp"
    rows: int | None = None
    units_per_batch: int | None = None
    patches: int | None = 8192
    read_out: bool = True
    last_rows: int | None = None
    fit_noise: bool = True

    def __post_init__(self) -> None:
        if self.targets not in ("label", "random_features"):
            raise unknown("kind of targets", self.targets, ("label", "random_features"))
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= least):
                raise HeadstartError(f"I-BLM's {name} is a whole number, at least {least}, not {value}.")
        for name in ("variance_scale", "noise_var"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise HeadstartError(f"I-BLM's {name} is a positive number, not {value}.")
        if not 0 <= self.input_share < 1:
            raise HeadstartError(f"input_share lies in [0, 1), not {self.input_share}.")
        if self.match not in ("kl_qp", "kl_pq"):
            raise unknown("match", self.match, ("kl_qp", "kl_pq"))


DEFAULT = Settings()
PAPER = Settings(
    targets="label",
    centre=False,
    standardize=False,
    input_share=0.0,
    evidence_rows=None,
    rescale=False,
    bias_spread=0.0,
    rows=256,
    units_per_batch=1,
    patches=None,
    read_out=False,
    fit_noise=False,
)
"""Algorithm 1 to the letter: a fresh mini-batch and a random class for each unit."""


@torch.no_grad()
def iblm_(model: nn.Module, likelihood: Likelihood, batches: Batches, settings: Settings = DEFAULT) -> Iterator[str]:
    """Initialise every Bayesian layer of `model`, first to last; yields the name of each as it is done."""
    if batches.num_data == 1:
        raise HeadstartError("I-BLM regresses over rows, so it needs at least two of them; the batches hold one.")
    x = next(batches.take(2))[0]
    outputs = count_outputs(model, x)
    *hidden, (last_name, last) = execution_order(model, x).items()
    fits = last.posterior.units == outputs and adds_up(model, last, x)
    if not fits:
        warnings.warn(
            f"The net's output is not that of its last Bayesian layer {last_name!r} (plus what does not depend on it), so I-BLM "
            "initialises this layer like a hidden one and cannot fit the labels before training.",
            stacklevel=2,
        )
    # Row by row where that is the true law, else one draw of the weights for all rows of a batch.
    sampler = "weights" if local_is_approximate(model, x) else "local"
    task = _Task(model, likelihood, batches, settings, outputs, sampler)
    for number, (name, layer) in enumerate(hidden):
        task.regress(layer, first=number == 0)
        yield name
    if not fits:
        task.regress(last, first=not hidden)
    elif not settings.read_out:
        task.regress(last, first=not hidden, own_class=True)
    else:
        task.read_out(last, first=not hidden)
    if settings.fit_noise and fits and any(p.requires_grad for p in likelihood.parameters()):
        task.fit_likelihood()
    yield last_name


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """All rows in one tensor; of a single part there is nothing to copy."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


class _Extent(NamedTuple):
    """Rows of a layer's regression, positions of each, and rows on which its pre-activations are measured."""

    rows: int
    positions: int
    measured: int


class _Stream:
    """Rows in any number, from batch after batch, pass after pass; what is left of a batch is not used."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches.forever()

    def take(self, rows: int) -> tuple[Tensor, Tensor]:
        parts: list[tuple[Tensor, Tensor]] = []
        while sum(len(x) for x, _ in parts) < rows:
            parts.append(next(self.batches))
        xs, ys = zip(*parts, strict=True)
        return _joined(xs)[:rows], _joined(ys)[:rows]


@dataclass(frozen=True)
class _Task:
    """One initialisation: the model with its data and settings, and how the layers below the one at hand are drawn."""

    model: nn.Module
    likelihood: Likelihood
    batches: Batches
    settings: Settings
    outputs: int
    sampler: str

    def _inputs(self, layer: Bayesian, x: Tensor) -> Tensor:
        """What reaches the layer."""
        parts = x.split(min(self._at_once(x), max(1, len(x) // FEWEST_DRAWS))) if self.sampler == "weights" else [x]
        return _joined([layer_input(self.model, layer, part, self.sampler) for part in parts])

    def _at_once(self, x: Tensor) -> int:
        """How many of these rows may share a draw of the layers below; drawn row by row, they go through together."""
        return ROWS_OF_A_DRAW if self.sampler == "weights" else len(x)

    def regress(self, layer: Bayesian, first: bool, own_class: bool = False) -> None:
        """Every unit regresses its layer's inputs on a function of the labels of its own, chunk by chunk of units."""
        settings, count = self.settings, layer.posterior.units
        if own_class:  # a read-out has nothing to pass on
            settings = replace(settings, input_share=0.0)
        extent = self._extent(layer, first)
        stream = _Stream(self.batches)
        shares = _shares(count, settings.input_share)
        parts: list[UnitGaussian] = []
        for units in torch.arange(count).split(settings.units_per_batch or count):
            x, y = stream.take(extent.rows)
            rows = _patches(layer, self._inputs(layer, x), extent.positions)
            t, v = _targets(self.likelihood, self.likelihood.check(y, self.outputs), units, settings, own_class)
            parts.extend(_solve(layer, rows, t, v, units, shares[units], settings, self.batches.num_data))
        one, zero = torch.ones_like(parts[0].mean[:1, :1]), torch.zeros_like(parts[0].mean[:1])
        gaussian = Rescaled(Stacked(tuple(parts)), one, zero, settings.variance_scale)
        layer.posterior.project_(gaussian, settings.match)
        if settings.rescale and not own_class:  # on its own batch a fitted unit looks smaller than it is: take another
            inputs = self._inputs(layer, stream.take(extent.measured)[0])
            scaled = Rescaled(gaussian, *_normalising(layer, inputs, settings.bias_spread))
            layer.posterior.project_(scaled, settings.match)

    def _extent(self, layer: Bayesian, first: bool) -> _Extent:
        """How much a layer looks at. Rows may come twice, each time with a fresh draw of the layers below, where that changes them."""
        settings, weights = self.settings, layer.posterior.size
        positions, size = design(layer.op, self._inputs(layer, self._few(1)[0])).shape[2:]
        most = self.batches.num_data if first or settings.evidence_rows is None else math.inf
        measured = FEWEST_ROWS if positions == 1 else RESCALE_IMAGES
        if positions > 1 and settings.patches is not None:
            patches = max(settings.patches, PATCHES_PER_WEIGHT * weights)
            rows = min(most, settings.rows or max(FEWEST_IMAGES, math.ceil(patches / positions)))
            positions = min(positions, math.ceil(patches / rows))
        else:
            rows = min(most, settings.rows or max(FEWEST_ROWS, ROWS_PER_WEIGHT * weights))
        rows = max(2, min(int(rows), ROW_BUDGET // (groups(layer.op) * positions * size)))
        return _Extent(rows, positions, min(rows, measured))

    def _few(self, rows: int) -> tuple[Tensor, Tensor]:
        return next(self.batches.take(rows))

    def read_out(self, layer: Bayesian, first: bool) -> None:
        """The last layer on all rows up to `last_rows`, from statistics summed over batches; some likelihoods look twice.

        Small data goes through several times, each time with a fresh draw of the layers below, and counts once: the statistics
        are those expected under q, so the read-out does not trust features that another draw would not give.
        """
        layer.posterior.project_(self._read_out_once(layer, first, refined=False), self.settings.match)
        x, y = self._few(2)
        if self.likelihood.refined_targets(self.likelihood.check(y, self.outputs), self._mean_outputs(x)) is not None:
            layer.posterior.project_(self._read_out_once(layer, first, refined=True), self.settings.match)

    def _read_out_once(self, layer: Bayesian, first: bool, refined: bool) -> UnitGaussian:
        given, num_data = self.settings.last_rows, self.batches.num_data
        limit = LAST_ROWS[self.sampler] if given is None else given
        passes = 1 if first else max(1, min(MOST_PASSES, limit // num_data))
        weight = max(1.0, num_data / limit) / passes  # the rows looked at stand for all there are
        members = torch.arange(self.outputs).chunk(groups(layer.op))
        statistics = [Statistics() for _ in members]
        for _ in range(passes):
            for x, y in self._pieces(limit):
                y = self.likelihood.check(y, self.outputs)
                targets = self.likelihood.refined_targets(y, self._mean_outputs(x)) if refined else None
                t, v = targets or self.likelihood.regression_targets(y, self.settings.centre)
                # What the net adds to the layer is not its to fit.
                inputs, offset = replaced(self.model, layer, x, 0.0, self.sampler)
                rows = _rows_with_bias(layer, inputs)
                positions = rows.shape[2]
                t, v = (part.double().repeat_interleave(positions, 0) for part in (t - offset.to(t), v))
                for group, units, mine in zip(rows, members, statistics, strict=True):
                    noise = v[:, units] if v.shape[1] > 1 else v
                    mine.add(group.flatten(0, 1), t[:, units], noise, weight / positions)
        solved = [layer.prior.condition(mine, units) for mine, units in zip(statistics, members, strict=True)]
        return solved[0] if len(solved) == 1 else Stacked(tuple(solved))

    def _pieces(self, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
        """At most `rows` rows, as many at a time as share a draw."""
        for x, y in self.batches.take(rows):
            yield from zip(x.split(self._at_once(x)), y.split(self._at_once(x)), strict=True)

    def fit_likelihood(self) -> None:
        """What the likelihood learns with the weights, at its best for what the net now predicts."""
        rows = FEWEST_ROWS if self.sampler == "local" else RESCALE_IMAGES
        x, y = _Stream(self.batches).take(min(rows, self.batches.num_data))
        with evaluating(self.model):
            f = check_outputs(draw(self.model, x, FIT_DRAWS, self.sampler))
        self.likelihood.fit_(f, self.likelihood.check(y, self.outputs))

    def _mean_outputs(self, x: Tensor) -> Tensor:
        with evaluating(self.model), drawing(self.model, "mean"):
            return self.model(x)


def _targets(
    likelihood: Likelihood, y: Tensor, units: Tensor, settings: Settings, own_class: bool
) -> tuple[Tensor, Tensor]:
    """Targets and noise of these units, (N, units) and (N, units) or (N, 1), in float64."""
    if settings.targets == "random_features" and not own_class:
        t, v = likelihood.label_features(y, len(units))
    else:
        t, v = likelihood.regression_targets(y, centre=False)
        which = units if own_class else torch.randint(t.shape[1], units.shape)
        t, v = t[:, which], v[:, which] if v.shape[1] > 1 else v
    t, v = t.double(), v.double()
    if settings.noise_var is not None:
        v = torch.full_like(v[:, :1], settings.noise_var)
    if settings.centre:
        t = t - t.mean(0)
    if settings.standardize:
        var = _variance(t).clamp_min(1e-12)
        t, v = t / var.sqrt(), v / (var if v.shape[1] > 1 else var.mean())
    return t, v


def _solve(
    layer: Bayesian,
    rows: Tensor,
    t: Tensor,
    v: Tensor,
    units: Tensor,
    share: Tensor,
    settings: Settings,
    num_data: int,
) -> list[UnitGaussian]:
    """One Bayesian linear model per unit, the units of each group on their own rows (G, N, P, D)."""
    positions, size = rows.shape[2:]
    t, v = t.repeat_interleave(positions, 0), v.repeat_interleave(positions, 0)
    if settings.evidence_rows is not None:
        v = v * (len(t) / _evidence(settings.evidence_rows, num_data, size, float(v.mean())))
    group_of = units // (layer.posterior.units // groups(layer.op))
    parts = []
    for g in group_of.unique().tolist():
        x = rows[g].flatten(0, 1)
        members = (group_of == g).nonzero().squeeze(1)  # next to each other
        mine = slice(int(members[0]), int(members[-1]) + 1)
        noise = v[:, mine] if v.shape[1] > 1 else v
        targets = _mixed(t[:, mine], x, share[mine])
        at_once = max(1, MATRIX_BUDGET // min(size, len(x)) ** 2) if noise.shape[1] > 1 else len(members)
        for start in range(0, len(members), at_once):
            chunk, statistics = slice(start, start + at_once), Statistics()
            statistics.add(x, targets[:, chunk], noise[:, chunk] if noise.shape[1] > 1 else noise)
            parts.append(layer.prior.condition(statistics, units[members[chunk]]))
    return parts


def _evidence(most: int, num_data: int, size: int, noise_var: float) -> float:
    """How many rows the evidence of a unit with `size` weights counts for.

    `most` for a unit of a hundred weights, less for a wider one, never more than there are; and where rows are few and
    targets mostly noise, a share of them: there the net must start unsure, or it overfits before the KL can tell it so.
    """
    enough = min(1.0, num_data / SCARCE) if noise_var > MOSTLY_NOISE else 1.0
    return enough * min(num_data, most * math.sqrt(100 / size))


def _shares(count: int, most: float) -> Tensor:
    """The share of the inputs in the targets of each unit of a layer: from 0 to `most`, evenly in variance, in random order."""
    return most * ((torch.randperm(count) + 0.5) / count).sqrt().double() if most else torch.zeros(count)


def _mixed(t: Tensor, x: Tensor, share: Tensor) -> Tensor:
    """`√(1−share²) · t + share · z`, z a standardised random projection of the rows."""
    if not share.any():
        return t
    rows = (x - x.mean(0)).float()  # any projection will do, a rounded one too
    z = rows @ torch.randn(x.shape[1], t.shape[1], dtype=rows.dtype, device=x.device)
    share = share.to(t)
    return (1 - share**2).sqrt() * t + z * (share / _variance(z).double().sqrt().clamp_min(1e-12))


def _variance(t: Tensor) -> Tensor:
    """`t.var(0, correction=0)`, several times faster."""
    return (t - t.mean(0)).square_().mean(0)


def _patches(layer: Bayesian, inputs: Tensor, count: int) -> Tensor:
    """The rows of a regression, (G, N, count, D): of each example `count` positions, evenly spaced from a random one on."""
    total = design(layer.op, inputs[:1]).shape[2]
    if count >= total:
        return _rows_with_bias(layer, inputs)
    start = torch.randint(total, (len(inputs), 1), device=inputs.device)
    return _rows_with_bias(layer, inputs, (start + torch.arange(count, device=inputs.device) * total // count) % total)


def _rows_with_bias(layer: Bayesian, inputs: Tensor, at: Tensor | None = None) -> Tensor:
    rows = design(layer.op, inputs, at)
    if not layer.has_bias:
        return rows.double()
    extended = torch.ones(*rows.shape[:-1], rows.shape[-1] + 1, dtype=torch.float64, device=rows.device)
    extended[..., :-1] = rows
    return extended


def _normalising(layer: Bayesian, inputs: Tensor, bias_spread: float) -> tuple[Tensor, Tensor]:
    """The scale and bias shift that give each unit's sampled pre-activation variance 1 and a random mean over these inputs."""
    mean, var = local_moments(layer.op, layer.posterior, inputs)
    axis = channel_axis(layer.op)
    mean, var = (part.movedim(axis, -1).flatten(0, -2).double() for part in (mean, var))
    total = _variance(mean) + var.mean(0)
    scale = total.clamp_min(1e-12).rsqrt()
    shift = torch.zeros_like(layer.posterior.mean, dtype=torch.float64)
    if layer.has_bias:
        shift[:, -1] = bias_spread * torch.randn_like(scale) - scale * mean.mean(0)
    return scale.unsqueeze(1), shift
