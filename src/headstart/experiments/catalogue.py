"""The experiments by name, the paper's and our own."""

from __future__ import annotations

from typing import Any

from headstart.experiments.suite import Suite, same
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
    SMALL_NETS,
    Variant,
    by_method,
    plain,
)

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
        budgets=same(splits=1, steps=0),
    ),
    "toy-convergence": Suite(
        "Toy function: convergence, three tanh layers of 500",
        ("mlp-3x500-tanh",),
        **_TOY,
        note="The paper's figure 1: RMSE 0.613 from the uninformative start after 600 epochs, 0.315 from I-BLM after a few.",
        budgets={"quick": {"splits": 1, "steps": 300}, "paper": {"splits": 1, "epochs": 600}},
    ),
    "regression-shallow": Suite(
        "Regression, one layer of 100", _SHALLOW, _REGRESSION, paper="regression_shallow"
    ),
    "regression-deep": Suite(
        "Regression, five layers of 100", _DEEP, _REGRESSION, paper="regression_deep"
    ),
    "classification-shallow": Suite(
        "Classification, one layer of 100",
        _SHALLOW,
        _CLASSIFICATION,
        paper="classification_shallow",
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
        budgets=same(splits=1, steps=20_000),
    ),
    "deep-starts": Suite(
        "Deep nets: twenty layers of 50 and ten of 1000",
        (*SMALL_NETS, *LARGE_NETS),
        ("mnist",),
        DEEP,
        note="The nets of ten layers of 1000 are trained from I-BLM only: a step takes seconds.",
        budgets=same(splits=1, steps=200, eval_samples=16),
    ),
    "iblm-ablation": Suite(
        "I-BLM: one change at a time",
        _DEEP,
        (*_REGRESSION, "spam", "eeg", "credit", "mnist"),
        ABLATION,
        budgets={
            "quick": {"splits": 2, "steps": 200, "eval_samples": 32},
            "paper": {"steps": 2000, "epochs": None},
        },
        options={"checkpoints": (100, 200, 500, 2000)},
    ),
    "iblm-rows": Suite(
        "I-BLM after initialisation, against the rows of its batches",
        _DEEP,
        ("mnist",),
        _ROWS,
        budgets=same(splits=8, steps=0),
    ),
    "iblm-pareto": Suite(
        "Time of initialisation against test MNLL after it",
        _DEEP,
        ("mnist",),
        PARETO,
        budgets=same(splits=8, steps=0),
    ),
    "iblm-noise": Suite(
        "VGG16 after initialisation, against the noise that the weights may have",
        ("vgg16",),
        ("cifar10",),
        NOISE,
        budgets=same(splits=1, steps=0, eval_samples=16, test_rows=1000),
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
            "quick": {
                "splits": 1,
                "steps": 200,
                "samples": 4,
                "eval_samples": 16,
                "test_rows": 5000,
            },
            "paper": {"steps": 2000, "epochs": None},
        },
        options={"checkpoints": (100, 200, 500, 2000)},
    ),
    "lenet-rows": Suite(
        "LeNet after initialisation, against the rows of I-BLM's batches",
        _LENET,
        ("mnist",),
        _ROWS,
        note="After initialisation only; evenly spaced test rows.",
        budgets=same(splits=3, steps=0, eval_samples=16, test_rows=2000),
    ),
    "lenet-pareto": Suite(
        "LeNet: time of initialisation against test MNLL after it",
        _LENET,
        ("mnist",),
        (*PARETO, DROPOUT),
        note="MC dropout starts where torch starts a net. Evenly spaced test rows.",
        budgets=same(splits=8, steps=0, eval_samples=16, test_rows=2000),
    ),
    "lenet-rivals": _rivals(
        "LeNet with 20 and 50 filters, against MC dropout; notMNIST as outsiders",
        "lenet-20-50",
        "mnist",
        {"steps": 2000, "samples": 4, "eval_samples": 32, "test_rows": 5000},
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
        budgets=same(splits=3, steps=1000),
    ),
}
