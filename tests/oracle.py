"""I-BLM written plainly: one unit at a time, one float64 solve each, all rows at hand.

It is slow, and the judge of the fast one.
It asks the library only *what* is regressed: rows, targets and the random draws behind them.
*How* is its own: no shared Gram matrices or factors, no dual, no chunks, no statistics.
Given the same random state it must end at the same posterior.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch
from scipy.optimize import brentq
from torch import Tensor, nn

from headstart.batching import Batches
from headstart.initializers.carried import CarriedRows, read_out_rows, row_source
from headstart.initializers.certainty import effective_rows, max_noise_fraction
from headstart.initializers.iblm import IBLM, MAX_PASSES, Extent
from headstart.initializers.layer_inputs import RowStream
from headstart.initializers.regression import (
    draw_input_fractions,
    draw_projection,
    mix_with_inputs,
    take_patches,
    unit_targets,
)
from headstart.initializers.settings import DEFAULT_SETTINGS, IBLMSettings
from headstart.initializers.walk import count_outputs, execution_order, is_linear_head, linear_head
from headstart.likelihoods import Likelihood
from headstart.linalg.affine import design, groups
from headstart.network.forward import drawing
from headstart.network.layer import Bayesian
from headstart.network.probe import evaluating, local_is_approximate


def solve_unit(x: Tensor, t: Tensor, noise_var: Tensor, prior_var: float) -> tuple[Tensor, Tensor]:
    """`P = I/σp² + Xᵀ diag(1/v) X`, `m = P⁻¹ Xᵀ (t/v)`: mean (D,) and precision (D, D).

    Of x (N, D), t (N,) and noise_var (N,).
    """
    precision = torch.eye(x.shape[1], dtype=torch.float64) / prior_var + (x.T / noise_var) @ x
    rhs = x.T @ (t / noise_var)
    return torch.cholesky_solve(rhs.unsqueeze(1), torch.linalg.cholesky(precision)).squeeze(
        1
    ), precision


def unit_variance(precision: Tensor, match: str) -> Tensor:
    """The mean-field variances nearest to a precision matrix P.

    `1/P_ii` in KL(q‖p), `(P⁻¹)_ii` in KL(p‖q).
    """
    return 1 / precision.diagonal() if match == "kl_qp" else torch.linalg.inv(precision).diagonal()


@torch.no_grad()
def plain_iblm_(
    model: nn.Module,
    likelihood: Likelihood,
    batches: Batches,
    settings: IBLMSettings = DEFAULT_SETTINGS,
) -> None:
    """What `iblm_` does to a mean-field model, layer after layer and unit after unit."""
    x = next(batches.take(2))[0]
    outputs = count_outputs(model, x)
    *hidden, last = execution_order(model, x).values()
    fits = last.posterior.units == outputs and is_linear_head(model, last, x)
    carries = bool(hidden) and fits
    plain = Plain(
        model, likelihood, batches, settings, outputs, x, len(hidden) + (not fits), carries
    )
    # Carried rows are drawn first.
    assert plain.task is not None
    for number, layer in enumerate(hidden):
        plain.layer_(layer, first=number == 0)
    if not fits:
        plain.layer_(last, first=not hidden)
    elif not settings.read_out:
        plain.layer_(last, first=not hidden, own_class=True)
    else:
        plain.read_out_(last, first=not hidden)


@dataclass(frozen=True)
class Plain:
    """One initialization of a model whose layers are mean-field under N(0, σp²)."""

    model: nn.Module
    likelihood: Likelihood
    batches: Batches
    settings: IBLMSettings
    outputs: int
    few: Tensor
    layers: int
    carries: bool = False
    """Whether a net that is a chain carries its rows from layer to layer."""
    extents: dict[Bayesian, Extent] = field(default_factory=dict)
    """How much of the data each layer uses."""

    @cached_property
    def task(self) -> IBLM:
        """What knows which rows to take."""
        sampler = "weights" if local_is_approximate(self.model, self.few) else "local"
        task = IBLM(
            self.model,
            self.likelihood,
            self.batches,
            self.settings,
            self.outputs,
            sampler,
            self.layers,
        )
        return task.carrying() if self.carries else task

    def layer_(self, layer: Bayesian, first: bool, own_class: bool = False) -> None:
        """Regress every unit of the layer, then normalize its pre-activations on another batch."""
        stream = self.stream(layer, first)
        noise_var = self.regress_(layer, stream, range(layer.posterior.units), own_class)
        if self.settings.rescale and not own_class:
            (inputs,) = stream.inputs.of(layer, stream.beside(self.extents[layer].measured))
            most = max_noise_fraction(
                self.settings.noise_share, self.layers, self.batches.num_data, noise_var
            )
            self.rescale_(layer, inputs, most)

    def stream(self, layer: Bayesian, first: bool) -> RowStream | CarriedRows:
        """The batches of this layer's regressions."""
        carried = None if first else self.task.carried
        if carried is not None:
            carried.reach_(layer)
        self.extents[layer] = self.task.extent(layer, first)
        return row_source(self.task.inputs, carried, self.extents[layer])

    def regress_(
        self,
        layer: Bayesian,
        stream: RowStream | CarriedRows,
        units: Iterable[int],
        own_class: bool = False,
    ) -> float:
        """Place these units, `units_per_batch` of them on each batch and its forward pass.

        Returns:
            The noise variance of the last targets.
        """
        settings, units = self.settings, torch.tensor(list(units))
        fractions = draw_input_fractions(
            layer.posterior.units, 0.0 if own_class else settings.input_share
        )
        for members in units.split(settings.units_per_batch or len(units)):
            piece = stream.take(self.extents[layer].rows)
            if own_class:
                rows = stream.inputs.all_head_rows(layer, piece)
            else:
                inputs = stream.inputs.of(layer, piece)
                rows = take_patches(layer, inputs, self.extents[layer].positions)
            y = self.likelihood.check(piece.y, self.outputs)
            t, v = unit_targets(self.likelihood, y, members, settings, own_class)
            self._solve_(layer, rows, t, v.expand_as(t), members, fractions[members])
        return float(v.mean())

    def _solve_(
        self, layer: Bayesian, rows: Tensor, t: Tensor, v: Tensor, units: Tensor, fraction: Tensor
    ) -> None:
        """Units on the rows (G, N, P, D) of their group, targets repeated at every position."""
        settings, positions = self.settings, rows.shape[2]
        t, v = t.repeat_interleave(positions, 0), v.repeat_interleave(positions, 0)
        if settings.evidence_rows is not None:
            worth = effective_rows(
                settings.evidence_rows, self.batches.num_data, rows.shape[-1], float(v.mean())
            )
            # So many rows' worth of evidence.
            v = v * len(v) / worth
        for g in range(groups(layer.op)):
            mine = [i for i, unit in enumerate(units.tolist()) if group_of(layer, unit) == g]
            if not mine:
                continue
            x = rows[g].flatten(0, 1)
            projection = draw_projection(x, fraction[mine])
            mixed = mix_with_inputs(t[:, mine], x, fraction[mine], projection)
            for i, target in zip(mine, mixed.T, strict=True):
                mean, precision = solve_unit(x, target, v[:, i], float(layer.prior.var))
                store_(
                    layer,
                    int(units[i]),
                    mean,
                    settings.variance_scale * unit_variance(precision, settings.match),
                )

    def rescale_(self, layer: Bayesian, inputs: Tensor, max_noise: float) -> None:
        """`w → scale · w + shift`: `xᵀw` gets variance 1 over rows and draws, and a random mean.

        Before that the weights' variance shrinks, where their noise is more than `max_noise` of
        the layer's variance.
        """
        rows, posterior = rows_with_bias(layer, inputs), layer.posterior
        center = (
            self.settings.bias_spread * torch.randn(posterior.units, dtype=torch.float64)
            if layer.has_bias
            else None
        )
        moments = []
        for unit in range(posterior.units):
            x = rows[group_of(layer, unit)].flatten(0, 1)
            mean, var = posterior.mean[unit].double(), posterior.variance()[unit].double()
            moments.append((mean, var, x @ mean, x.square() @ var))
        pairs = [
            (float(of_mean.var(correction=0)), float(of_noise.mean()))
            for _, _, of_mean, of_noise in moments
        ]

        def excess(less: float) -> float:
            return (
                sum(less * noise / (signal + less * noise) for signal, noise in pairs) / len(pairs)
                - max_noise
            )

        less = 1.0 if excess(1.0) <= 0 else brentq(excess, 0.0, 1.0, xtol=1e-15)
        for unit, (mean, var, of_mean, of_noise) in enumerate(moments):
            var, of_noise = less * var, less * of_noise
            scale = 1 / (of_mean.var(correction=0) + of_noise.mean()).sqrt()
            mean = scale * mean
            if center is not None:
                mean[-1] += center[unit] - scale * of_mean.mean()
            store_(layer, unit, mean, scale.square() * var)

    def read_out_(self, layer: Bayesian, first: bool) -> None:
        """The last layer on every row; again where the likelihood then has better targets."""
        self._read_out_once_(layer, first, refined=False)
        if self._refined(*next(self.batches.take(2))) is not None:
            self._read_out_once_(layer, first, refined=True)

    def _read_out_once_(self, layer: Bayesian, first: bool, refined: bool) -> None:
        rows, targets, noise = zip(*self._read_out_rows(layer, first, refined), strict=True)
        x, t, v = torch.cat(rows, 1), torch.cat(targets), torch.cat(noise)
        for unit in range(self.outputs):
            mean, precision = solve_unit(
                x[group_of(layer, unit)], t[:, unit], v[:, unit], float(layer.prior.var)
            )
            store_(layer, unit, mean, unit_variance(precision, self.settings.match))

    def _read_out_rows(
        self, layer: Bayesian, first: bool, refined: bool
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Rows (G, N, D), targets and noise (N, K); the noise says how often each row counts."""
        task = self.task
        carried, passes = None if refined else task.carried, 1 if first else MAX_PASSES
        limit, num_data = task.last_rows, self.batches.num_data
        read = max(1, min(passes, limit // num_data)) * min(limit, num_data)
        count_as = num_data / (read if carried is None else carried.total)
        for inputs, (x, y, _) in read_out_rows(task.inputs, carried, layer, limit, passes):
            checked = self.likelihood.check(y, self.outputs)
            found = self._refined(x, y) if refined else None
            t, v = found or self.likelihood.regression_targets(checked, self.settings.center)
            head = linear_head(inputs.model, layer, x, task.sampler)
            ((given, weights),) = head.calls
            rows = torch.einsum("np,gnpd->gnd", weights.double(), rows_with_bias(layer, given))
            yield (
                rows,
                (t - head.offset).double(),
                v.double().expand(len(t), self.outputs) / count_as,
            )

    def _refined(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
        with evaluating(self.model), drawing(self.model, "mean"):
            return self.likelihood.refined_targets(
                self.likelihood.check(y, self.outputs), self.model(x)
            )


def rows_with_bias(layer: Bayesian, inputs: Tensor) -> Tensor:
    """X̃ in float64, (G, N, P, D): what each unit's weights multiply, a 1 for its bias last."""
    rows = design(layer.op, inputs).double()
    return (
        torch.cat([rows, torch.ones(*rows.shape[:-1], 1, dtype=rows.dtype)], -1)
        if layer.has_bias
        else rows
    )


def group_of(layer: Bayesian, unit: int) -> int:
    """The group whose inputs a unit sees."""
    return unit // (layer.posterior.units // groups(layer.op))


def store_(layer: Bayesian, unit: int, mean: Tensor, var: Tensor) -> None:
    """Write one unit of a mean-field posterior."""
    layer.posterior.mean[unit] = mean
    layer.posterior.logvar[unit] = var.log()
