"""What an experiment is made of: runs, variants, budgets, and suites, products of them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from headstart.errors import HeadstartError, unknown
from headstart.experiments.code import code_hash
from headstart.experiments.tasks import PAPER_NOISE_VAR

ResultRow = dict[str, Any]
"""One evaluation of a run, as it is stored."""


@dataclass(frozen=True)
class Run:
    """Everything that decides the numbers of a run.

    The same `Run` gives the same rows to the last bit, on one machine, whatever ran before it.

    Args:
        dataset: A data set by name, or a csv file.
        model: A net by name.
        init: An initializer by name.
        suite: The suite that the run belongs to.
        budget: The budget of the suite.
        target: The column of a csv file to predict.
        content: The digest of the csv file.
        method: An inference method by name.
        init_options: Options of the initializer.
        label: Rows are put together by it; empty, it is the initializer's name.
        posterior: A posterior family by name.
        members: How many such posteriors, as a mixture.
        prior: The prior variance of the weights, or `learned`.
        kl_weight: The weight of the KL.
        kl_schedule: How that weight grows.
        noise_var: Where the noise variance of standardized targets starts.
        learn_noise: Whether that variance is learned.
        steps: Training steps; either these or `epochs`.
        epochs: Passes through the training rows.
        samples: Samples of the weights in a training step.
        eval_samples: Samples in an evaluation.
        batch: Rows of a training batch.
        optimizer: `adam` is the paper's protocol, `averaged` the default of `fit`.
        lr: The learning rate; None: the optimizer's own, 1e-3 of Adam.
        seed: The seed of all random numbers but the split's.
        split: The number of the train/test split.
        split_by: `rows`, at random, or `time`, a stretch of a series.
        checkpoints: Steps that are evaluated, beside step 0 and the last.
        line: The ends of a line of inputs, in their units, along which predictions are kept.
        test_rows: Evaluate on so many test rows, evenly spaced; None for all.
        out_of_distribution: A data set of other inputs, told from the test rows by entropy.
        diagrams: Whether to keep reliability diagrams and histograms of entropy.
        flip: Whether images are flipped at random in training.
        shift: Up to how many pixels images are shifted in training.
        precision: `float32`, or `bfloat16` for autocast in training.
        device: Where torch computes.
        threads: Threads of torch.
        code: The hash of the code that is to run it.

    Example:
        >>> one, other = Run("toy", "mlp-1x50", "iblm"), Run("toy", "mlp-1x50", "iblm", seed=1)
        >>> one.key == Run("toy", "mlp-1x50", "iblm").key, one.key == other.key
        (True, False)
    """

    dataset: str
    model: str
    init: str
    suite: str = "compare"
    budget: str = "own"
    target: str = ""
    content: str = ""
    method: str = "svi"
    init_options: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    posterior: str = "mean_field"
    members: int = 1
    prior: float | str = 1.0
    kl_weight: float = 1.0
    kl_schedule: str = "constant"
    noise_var: float = PAPER_NOISE_VAR
    learn_noise: bool = True
    steps: int | None = 1000
    epochs: int | None = None
    samples: int = 16
    eval_samples: int = 64
    batch: int = 64
    optimizer: str = "adam"
    lr: float | None = None
    seed: int = 0
    split: int = 0
    split_by: str = "rows"
    checkpoints: tuple[int, ...] = (50, 100, 200, 500, 1000)
    line: tuple[float, float] | None = None
    test_rows: int | None = None
    out_of_distribution: str = ""
    diagrams: bool = False
    flip: bool = False
    shift: int = 0
    precision: str = "float32"
    device: str = "cpu"
    threads: int = 1
    code: str = field(default_factory=code_hash)

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise HeadstartError("A run takes a number of steps or epochs: one of the two.")

    @cached_property
    def key(self) -> str:
        """A stable hash of all fields: with other code a run is another run."""
        canonical = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def total_steps(self, rows: int) -> int:
        """The number of steps on so many training rows."""
        if self.steps is not None:
            return self.steps
        return (self.epochs or 0) * math.ceil(rows / self.batch)


@dataclass(frozen=True)
class Variant:
    """An initializer with options and a method, under the label of its rows.

    Args:
        label: What it is called in tables.
        init: An initializer by name.
        options: Options of the initializer.
        models: Only for these nets of a suite; all where there are none.
        method: An inference method by name.
        optimizer: An optimizer by name; None: that of the suite.
        settings: Other fields of its runs that differ from those of the suite.

    Example:
        >>> Variant("256 rows", options={"rows": 256}).init
        'iblm'
    """

    label: str
    init: str = "iblm"
    options: Mapping[str, Any] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    method: str = "svi"
    optimizer: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Budget:
    """How much of everything."""

    splits: int
    steps: int | None = None
    epochs: int | None = None
    samples: int = 16
    eval_samples: int = 128
    test_rows: int | None = None


BUDGETS = {
    "quick": Budget(splits=3, steps=2000, eval_samples=64),
    "paper": Budget(splits=5, epochs=100),
    "long": Budget(splits=1, epochs=20, samples=1, eval_samples=16),
}
"""`quick` fits two cores; `paper` is the paper's own, but for its regression epochs: our choice;
`long` is what two cores can do of the largest nets, a fifth of its epochs with one sample."""


@dataclass(frozen=True)
class Suite:
    """A figure or table of the paper, or one of our own.

    Its runs are the product of nets, data sets, splits and variants.

    Args:
        title: Its heading in a report.
        models: Nets by name.
        datasets: Data sets by name.
        variants: What is compared.
        paper: The name of its table in the paper.
        note: What a reader has to know beside.
        budgets: Where it departs from the common budgets.
        options: Which fields of its runs differ from a run's defaults.
    """

    title: str
    models: tuple[str, ...]
    datasets: tuple[str, ...]
    variants: tuple[Variant, ...]
    paper: str | None = None
    note: str = ""
    budgets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def budget(self, name: str) -> Budget:
        """The budget `name` as this suite has it."""
        if name not in BUDGETS:
            raise unknown("budget", name, BUDGETS)
        return replace(BUDGETS[name], **self.budgets.get(name, {}))


def in_every_budget(**budget: Any) -> dict[str, dict[str, Any]]:
    """The same steps whatever the budget: a suite of our own has no epochs of the paper's."""
    return {name: {"epochs": None, **budget} for name in BUDGETS}
