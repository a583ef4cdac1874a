"""Where the posterior starts, by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import nn

from headstart.batching import Batches, Data
from headstart.distributed.collectives import ranks_of
from headstart.distributed.fabric import Fabric
from headstart.errors import HeadstartError, unknown
from headstart.initializers.data_free import DATA_FREE, apply_
from headstart.initializers.iblm import iblm_
from headstart.initializers.lsuv import lsuv_
from headstart.initializers.pretrained import pretrained_
from headstart.initializers.report import InitReport, LayerReport, make_report
from headstart.initializers.settings import DEFAULT, PAPER, Settings
from headstart.likelihoods import Likelihood
from headstart.network.layer import bayesian_layers

REPORT_ROWS = 512
BATCH_SIZE = 4096
"""Rows of a pair of arrays that go through the net at a time."""
__all__ = ["INITIALIZERS", "InitReport", "Initializer", "LayerReport", "initialize_"]


@dataclass(frozen=True)
class Initializer:
    """An initialiser: what it needs, which options it takes, and `run`, which yields the name of each layer as it is done."""

    run: Callable[..., Iterator[str]]
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def _data_free(rule: Callable[..., Any]) -> Initializer:
    return Initializer(lambda model, likelihood, batches: apply_(model, rule))


def _iblm(defaults: Settings) -> Initializer:
    return Initializer(
        lambda model, likelihood, batches, **options: iblm_(
            model, likelihood, batches, replace(defaults, **options)
        ),
        needs=("likelihood", "batches"),
        options=tuple(f.name for f in fields(Settings)),
    )


INITIALIZERS: dict[str, Initializer] = {
    **{name: _data_free(rule) for name, rule in DATA_FREE.items()},
    "lsuv": Initializer(
        lambda model, likelihood, batches, **options: lsuv_(model, batches, **options),
        needs=("batches",),
        options=("rows", "tolerance", "iterations"),
    ),
    "iblm": _iblm(DEFAULT),
    "iblm-paper": _iblm(PAPER),
    "pretrained": Initializer(
        lambda model, likelihood, batches, **options: pretrained_(model, **options),
        needs=("net",),
        options=("net", "relative_sd"),
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
    **options: Any,
) -> InitReport:
    """Place the posterior of every Bayesian layer, and report what the net looks like at step 0.

    `uninformative`, `heuristic`, `xavier`, `orthogonal` and `stock` (torch's own start) need no data; `lsuv` and `iblm` need batches, `iblm` the likelihood;
    `pretrained` takes `net=`, a trained net. Given data, the report shows every layer's pre-activations. `options` go to the
    initialiser (I-BLM: targets, centre, standardize, rescale, variance_scale, match, rows, noise_var, ...). With `fabric` its ranks
    share the rows, and the result is that of one process, rounding apart; the report is the first rank's.

    Example:
        >>> import headstart as hs
        >>> x = torch.randn(200, 4)
        >>> net = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 1))
        >>> report = hs.initialize_(hs.bayesianize(net), "iblm", hs.Gaussian(), (x, x.sum(1)))
        >>> [layer.name for layer in report.layers]
        ['0', '2']
    """
    if name not in INITIALIZERS:
        raise unknown("initializer", name, INITIALIZERS)
    bayesian_layers(model)  # refuses a model without any
    initializer = INITIALIZERS[name]
    _check_request(name, initializer, {"likelihood": likelihood, "batches": batches, **options})
    ranks = ranks_of(fabric, model)
    data = None
    if batches is not None:
        data = Batches(batches, batch_size=BATCH_SIZE, num_data=num_data, like=model, ranks=ranks)
    seed = ranks.seed(seed)
    with torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        seconds, last = {}, time.perf_counter()
        for layer in initializer.run(model, likelihood, data, **options):
            seconds[layer], last = time.perf_counter() - last, time.perf_counter()
        ranks.same_(model, *([] if likelihood is None else [likelihood]))
        batch = None if data is None else next(data.take(REPORT_ROWS))
        report = make_report(
            name, model, likelihood, batch, None if data is None else data.num_data, seconds
        )
        return ranks.agree(report)


_ASKS = {
    "likelihood": "regresses on the labels: pass the likelihood, as in initialize_(model, 'iblm', likelihood, batches)",
    "batches": "looks at data: pass batches, a DataLoader or a pair (x, y)",
    "net": "copies the weights of a trained net: pass net=",
}


def _check_request(name: str, initializer: Initializer, given: dict[str, Any]) -> None:
    for need in initializer.needs:
        if given.get(need) is None:
            raise HeadstartError(f"The initializer {name!r} {_ASKS[need]}.")
    for option in given.keys() - {"likelihood", "batches"}:
        if option not in initializer.options:
            raise unknown(f"option of {name!r}", option, initializer.options)
