"""From the name of an experiment to its runs, and from rows back to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

from headstart.errors import HeadstartError, unknown
from headstart.experiments.catalogue import SUITES
from headstart.experiments.run import Row, Run
from headstart.experiments.summary import Results
from headstart.experiments.variants import Variant
from headstart.inference import make_inference

CHECKPOINTS = (50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
ALL = "all"


def plan(
    suite: str,
    budget: str = "quick",
    *,
    seed: int = 0,
    splits: int | None = None,
    steps: int | None = None,
    **machine: Any,
) -> list[Run]:
    """The runs of a suite, or of `all`; `splits` and `steps` override the budget's (a suite that does not train stays so).

    `machine` are fields of each run that say how to compute: threads, device, precision.
    Split k has the seed `seed + k`, so that repetitions differ where the test set is an official one.

    Example:
        >>> runs = plan("regression-deep", "quick")
        >>> len(runs), runs[0].dataset, runs[0].init, runs[0].steps
        (36, 'powerplant', 'uninformative', 2000)
    """
    if suite == ALL:
        return [
            run
            for name in SUITES
            for run in plan(name, budget, seed=seed, splits=splits, steps=steps, **machine)
        ]
    if suite not in SUITES:
        raise unknown("suite", suite, [*SUITES, ALL])
    chosen = SUITES[suite]
    given = chosen.budget(budget)
    if steps is not None and given.steps != 0:
        given = replace(given, steps=steps, epochs=None)
    template = Run(
        chosen.datasets[0],
        chosen.models[0],
        chosen.variants[0].init,
        suite=suite,
        budget=budget,
        steps=given.steps,
        epochs=given.epochs,
        samples=given.samples,
        eval_samples=given.eval_samples,
        test_rows=given.test_rows,
        **{"checkpoints": CHECKPOINTS, **chosen.options, **machine},
    )
    splits = splits or given.splits
    return spread(
        template, chosen.datasets, chosen.models, chosen.variants, seed=seed, splits=splits
    )


def spread(
    template: Run,
    datasets: Iterable[str],
    models: Iterable[str],
    variants: Iterable[Variant],
    *,
    seed: int,
    splits: int,
) -> list[Run]:
    """The product: a run like `template` for each data set, net, split and variant that is for this net."""
    if splits < 1:
        raise HeadstartError(f"At least one split is needed, not {splits}.")
    return [
        replace(
            template,
            dataset=dataset,
            model=model,
            init=variant.init,
            label="" if variant.label == variant.init else variant.label,
            init_options=dict(variant.options),
            method=variant.method,
            posterior=make_inference(variant.method).posterior or template.posterior,
            split=split,
            seed=seed + split,
        )
        for dataset, model, split, variant in product(datasets, models, range(splits), variants)
        if model in (variant.models or (model,))
    ]


def results_of(suite: str, rows: Iterable[Row]) -> Results:
    """The rows of a suite, its variants in the suite's own order."""
    chosen = (row for row in rows if row["suite"] == suite)
    return (
        Results(chosen, [variant.label for variant in SUITES[suite].variants])
        if suite in SUITES
        else Results(chosen)
    )
