"""From the name of a suite, or from a comparison of one's own, to its runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from headstart.errors import HeadstartError, unknown
from headstart.experiments.catalogue import SUITES
from headstart.experiments.spec import Run, Variant
from headstart.experiments.tables import content_digest
from headstart.experiments.variants import variants_of_method
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
    threads: int = 1,
    device: str = "cpu",
    precision: str = "float32",
    datasets: Sequence[str] = (),
    models: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> list[Run]:
    """The runs of a suite.

    Split k has the seed `seed + k`, so that repetitions differ on a fixed test set too.

    Args:
        suite: A suite by name, or `all`.
        budget: How much of everything: `quick` or `paper`.
        seed: The seed of the first split.
        splits: Splits, instead of the budget's.
        steps: Steps, instead of the budget's; a suite that does not train stays so.
        threads: Threads of each run.
        device: Where each run computes.
        precision: `float32` or `bfloat16`.
        datasets: Only these data sets of the suite; all where there are none.
        models: Only these nets.
        labels: Only the variants with these labels.

    Returns:
        The runs, data set by data set.

    Raises:
        HeadstartError: There is no such suite, budget, data set, net or label.

    Example:
        >>> runs = plan("regression-deep", "quick")
        >>> len(runs), runs[0].dataset, runs[0].init, runs[0].steps
        (42, 'powerplant', 'uninformative', 2000)
    """
    machine: dict[str, Any] = {"threads": threads, "device": device, "precision": precision}
    if suite == ALL:
        if [*datasets, *models, *labels]:
            raise HeadstartError("Name a suite to choose data sets, models or labels of it.")
        given: dict[str, Any] = {"seed": seed, "splits": splits, "steps": steps, **machine}
        return [run for name in SUITES for run in plan(name, budget, **given)]
    if suite not in SUITES:
        raise unknown("suite", suite, [*SUITES, ALL])
    chosen = SUITES[suite]
    amount = chosen.budget(budget)
    if steps is not None and amount.steps != 0:
        amount = replace(amount, steps=steps, epochs=None)
    template = Run(
        chosen.datasets[0],
        chosen.models[0],
        chosen.variants[0].init,
        suite=suite,
        budget=budget,
        steps=amount.steps,
        epochs=amount.epochs,
        samples=amount.samples,
        eval_samples=amount.eval_samples,
        test_rows=amount.test_rows,
        **{"checkpoints": CHECKPOINTS, **chosen.options, **machine},
    )
    variants = {variant.label: variant for variant in chosen.variants}
    return product_of_runs(
        template,
        _part_of_suite(f"data set of {suite}", chosen.datasets, datasets),
        _part_of_suite(f"model of {suite}", chosen.models, models),
        [variants[label] for label in _part_of_suite(f"label of {suite}", tuple(variants), labels)],
        seed=seed,
        splits=splits or amount.splits,
    )


def _part_of_suite(what: str, there: Sequence[str], wanted: Sequence[str]) -> Sequence[str]:
    """Those of `there` that are wanted: all where none is named."""
    for name in wanted:
        if name not in there:
            raise unknown(what, name, there)
    return [name for name in there if name in wanted or not wanted]


def comparison(
    dataset: str,
    model: str,
    inits: Sequence[str],
    *,
    methods: Sequence[str] = ("svi",),
    optimizers: Sequence[str] = ("averaged",),
    target: str = "",
    steps: int = 1000,
    splits: int = 1,
    seed: int = 0,
    threads: int = 1,
    device: str = "cpu",
    precision: str = "float32",
    members: Sequence[int] = (1,),
) -> list[Run]:
    """The runs on one data set: the product of members, methods, optimizers, starts and splits.

    Args:
        dataset: A data set by name, or a csv file.
        model: A net by name.
        inits: Initializers by name.
        methods: Inference methods by name.
        optimizers: Optimizers of SVI by name.
        target: The column of a csv file to predict.
        steps: Training steps.
        splits: Train/test splits.
        seed: The seed of the first split.
        threads: Threads of each run.
        device: Where each run computes.
        precision: `float32` or `bfloat16`.
        members: Numbers of members of the posterior.

    Returns:
        The runs, split by split.

    Raises:
        HeadstartError: No target of a csv file, no method or no initializer is named, or a method
            does not train mixtures.

    Example:
        >>> [run.init for run in comparison("toy", "mlp-1x50", ["xavier", "iblm"])]
        ['xavier', 'iblm']
    """
    if dataset.endswith(".csv") and not target:
        raise HeadstartError(
            f"Which column of {dataset} is to be predicted? Name it with --target."
        )
    if not methods:
        raise HeadstartError(
            "Name at least one method with --method, as in --method svi,noisy-kfac."
        )
    template = Run(
        dataset,
        model,
        "iblm",
        target=target,
        content=content_digest(Path(dataset)) if target else "",
        steps=steps,
        checkpoints=CHECKPOINTS,
        threads=threads,
        device=device,
        precision=precision,
    )
    variants = [
        variant for method in methods for variant in variants_of_method(method, inits, optimizers)
    ]
    runs = product_of_runs(template, [dataset], [model], variants, seed=seed, splits=splits)
    return [_with_members(run, count) for count in members for run in runs]


def _with_members(run: Run, members: int) -> Run:
    """The same run of a mixture; its label says so."""
    make_inference(run.method).refuse_members(members)
    if members == 1:
        return run
    return replace(run, members=members, label=f"{run.label or run.init}, {members} members")


def product_of_runs(
    template: Run,
    datasets: Iterable[str],
    models: Iterable[str],
    variants: Iterable[Variant],
    *,
    seed: int,
    splits: int,
) -> list[Run]:
    """A run like `template` for each data set, net, split and variant that is for this net."""
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
            optimizer=variant.optimizer or template.optimizer,
            posterior=make_inference(variant.method).posterior or template.posterior,
            split=split,
            seed=seed + split,
            **variant.settings,
        )
        for dataset, model, split, variant in product(datasets, models, range(splits), variants)
        if model in (variant.models or (model,))
    ]
