"""`refine_`: the read-out solved again, given the law of its features under q of the layers below.

Given the layers below it the read-out is a Bayesian linear model, so that its best posterior is
known: with full covariance, in closed form where noise is Gaussian, by a few natural-gradient steps
elsewhere.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import nn

from headstart.batching import Data
from headstart.distributed.collectives import ProcessGroup, group_of
from headstart.distributed.fabric import Fabric
from headstart.kernels.random_state import seeded
from headstart.likelihoods import Likelihood
from headstart.likelihoods.noise import NoiseModel
from headstart.linalg.gaussians import UnitGaussian
from headstart.network.layer import Bayesian, bayesian_layers
from headstart.posteriors import FullCovariance, Posterior
from headstart.priors import Prior
from headstart.training.closed_form import gaussian_statistics, solve_gaussian, with_targets
from headstart.training.natural_gradient import negative_bound, observe, step_up
from headstart.training.predictive_noise import predictive_noise
from headstart.training.read_out import MAX_ROWS, FeatureDraws, ReadOut, find_read_out

VALIDATION_ROWS = 2048
"""Validation rows that are read."""


@dataclass(frozen=True)
class RefineReport:
    """What `refine_` did; print it for a table.

    Args:
        layer: the name of the read-out.
        nelbo_before: the negative evidence lower bound of the net before, on the draws used.
        nelbo_after: the same afterwards; never larger.
        prior_before: the prior variance of the read-out; None where there is no single one.
        prior_after: the same afterwards.
        noise_before: the noise variances in units of y squared; None where there are none.
        noise_after: the noise variances that maximize the bound.
        noise_predictive: those that predictions use.
        rows: the rows of the data that were read.
        steps: natural-gradient steps; 0 where the solution is in closed form.
        kept: whether the old posterior was better on these draws, and stayed.
        seconds: that it took.
    """

    layer: str
    nelbo_before: float
    nelbo_after: float
    prior_before: float | None
    prior_after: float | None
    noise_before: tuple[float, ...] | None
    noise_after: tuple[float, ...] | None
    noise_predictive: tuple[float, ...] | None
    rows: int
    steps: int
    kept: bool
    seconds: float

    def __str__(self) -> str:
        rows = [
            ("", "before", "after"),
            ("NELBO", f"{self.nelbo_before:.6g}", f"{self.nelbo_after:.6g}"),
            ("prior variance", _numbers(self.prior_before), _numbers(self.prior_after)),
        ]
        if self.noise_before is not None:
            rows += [
                ("noise variance", _numbers(self.noise_before), _numbers(self.noise_after)),
                ("  of predictions", "", _numbers(self.noise_predictive)),
            ]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = [
            f"{a.ljust(widths[0])}  {b.rjust(widths[1])}  {c.rjust(widths[2])}" for a, b, c in rows
        ]
        how = f"{self.steps} natural-gradient steps" if self.steps else "closed form"
        where = f"layer {self.layer!r}" if self.layer else "the net"
        last = f"read-out of {where}: {how}, {self.rows} rows, {self.seconds:.2f} s"
        if self.kept:
            last += "\n! the old posterior was at least as good on these draws, and was kept."
        return "\n".join([*lines, last])


def _numbers(values: float | tuple[float, ...] | None) -> str:
    if values is None:
        return "-"
    return ", ".join(f"{v:.4g}" for v in (values if isinstance(values, tuple) else (values,)))


@torch.no_grad()
def refine_(
    model: nn.Module,
    likelihood: Likelihood,
    batches: Data,
    *,
    validation: Data = None,
    learn_prior: bool = True,
    rows: int | None = None,
    num_data: int | None = None,
    seed: int | None = 0,
    fabric: Fabric | None = None,
) -> RefineReport:
    """Solve the last layer again, exactly, given the law of its features.

    The last Bayesian layer gets full covariance. Given q of the layers below, its best posterior
    for Gaussian noise is that of a Bayesian linear model with expected statistics, the prior
    variance and the noise at the maximum of the bound; for other likelihoods natural-gradient
    steps climb to it. The evidence lower bound never falls on the draws used: where it would, the
    old posterior stays. A read-out with so many weights that only a part of the rows can be used is
    judged by other rows.

    The read-out of every member of a mixture is solved on that member's features; noise and prior,
    which they share, maximize the mean of the members' bounds.

    The noise that maximizes the bound, `E_q (y − f)²`, counts the variance of the weights, and a
    prediction counts it again. So a `Gaussian` predicts with a noise of its own
    (`predictive_ratio`).

    Args:
        model: The Bayesian net, trained or only initialized; its last layer is replaced, so an
            optimizer that was made before does not know it.
        likelihood: The likelihood of its labels; a noise that is learned is set.
        batches: The training rows, as in `fit`.
        validation: Rows on which the noise of predictions is chosen; None takes the error of the
            training rows, over the fraction of the degrees of freedom that the net has left.
        learn_prior: Whether the read-out's prior variance is set too, where it has a single one.
        rows: A bound on the rows read; None for 262 144, or what memory allows.
        num_data: The number of training rows, where a loader's length does not tell.
        seed: Seeds the draws, and the caller's random numbers come back afterwards; None: the
            caller's.
        fabric: A launched `lightning.fabric.Fabric`: each rank draws the features of a shard of the
            rows, the statistics are summed over ranks, and all get the same read-out, that of one
            process.

    Returns:
        NELBO, noise and prior before and after.

    Raises:
        HeadstartError: The net does not end in a linear read-out, or one that is too large.

    Example:
        >>> import headstart as hs
        >>> x = torch.linspace(-2, 2, 200).unsqueeze(1)
        >>> model, lik = hs.bayesianize(hs.models.create("mlp-1x50", 1, 1)), hs.Gaussian()
        >>> _ = hs.initialize_(model, "iblm", lik, (x, x.sin()))
        >>> report = hs.refine_(model, lik, (x, x.sin()))
        >>> report.nelbo_after < report.nelbo_before, model[-1].posterior.name
        (True, 'full_covariance')
    """
    start = time.perf_counter()
    group = group_of(fabric, model)
    seed = group.common_seed(seed)
    with seeded(seed, model):
        group.broadcast_(model, likelihood)
        read_out = find_read_out(model, likelihood, batches, num_data, group)
        limit = min(read_out.num_data, MAX_ROWS if rows is None else rows)
        noise = likelihood.noise_model(read_out.outputs)
        if noise is None:
            found = _refine_by_steps(read_out, learn_prior, limit)
        else:
            held_out = None
            if validation is not None:
                held_out = _validation_features(model, likelihood, validation, group)
            found = _refine_gaussian(read_out, noise, learn_prior, limit, held_out)
    # Ranks have solved the same problem, perhaps on other processors.
    group.broadcast_(model, likelihood)
    below = sum(
        float(layer.kl()) for layer in bayesian_layers(model).values() if layer != read_out.layer
    )
    report = RefineReport(
        read_out.name,
        found.before + below,
        found.after + below,
        *found.priors,
        *found.noises,
        rows=found.rows,
        steps=found.steps,
        kept=found.kept,
        seconds=time.perf_counter() - start,
    )
    return read_out.of_first(report)


@dataclass(frozen=True)
class _Refinement:
    """What became of the read-out: terms of the bound, prior variances, noise variances."""

    rows: int
    before: float
    after: float
    priors: tuple[float | None, float | None]
    noises: tuple[tuple[float, ...] | None, tuple[float, ...] | None, tuple[float, ...] | None]
    steps: int
    kept: bool


def _refine_gaussian(
    read_out: ReadOut,
    noise: NoiseModel,
    learn_prior: bool,
    rows: int,
    held_out: list[FeatureDraws] | None,
) -> _Refinement:
    """Gaussian noise, in closed form."""
    layer = read_out.layer
    statistics = gaussian_statistics(read_out, noise, rows)
    before = statistics.negative_bound(layer, noise.log_var)
    found = solve_gaussian(statistics, layer, learn_prior)
    old = layer.posterior, layer.prior
    replace_read_out_(layer, found.gaussian, found.prior)
    after = statistics.negative_bound(layer, found.log_noise)
    kept = read_out.of_first(not after <= before)
    lik = read_out.likelihood
    if kept:
        layer.posterior, layer.prior = old
        after = before
    else:
        lik.set_noise_(
            found.log_noise,
            predictive_noise(read_out, statistics, found.gaussian, found.log_noise, held_out),
        )
    now = [each.noise_model(read_out.outputs) for each in (lik, lik.for_prediction())]
    noises = [tuple(each.log_var.exp().tolist()) for each in (noise, *now) if each is not None]
    priors = _variances(old[1], layer.prior)
    return _Refinement(
        statistics.rows, before, after, priors, (noises[0], noises[1], noises[2]), 0, kept
    )


def _refine_by_steps(read_out: ReadOut, learn_prior: bool, rows: int) -> _Refinement:
    """Any likelihood, by natural-gradient steps."""
    layer = read_out.layer
    observed = observe(read_out, rows)
    before = negative_bound(observed.check, layer)
    found = step_up(observed.fit, layer, learn_prior, read_out.num_data)
    old = layer.posterior, layer.prior
    replace_read_out_(layer, found.gaussian, found.prior)
    after = negative_bound(observed.check, layer)
    kept = read_out.of_first(not after <= before)
    if kept:
        layer.posterior, layer.prior = old
        after = before
    else:
        # It was found for the posterior of before.
        read_out.likelihood.forget_predictive_noise_()
    priors = _variances(old[1], layer.prior)
    return _Refinement(observed.rows, before, after, priors, (None, None, None), found.steps, kept)


def replace_read_out_(layer: Bayesian, gaussian: UnitGaussian, prior: Prior) -> None:
    """Give the layer this posterior, as trainable as the old one, and this prior.

    Args:
        layer: the read-out, overwritten.
        gaussian: its weights.
        prior: their prior.
    """
    old: Posterior = layer.posterior
    made = FullCovariance(old.units, old.size, dtype=old.mean.dtype, device=old.mean.device)
    made.project_(gaussian)
    layer.posterior = made.requires_grad_(old.mean.requires_grad)
    layer.prior = prior


def _variances(before: Prior, after: Prior) -> tuple[float | None, float | None]:
    """The single variances of two priors, where they have one."""
    if before.with_variance(1.0) is None:
        return None, None
    return 1 / before.mean_precision(), 1 / after.mean_precision()


def _validation_features(
    model: nn.Module, likelihood: Likelihood, validation: Data, group: ProcessGroup
) -> list[FeatureDraws]:
    """Features of validation rows, and in the place of offsets what the read-out is to give."""
    read_out = find_read_out(model, likelihood, validation, group=group)
    parts = read_out.read(VALIDATION_ROWS, 1, first=VALIDATION_ROWS)
    return [with_targets(read_out, part) for part in parts]
