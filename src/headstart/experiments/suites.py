"""The experiments by name, the paper's and our own: products of data sets, nets, variants of initialisers and splits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from headstart.errors import HeadstartError, unknown
from headstart.experiments.run import Row, Run
from headstart.experiments.summary import Results
from headstart.experiments.variants import (
    ABLATION,
    DEEP,
    DROPOUT,
    LARGE_NETS,
    LENET_ABLATION,
    LINES,
    LONG,
    NOISE,
    NOISY_KFAC,
    PARETO,
    RACE,
    SMALL_NETS,
    Variant,
    by_method,
    plain,
)
from headstart.inference import make_inference

CHECKPOINTS = (50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)


@dataclass(frozen=True)
class Budget:
    """How much of everything: `quick` fits two cores, `paper` is the paper's own (its regression epochs: our choice)."""

    splits: int
    steps: int | None = None
    epochs: int | None = None
    samples: int = 16
    eval_samples: int = 128
    test_rows: int | None = None


BUDGETS = {
    "quick": Budget(splits=3, steps=2000, eval_samples=64),
    "paper": Budget(splits=5, epochs=100),
}


@dataclass(frozen=True)
class Suite:
    """A figure or table of the paper, or one of our own.

    `budgets` says where it departs from the common ones, `options` which fields of its runs do, and `paper` names its table in
    the paper.
    """

    title: str
    models: tuple[str, ...]
    datasets: tuple[str, ...]
    variants: tuple[Variant, ...] = RACE
    paper: str | None = None
    note: str = ""
    budgets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def budget(self, name: str) -> Budget:
        """The budget `name` as this suite has it."""
        if name not in BUDGETS:
            raise unknown("budget", name, BUDGETS)
        return replace(BUDGETS[name], **self.budgets.get(name, {}))


def _same(**budget: Any) -> dict[str, dict[str, Any]]:
    """The same steps whatever the budget: a suite of our own has no epochs of the paper's."""
    return {name: {"epochs": None, **budget} for name in BUDGETS}


_TOY: dict[str, Any] = {"datasets": ("toy",), "options": {"line": (-15.0, 15.0)}}
_REGRESSION = ("powerplant", "protein")
_CLASSIFICATION = ("mnist", "eeg", "credit", "spam")
_SHALLOW, _DEEP = ("mlp-1x100",), ("mlp-5x100",)
_LENET = ("lenet",)
_ROWS = tuple(variant for line in LINES for variant in line.variants().values())
_METHODS = (plain("iblm"), DROPOUT)
_KFAC = (
    *(plain(init) for init in ("orthogonal", "lsuv", "iblm")),
    *by_method("noisy-kfac", ("stock", "orthogonal", "iblm")),
)


def _rivals(
    title: str,
    model: str,
    dataset: str,
    quick: dict[str, Any],
    *,
    variants: tuple[Variant, ...] = _METHODS,
    paper: str | None = None,
    **options: Any,
) -> Suite:
    """SVI from I-BLM against other methods, with reliability diagrams: a single run of each."""
    return Suite(
        title,
        (model,),
        (dataset,),
        variants,
        paper=paper,
        note="The quick budget cuts steps, samples in training and test rows; settings above. The prior and the KL are those of SVI and "
        "of noisy K-FAC; MC dropout has its authors' weight decay of 5e-4 instead.",
        budgets={"quick": {"splits": 1, **quick}, "paper": {"splits": 1}},
        options={"diagrams": True, **options},
    )


SUITES = {
    "toy-predictions": Suite(
        "Toy function: predictions after each initialisation, four tanh layers of 50",
        ("mlp-4x50-tanh",),
        **_TOY,
        budgets=_same(splits=1, steps=0),
    ),
    "toy-convergence": Suite(
        "Toy function: convergence, three tanh layers of 500",
        ("mlp-3x500-tanh",),
        **_TOY,
        note="The paper's figure 1: RMSE 0.613 from the uninformative start after 600 epochs, 0.315 from I-BLM after a few.",
        budgets={"quick": {"splits": 1, "steps": 300}, "paper": {"splits": 1, "epochs": 600}},
    ),
    "regression-shallow": Suite("Regression, one layer of 100", _SHALLOW, _REGRESSION, paper="regression_shallow"),
    "regression-deep": Suite("Regression, five layers of 100", _DEEP, _REGRESSION, paper="regression_deep"),
    "classification-shallow": Suite(
        "Classification, one layer of 100", _SHALLOW, _CLASSIFICATION, paper="classification_shallow"
    ),
    "classification-deep": Suite(
        "Classification, five layers of 100", _DEEP, _CLASSIFICATION, paper="classification_deep"
    ),
    "protein-long": Suite(
        "PROTEIN for 20 000 steps, five layers of 100",
        _DEEP,
        ("protein",),
        LONG,
        note="How long the lead lasts: 28 passes through the data.",
        budgets=_same(splits=1, steps=20_000),
    ),
    "deep-starts": Suite(
        "Deep nets: twenty layers of 50 and ten of 1000",
        (*SMALL_NETS, *LARGE_NETS),
        ("mnist",),
        DEEP,
        note="The nets of ten layers of 1000 are trained from I-BLM only: a step takes seconds.",
        budgets=_same(splits=1, steps=200, eval_samples=16),
    ),
    "iblm-ablation": Suite(
        "I-BLM: one change at a time",
        _DEEP,
        (*_REGRESSION, "spam", "eeg", "credit", "mnist"),
        ABLATION,
        budgets={"quick": {"splits": 2, "steps": 200, "eval_samples": 32}, "paper": {"steps": 2000, "epochs": None}},
        options={"checkpoints": (100, 200, 500, 2000)},
    ),
    "iblm-rows": Suite(
        "I-BLM after initialisation, against the rows of its batches",
        _DEEP,
        ("mnist",),
        _ROWS,
        budgets=_same(splits=8, steps=0),
    ),
    "iblm-pareto": Suite(
        "Time of initialisation against test MNLL after it",
        _DEEP,
        ("mnist",),
        PARETO,
        budgets=_same(splits=8, steps=0),
    ),
    "iblm-noise": Suite(
        "VGG16 after initialisation, against the noise that the weights may have",
        ("vgg16",),
        ("cifar10",),
        NOISE,
        budgets=_same(splits=1, steps=0, eval_samples=16, test_rows=1000),
    ),
    "lenet-mnist": Suite(
        "LeNet with 6 and 16 filters on MNIST",
        _LENET,
        ("mnist",),
        paper="cnn",
        note="A single run of each initialiser, as in the paper.",
        budgets={"quick": {"splits": 1, "eval_samples": 32}, "paper": {"splits": 1}},
    ),
    "lenet-cifar10": Suite(
        "LeNet with 6 and 16 filters on CIFAR10",
        _LENET,
        ("cifar10",),
        paper="cnn",
        note="A single run of each initialiser, as in the paper. The quick budget takes 4 samples in training.",
        budgets={"quick": {"splits": 1, "samples": 4, "eval_samples": 32}, "paper": {"splits": 1}},
    ),
    "lenet-ablation": Suite(
        "I-BLM on LeNet: one change at a time",
        _LENET,
        ("mnist", "cifar10"),
        LENET_ABLATION,
        budgets={
            "quick": {"splits": 1, "steps": 200, "samples": 4, "eval_samples": 16, "test_rows": 5000},
            "paper": {"steps": 2000, "epochs": None},
        },
        options={"checkpoints": (100, 200, 500, 2000)},
    ),
    "lenet-rows": Suite(
        "LeNet after initialisation, against the rows of I-BLM's batches",
        _LENET,
        ("mnist",),
        _ROWS,
        budgets=_same(splits=8, steps=0, eval_samples=32),
    ),
    "lenet-pareto": Suite(
        "LeNet: time of initialisation against test MNLL after it",
        _LENET,
        ("mnist",),
        (*PARETO, DROPOUT),
        note="MC dropout starts where torch starts a net.",
        budgets=_same(splits=8, steps=0, eval_samples=32),
    ),
    "lenet-rivals": _rivals(
        "LeNet with 20 and 50 filters, against MC dropout; notMNIST as outsiders",
        "lenet-20-50",
        "mnist",
        {"steps": 1000, "samples": 4, "eval_samples": 32, "test_rows": 5000},
        outsiders="notmnist",
    ),
    "alexnet-rivals": _rivals(
        "AlexNet with learned prior variances, against MC dropout",
        "alexnet",
        "cifar10",
        {"steps": 500, "samples": 2, "eval_samples": 16, "test_rows": 1000},
        prior="learned",
    ),
    "vgg16-rivals": _rivals(
        "VGG16 with the paper's schedule of the KL, against MC dropout and noisy K-FAC",
        "vgg16",
        "cifar10",
        {"steps": 300, "samples": 1, "eval_samples": 16, "test_rows": 1000},
        variants=(*_METHODS, NOISY_KFAC),
        paper="vgg16_cifar10",
        kl_schedule="sigmoid",
    ),
    "noisy-kfac-lenet": Suite(
        "Noisy K-FAC and SVI, LeNet with 6 and 16 filters",
        _LENET,
        ("mnist",),
        _KFAC,
        note="Both methods with a KL of weight 1 and prior variance 1. The quick budget takes 4 samples in training.",
        budgets={
            "quick": {"splits": 1, "steps": 1000, "samples": 4, "eval_samples": 32},
            "paper": {"splits": 1, "steps": 1000, "epochs": None},
        },
    ),
    "noisy-kfac-regression": Suite(
        "Noisy K-FAC and SVI, regression with one layer of 100",
        _SHALLOW,
        _REGRESSION,
        _KFAC,
        note="Both methods with a KL of weight 1 and prior variance 1; the noise is learned.",
        budgets=_same(splits=3, steps=1000),
    ),
}
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
        return [run for name in SUITES for run in plan(name, budget, seed=seed, splits=splits, steps=steps, **machine)]
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
    return spread(template, chosen.datasets, chosen.models, chosen.variants, seed=seed, splits=splits)


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
        Results(chosen, [variant.label for variant in SUITES[suite].variants]) if suite in SUITES else Results(chosen)
    )
