"""Initializers by name, and the one function that runs them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import nn

from headstart.batching import Batches, Data
from headstart.distributed.collectives import group_of
from headstart.distributed.fabric import Fabric
from headstart.errors import HeadstartError, unknown
from headstart.initializers.data_free import DATA_FREE, apply_
from headstart.initializers.iblm import iblm_
from headstart.initializers.laplace import laplace_
from headstart.initializers.lsuv import lsuv_
from headstart.initializers.pretrained import pretrained_
from headstart.initializers.report import InitReport, make_report
from headstart.initializers.settings import (
    DEFAULT_SETTINGS,
    PAPER_SETTINGS,
    UNSET,
    IBLMSettings,
    Unset,
)
from headstart.kernels.random_state import seeded
from headstart.likelihoods import Likelihood
from headstart.likelihoods.base import require_likelihood
from headstart.network.layer import bayesian_layers, count_members
from headstart.network.members import member

REPORT_ROWS = 512
BATCH_SIZE = 4096
"""Rows of a pair of arrays that go through the net at a time."""


@dataclass(frozen=True)
class Initializer:
    """An initializer and what it takes.

    Args:
        run: called with model, likelihood, batches and its options; overwrites the posteriors, and
            yields the name of each layer as it is done.
        needs: which of "likelihood", "batches" and "net" must be given.
        options: the names of its options.
    """

    run: Callable[..., Iterator[str]]
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def _each_member(run: Callable[..., Iterator[str]]) -> Callable[..., Iterator[str]]:
    """An initializer of a single posterior, for every member of a mixture in turn."""

    def run_each(
        model: nn.Module, likelihood: Likelihood | None, batches: Batches | None, **options: Any
    ) -> Iterator[str]:
        for index in range(count_members(model)):
            with member(model, index):
                yield from run(model, likelihood, batches, **options)

    return run_each


def _without_data(rule: Callable[..., Any]) -> Initializer:
    return Initializer(_each_member(lambda model, likelihood, batches: apply_(model, rule)))


def _by_regression(defaults: IBLMSettings) -> Initializer:
    return Initializer(
        lambda model, likelihood, batches, **options: iblm_(
            model, likelihood, batches, replace(defaults, **options)
        ),
        needs=("likelihood", "batches"),
        options=tuple(f.name for f in fields(IBLMSettings)),
    )


INITIALIZERS: dict[str, Initializer] = {
    **{name: _without_data(rule) for name, rule in DATA_FREE.items()},
    "lsuv": Initializer(
        _each_member(
            lambda model, likelihood, batches, **options: lsuv_(model, batches, **options)
        ),
        needs=("batches",),
        options=("rows", "tolerance", "iterations"),
    ),
    "iblm": _by_regression(DEFAULT_SETTINGS),
    "iblm-paper": _by_regression(PAPER_SETTINGS),
    "pretrained": Initializer(
        _each_member(lambda model, likelihood, batches, **options: pretrained_(model, **options)),
        needs=("net",),
        options=("net", "relative_sd"),
    ),
    "laplace": Initializer(
        _each_member(laplace_),
        needs=("likelihood", "batches"),
        options=("net", "rows", "fit_noise"),
    ),
}


def initialize_(
    model: nn.Module,
    name: str,
    likelihood: Likelihood | None = None,
    batches: Data = None,
    *,
    seed: int | None = 0,
    num_data: int | None = None,
    fabric: Fabric | None = None,
    targets: str | Unset = UNSET,
    center: bool | Unset = UNSET,
    standardize: bool | Unset = UNSET,
    input_share: float | Unset = UNSET,
    noise_var: float | Unset | None = UNSET,
    evidence_rows: int | Unset | None = UNSET,
    rescale: bool | Unset = UNSET,
    bias_spread: float | Unset = UNSET,
    noise_share: float | Unset | None = UNSET,
    variance_scale: float | Unset = UNSET,
    match: str | Unset = UNSET,
    rows: int | Unset | None = UNSET,
    units_per_batch: int | Unset | None = UNSET,
    patches: int | Unset | None = UNSET,
    read_out: bool | Unset = UNSET,
    last_rows: int | Unset | None = UNSET,
    fit_noise: bool | Unset = UNSET,
    one_draw: bool | Unset = UNSET,
    tolerance: float | Unset = UNSET,
    iterations: int | Unset = UNSET,
    net: nn.Module | Unset = UNSET,
    relative_sd: float | Unset = UNSET,
    centre: bool | Unset = UNSET,
) -> InitReport:
    """Place the posterior of every Bayesian layer, and report the net at step 0.

    "uninformative", "heuristic", "xavier", "orthogonal" and "stock" (torch's own start) need no
    data; "lsuv" needs batches; "iblm" and "iblm-paper" need batches and the likelihood;
    "pretrained" needs a trained net, "laplace" a model of one, with batches and the likelihood.
    Given data, the report shows every layer's pre-activations.
    The members of a mixture are placed one after another, from random numbers that go on: I-BLM,
    "lsuv" and "orthogonal" give each a start of its own, the others the same to all.

    Args:
        model: a net from `bayesianize`, overwritten.
        name: one of `INITIALIZERS`.
        likelihood: what turns labels into regression targets.
        batches: a DataLoader, a re-iterable of `(x, y)`, or a pair of tensors or arrays.
        seed: makes the result reproducible and leaves torch's own random state as it was; None
            draws from that state.
        num_data: the number of rows, where the batches cannot tell it.
        fabric: a launched `lightning.fabric.Fabric`: each rank works on a shard of the rows, and
            the result is that of one process, rounding apart; the report is the first rank's.
        targets: I-BLM: hidden units regress on "random_features" of the label (the default) or on
            the "label" itself, that of a random class.
        center: I-BLM: whether targets are centered (True).
        standardize: I-BLM: whether targets are divided by their standard deviation (True).
        input_share: I-BLM: the largest fraction of a target's standard deviation that is a random
            projection of the layer's own inputs (0.98).
        noise_var: I-BLM: replaces the likelihood's noise variance (None: the likelihood's).
        evidence_rows: I-BLM: as how many rows the evidence of a unit with a hundred weights counts
            (10 000; None: the rows at hand).
        rescale: I-BLM: whether pre-activations get variance 1 and a random mean (True).
        bias_spread: I-BLM: the standard deviation of these random means (0.7).
        noise_share: I-BLM: of a pre-activation's variance at most `noise_share / layers²` is noise
            of the weights (6; None: no bound).
        variance_scale: I-BLM: multiplies the variances of hidden units (1).
        match: I-BLM: the divergence by which a posterior is projected, "kl_qp" or "kl_pq".
        rows: I-BLM: rows of a layer's regression (None: eight for each weight of a unit, at least
            4096). LSUV: rows of its measurement (1024). "laplace": a bound on the rows whose
            curvature is summed, which stand for the others (None: all).
        units_per_batch: I-BLM: how many units share a batch of rows (None: all of the layer).
        patches: I-BLM: patches that a convolution regresses on, or four for each weight where
            those are more (8192; None: every patch).
        read_out: I-BLM: whether the last layer regresses on all rows (True) or like a hidden one.
        last_rows: I-BLM: a bound on the rows of the read-out (None: 16 384, behind convolutions
            8192).
        fit_noise: I-BLM and "laplace": whether what the likelihood learns is set to its best
            (True).
        one_draw: I-BLM: whether all rows of a batch share one draw of the weights below, as the
            paper writes, instead of a draw for each row (False).
        tolerance: LSUV: how near to 1 a variance must be (0.01).
        iterations: LSUV: a bound on the rescalings of a layer (10).
        net: "pretrained": the trained net, of the same shape. "laplace": the same, where the model
            was not converted from it.
        relative_sd: "pretrained": standard deviations as a fraction of the root mean square of a
            layer's weights (0.1).
        centre: deprecated, now `center`.

    Returns:
        The report; print it for a table.

    Raises:
        HeadstartError: where the initializer is unknown, lacks something, or does not take an
            option that was given.

    Example:
        >>> import headstart as hs, torch
        >>> x = torch.randn(200, 4)
        >>> net = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 1))
        >>> report = hs.initialize_(hs.bayesianize(net), "iblm", hs.Gaussian(), (x, x.sum(1)))
        >>> [layer.name for layer in report.layers]
        ['0', '2']
    """
    if centre is not UNSET:
        warnings.warn("centre= is now center=.", DeprecationWarning, stacklevel=2)
        center = centre if center is UNSET else center
    options = _options_set(
        targets=targets,
        center=center,
        standardize=standardize,
        input_share=input_share,
        noise_var=noise_var,
        evidence_rows=evidence_rows,
        rescale=rescale,
        bias_spread=bias_spread,
        noise_share=noise_share,
        variance_scale=variance_scale,
        match=match,
        rows=rows,
        units_per_batch=units_per_batch,
        patches=patches,
        read_out=read_out,
        last_rows=last_rows,
        fit_noise=fit_noise,
        one_draw=one_draw,
        tolerance=tolerance,
        iterations=iterations,
        net=net,
        relative_sd=relative_sd,
    )
    if name not in INITIALIZERS:
        raise unknown("initializer", name, INITIALIZERS)
    # Refuses a model without any.
    bayesian_layers(model)
    _check_request(name, {"likelihood": likelihood, "batches": batches, **options})
    group = group_of(fabric, model)
    data = None
    if batches is not None:
        data = Batches(batches, batch_size=BATCH_SIZE, num_data=num_data, like=model, group=group)
    seed = group.common_seed(seed)
    if likelihood is not None:
        # It was found for the posterior that is about to change.
        likelihood.forget_predictive_noise_()
    with seeded(seed, model):
        seconds = _timed(INITIALIZERS[name].run(model, likelihood, data, **options))
        group.broadcast_(model, *([] if likelihood is None else [likelihood]))
        batch = None if data is None else next(data.take(REPORT_ROWS))
        total = None if data is None else data.num_data
        report = make_report(name, model, likelihood, batch, total, seconds)
        return group.broadcast(report)


def _options_set(**options: Any) -> dict[str, Any]:
    """Those options that the caller has set."""
    return {name: value for name, value in options.items() if value is not UNSET}


def _timed(layers: Iterator[str]) -> dict[str, float]:
    """Run an initializer; the seconds of each layer."""
    seconds, last = dict[str, float](), time.perf_counter()
    for layer in layers:
        now = time.perf_counter()
        # The members of a mixture come one after another.
        seconds[layer], last = seconds.get(layer, 0.0) + now - last, now
    return seconds


_REQUESTS = {
    "likelihood": "reads the labels: pass the likelihood, "
    "as in initialize_(model, {name!r}, likelihood, batches)",
    "batches": "needs data: pass batches, a DataLoader or a pair (x, y)",
    "net": "copies the weights of a trained net: pass net=",
}


def _check_request(name: str, given: dict[str, Any]) -> None:
    initializer = INITIALIZERS[name]
    if given["likelihood"] is not None:
        require_likelihood(given["likelihood"])
    for need in initializer.needs:
        if given.get(need) is None:
            raise HeadstartError(f"The initializer {name!r} {_REQUESTS[need].format(name=name)}.")
    for option in given.keys() - {"likelihood", "batches"}:
        if option not in initializer.options:
            raise unknown(f"option of {name!r}", option, initializer.options)
