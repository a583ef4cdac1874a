"""The experiments by name, the paper's and our own."""

from __future__ import annotations

from typing import Any

from headstart.experiments.spec import Suite, Variant, in_every_budget
from headstart.experiments.variants import (
    ABLATION_VARIANTS,
    ALL_TRAINING_VARIANTS,
    DEEP_VARIANTS,
    DEFAULTS,
    LARGE_NETS,
    LENET_ABLATION_VARIANTS,
    LONG_VARIANTS,
    MC_DROPOUT,
    NOISE_VARIANTS,
    NOISY_KFAC,
    PAPER_RACE_VARIANTS,
    PARETO_VARIANTS,
    RACE_VARIANTS,
    ROW_SWEEPS,
    SMALL_NETS,
    TRAINING_VARIANTS,
    initializer_variant,
    variants_of_method,
)

_ON_TOY: dict[str, Any] = {
    "datasets": ("toy",),
    "variants": RACE_VARIANTS,
    "options": {"line": (-15.0, 15.0)},
}
_REGRESSION_DATA = ("powerplant", "protein")
_CLASSIFICATION_DATA = ("mnist", "eeg", "credit", "spam")
_SHALLOW, _DEEP = ("mlp-1x100",), ("mlp-5x100",)
_SMALL_LENET = ("lenet",)
_ALL_ROW_COUNTS = tuple(variant for sweep in ROW_SWEEPS for variant in sweep.variants().values())
_TWO_METHODS = (initializer_variant("iblm"), MC_DROPOUT)
_TWO_METHODS_BY_START = (
    *(initializer_variant(init) for init in ("orthogonal", "lsuv", "iblm")),
    *variants_of_method("noisy-kfac", ("stock", "orthogonal", "iblm")),
)


_FIRST_STEPS, _GAIN_STEPS = (10, 25, 50, 100, 200), (100, 500, 1000, 2000)
_ALL_STEPS = (*_FIRST_STEPS, 500, 1000, 2000, 5000, 10_000)
_KEPT_NOTE = (
    "A single run of each. The step sizes were chosen on validation rows of these data sets "
    "(docs/step-sizes.md), never on test rows; Adam's rate is the paper's, 1e-3."
)


_EEG_NOTE = (
    "EEG is one subject's time series. Random splits put the neighbors in time of every test row "
    "among the training rows, and the 1-nearest neighbor rule shows what that is worth; "
    "a split in time does not. Four rows hold spikes up to 7e5, which are dropped from eeg "
    "and kept in eeg-spikes."
)


def _against_rivals(
    title: str,
    model: str,
    dataset: str,
    quick: dict[str, Any],
    *,
    variants: tuple[Variant, ...] = (*_TWO_METHODS, DEFAULTS),
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
        note="The quick budget cuts steps, samples in training and test rows; settings above. "
        "The prior and the KL are those of SVI and of noisy K-FAC; "
        "MC dropout has its authors' weight decay of 5e-4 instead.",
        budgets={"quick": {"splits": 1, **quick}, "paper": {"splits": 1}},
        options={"diagrams": True, **options},
    )


SUITES = {
    "toy-predictions": Suite(
        "Toy function: predictions after each initialization, four tanh layers of 50",
        ("mlp-4x50-tanh",),
        **_ON_TOY,
        budgets=in_every_budget(splits=1, steps=0),
    ),
    "toy-convergence": Suite(
        "Toy function: convergence, three tanh layers of 500",
        ("mlp-3x500-tanh",),
        **_ON_TOY,
        note="The paper's figure 1: RMSE 0.613 from the uninformative start after 600 epochs, "
        "0.315 from I-BLM after a few.",
        budgets={"quick": {"splits": 1, "steps": 300}, "paper": {"splits": 1, "epochs": 600}},
    ),
    "regression-shallow": Suite(
        "Regression, one layer of 100",
        _SHALLOW,
        _REGRESSION_DATA,
        PAPER_RACE_VARIANTS,
        paper="regression_shallow",
    ),
    "regression-deep": Suite(
        "Regression, five layers of 100",
        _DEEP,
        _REGRESSION_DATA,
        PAPER_RACE_VARIANTS,
        paper="regression_deep",
    ),
    "classification-shallow": Suite(
        "Classification, one layer of 100",
        _SHALLOW,
        _CLASSIFICATION_DATA,
        PAPER_RACE_VARIANTS,
        paper="classification_shallow",
    ),
    "classification-deep": Suite(
        "Classification, five layers of 100",
        _DEEP,
        _CLASSIFICATION_DATA,
        PAPER_RACE_VARIANTS,
        paper="classification_deep",
    ),
    "eeg-spikes": Suite(
        "EEG with its four rows of spikes, random splits",
        (*_SHALLOW, *_DEEP),
        ("eeg-spikes",),
        PAPER_RACE_VARIANTS,
        note=_EEG_NOTE,
    ),
    "eeg-time": Suite(
        "EEG split in time: every test part is a stretch of the recording",
        (*_SHALLOW, *_DEEP),
        ("eeg", "eeg-spikes"),
        PAPER_RACE_VARIANTS,
        note=_EEG_NOTE,
        options={"split_by": "time"},
    ),
    "protein-long": Suite(
        "PROTEIN for 20 000 steps, five layers of 100",
        _DEEP,
        ("protein",),
        LONG_VARIANTS,
        note="How long the lead lasts: 28 passes through the data.",
        budgets=in_every_budget(splits=1, steps=20_000),
    ),
    "deep-starts": Suite(
        "Deep nets: twenty layers of 50 and ten of 1000",
        (*SMALL_NETS, *LARGE_NETS),
        ("mnist",),
        DEEP_VARIANTS,
        note="The nets of ten layers of 1000 are trained from I-BLM only: a step takes seconds.",
        budgets=in_every_budget(splits=1, steps=200, eval_samples=16),
    ),
    "kept-mnist": Suite(
        "Is the start kept? The first 200 steps on MNIST, by optimizer",
        (*_DEEP, *LARGE_NETS, "lenet", "lenet-20-50"),
        ("mnist",),
        TRAINING_VARIANTS,
        note=_KEPT_NOTE,
        budgets=in_every_budget(splits=1, steps=200, samples=4, eval_samples=16, test_rows=2000),
        options={"checkpoints": _FIRST_STEPS},
    ),
    "kept-cifar10": Suite(
        "Is the start kept? The first 200 steps on CIFAR10, by optimizer",
        ("lenet", "resnet", "alexnet", "vgg16"),
        ("cifar10",),
        TRAINING_VARIANTS,
        note=_KEPT_NOTE,
        budgets=in_every_budget(splits=1, steps=200, samples=1, eval_samples=8, test_rows=1000),
        options={"checkpoints": _FIRST_STEPS},
    ),
    "gained-regression": Suite(
        "What training gains: regression, by start and optimizer",
        (*_SHALLOW, *_DEEP),
        _REGRESSION_DATA,
        ALL_TRAINING_VARIANTS,
        budgets=in_every_budget(splits=5, steps=2000, samples=8, eval_samples=32),
        options={"checkpoints": _GAIN_STEPS},
    ),
    "gained-classification": Suite(
        "What training gains: classification, by start and optimizer",
        (*_SHALLOW, *_DEEP),
        _CLASSIFICATION_DATA,
        ALL_TRAINING_VARIANTS,
        budgets=in_every_budget(splits=5, steps=2000, samples=8, eval_samples=32, test_rows=5000),
        options={"checkpoints": _GAIN_STEPS},
    ),
    "gained-lenet": Suite(
        "What training gains: LeNet, by start and optimizer",
        _SMALL_LENET,
        ("mnist", "cifar10"),
        ALL_TRAINING_VARIANTS,
        budgets=in_every_budget(splits=3, steps=2000, samples=4, eval_samples=16, test_rows=5000),
        options={"checkpoints": _GAIN_STEPS},
    ),
    "far-cifar10": Suite(
        "How far training goes: the large nets on CIFAR10, by optimizer",
        ("vgg16", "alexnet"),
        ("cifar10",),
        TRAINING_VARIANTS,
        note=_KEPT_NOTE + " `--steps 15640` are 20 epochs.",
        budgets=in_every_budget(splits=1, steps=2000, samples=1, eval_samples=8, test_rows=5000),
        options={"checkpoints": _ALL_STEPS},
    ),
    "far-lenet": Suite(
        "How far training goes: LeNet on CIFAR10, by optimizer",
        _SMALL_LENET,
        ("cifar10",),
        TRAINING_VARIANTS,
        note=_KEPT_NOTE,
        budgets=in_every_budget(splits=1, steps=5000, samples=4, eval_samples=16, test_rows=5000),
        options={"checkpoints": _ALL_STEPS},
    ),
    "iblm-ablation": Suite(
        "I-BLM: one change at a time",
        _DEEP,
        (*_REGRESSION_DATA, "spam", "eeg", "credit", "mnist"),
        ABLATION_VARIANTS,
        budgets={
            "quick": {"splits": 2, "steps": 200, "eval_samples": 32},
            "paper": {"steps": 2000, "epochs": None},
        },
        options={"checkpoints": (100, 200, 500, 2000)},
    ),
    "iblm-rows": Suite(
        "I-BLM after initialization, against the rows of its batches",
        _DEEP,
        ("mnist",),
        _ALL_ROW_COUNTS,
        budgets=in_every_budget(splits=8, steps=0),
    ),
    "iblm-pareto": Suite(
        "Time of initialization against test MNLL after it",
        _DEEP,
        ("mnist",),
        PARETO_VARIANTS,
        budgets=in_every_budget(splits=8, steps=0),
    ),
    "iblm-noise": Suite(
        "VGG16 after initialization, against the noise that the weights may have",
        ("vgg16",),
        ("cifar10",),
        NOISE_VARIANTS,
        budgets=in_every_budget(splits=1, steps=0, eval_samples=16, test_rows=1000),
    ),
    "lenet-mnist": Suite(
        "LeNet with 6 and 16 filters on MNIST",
        _SMALL_LENET,
        ("mnist",),
        PAPER_RACE_VARIANTS,
        paper="cnn",
        note="A single run of each initializer, as in the paper.",
        budgets={"quick": {"splits": 1, "eval_samples": 32}, "paper": {"splits": 1}},
    ),
    "lenet-cifar10": Suite(
        "LeNet with 6 and 16 filters on CIFAR10",
        _SMALL_LENET,
        ("cifar10",),
        PAPER_RACE_VARIANTS,
        paper="cnn",
        note="A single run of each initializer, as in the paper. "
        "The quick budget takes 4 samples in training.",
        budgets={"quick": {"splits": 1, "samples": 4, "eval_samples": 32}, "paper": {"splits": 1}},
    ),
    "lenet-ablation": Suite(
        "I-BLM on LeNet: one change at a time",
        _SMALL_LENET,
        ("mnist", "cifar10"),
        LENET_ABLATION_VARIANTS,
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
        "LeNet after initialization, against the rows of I-BLM's batches",
        _SMALL_LENET,
        ("mnist",),
        _ALL_ROW_COUNTS,
        note="After initialization only; evenly spaced test rows.",
        budgets=in_every_budget(splits=3, steps=0, eval_samples=16, test_rows=2000),
    ),
    "lenet-pareto": Suite(
        "LeNet: time of initialization against test MNLL after it",
        _SMALL_LENET,
        ("mnist",),
        (*PARETO_VARIANTS, MC_DROPOUT),
        note="MC dropout starts where torch starts a net. Evenly spaced test rows.",
        budgets=in_every_budget(splits=8, steps=0, eval_samples=16, test_rows=2000),
    ),
    "lenet-rivals": _against_rivals(
        "LeNet with 20 and 50 filters, against MC dropout; notMNIST out of distribution",
        "lenet-20-50",
        "mnist",
        {"steps": 2000, "samples": 4, "eval_samples": 32, "test_rows": 5000},
        out_of_distribution="notmnist",
    ),
    "alexnet-rivals": _against_rivals(
        "AlexNet with learned prior variances, against MC dropout",
        "alexnet",
        "cifar10",
        {"steps": 500, "samples": 2, "eval_samples": 16, "test_rows": 1000},
        prior="learned",
    ),
    "vgg16-rivals": _against_rivals(
        "VGG16 with the paper's schedule of the KL, against MC dropout and noisy K-FAC",
        "vgg16",
        "cifar10",
        {"steps": 300, "samples": 1, "eval_samples": 16, "test_rows": 1000},
        variants=(*_TWO_METHODS, NOISY_KFAC, DEFAULTS),
        paper="vgg16_cifar10",
        kl_schedule="sigmoid",
    ),
    "noisy-kfac-lenet": Suite(
        "Noisy K-FAC and SVI, LeNet with 6 and 16 filters",
        _SMALL_LENET,
        ("mnist",),
        _TWO_METHODS_BY_START,
        note="Both methods with a KL of weight 1 and prior variance 1. "
        "The quick budget takes 4 samples in training.",
        budgets={
            "quick": {"splits": 1, "steps": 1000, "samples": 4, "eval_samples": 32},
            "paper": {"splits": 1, "steps": 1000, "epochs": None},
        },
    ),
    "noisy-kfac-regression": Suite(
        "Noisy K-FAC and SVI, regression with one layer of 100",
        _SHALLOW,
        _REGRESSION_DATA,
        _TWO_METHODS_BY_START,
        note="Both methods with a KL of weight 1 and prior variance 1; the noise is learned.",
        budgets=in_every_budget(splits=3, steps=1000),
    ),
}
