"""What suites compare: initializers as they are, or with some of their options changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.errors import HeadstartError, unknown
from headstart.experiments.spec import Variant
from headstart.inference import make_inference


def initializer_variant(init: str, *models: str) -> Variant:
    """An initializer as it is, under its own name; `models`: only for these nets.

    Example:
        >>> initializer_variant("iblm") == Variant("iblm", "iblm")
        True
    """
    return Variant(init, init, models=models)


def variants_of_method(
    method: str, inits: Sequence[str], optimizers: Sequence[str] = ("adam",)
) -> list[Variant]:
    """A method from each of these starts; MC dropout has its own, torch's.

    Args:
        method: An inference method by name.
        inits: Initializers by name.
        optimizers: Optimizers of SVI by name; other methods have their own.

    Returns:
        A variant for each start and optimizer.

    Raises:
        HeadstartError: No initializer or optimizer is named, or there is no such optimizer.

    Example:
        >>> [variants_of_method(name, ["iblm"])[0].label for name in ("svi", "noisy-kfac")]
        ['iblm', 'noisy-kfac from iblm']
        >>> variants_of_method("mc-dropout", [])[0].label
        'mc-dropout'
    """
    if method == MC_DROPOUT.method:
        return [MC_DROPOUT]
    if not inits:
        raise HeadstartError(
            "Name at least one initializer with --init, as in --init orthogonal,iblm."
        )
    known = make_inference(method).optimizers
    if not known:
        return [Variant(f"{method} from {init}", init, method=method) for init in inits]
    if not optimizers:
        raise HeadstartError("Name at least one optimizer with --optimizer, as in averaged,adam.")
    for optimizer in optimizers:
        if optimizer not in known:
            raise unknown("optimizer", optimizer, known)
    return [
        optimized_variant(init, optimizer, named=len(optimizers) > 1)
        for optimizer in optimizers
        for init in inits
    ]


def optimized_variant(init: str, optimizer: str, *, named: bool = True) -> Variant:
    """SVI from a start, with an optimizer.

    Args:
        init: An initializer by name.
        optimizer: An optimizer by name.
        named: Whether the label names the optimizer too.

    Example:
        >>> optimized_variant("iblm", "adam").label
        'iblm, adam'
    """
    return Variant(f"{init}, {optimizer}" if named else init, init, optimizer=optimizer)


MC_DROPOUT = Variant("mc-dropout", "stock", method="mc-dropout")
NOISY_KFAC = Variant("noisy-kfac", "stock", method="noisy-kfac")
"""Rival methods, from torch's own start."""

BASE_LABEL = "default"
ABLATION_VARIANTS = (
    Variant(BASE_LABEL),
    Variant("label targets", options={"targets": "label"}),
    Variant("not centred", options={"center": False}),
    Variant("not standardized", options={"standardize": False}),
    Variant("no rescaling", options={"rescale": False}),
    Variant("no bias spread", options={"bias_spread": 0.0}),
    Variant("bias spread 1", options={"bias_spread": 1.0}),
    Variant("labels only", options={"input_share": 0.0}),
    Variant("half inputs", options={"input_share": 0.5}),
    Variant("noise 1", options={"noise_var": 1.0}),
    Variant("evidence of the batch", options={"evidence_rows": None}),
    Variant("evidence 1000", options={"evidence_rows": 1000}),
    Variant("evidence 100 000", options={"evidence_rows": 100_000}),
    Variant("variance / 10", options={"variance_scale": 0.1}),
    Variant("variance x 4", options={"variance_scale": 4.0}),
    Variant("KL(p‖q)", options={"match": "kl_pq"}),
    Variant("256 rows", options={"rows": 256}),
    Variant("fresh batch for each 10 units", options={"units_per_batch": 10}),
    Variant("own-class last layer", options={"read_out": False}),
    Variant("noise not fitted", options={"fit_noise": False}),
    Variant("paper", "iblm-paper"),
    Variant("paper, one draw", "iblm-paper", {"one_draw": True}),
    Variant("orthogonal", "orthogonal"),
)
"""I-BLM as it is by default, one change at a time, and two yardsticks."""


def _of_ablation(*labels: str) -> tuple[Variant, ...]:
    return tuple(variant for variant in ABLATION_VARIANTS if variant.label in labels)


LENET_ABLATION_VARIANTS = (
    *_of_ablation(
        BASE_LABEL,
        "label targets",
        "no rescaling",
        "no bias spread",
        "bias spread 1",
        "labels only",
        "half inputs",
    ),
    *_of_ablation("KL(p‖q)", "evidence 1000", "evidence 100 000"),
    Variant("2048 patches", options={"patches": 2048}),
    Variant("65 536 patches", options={"patches": 65_536}),
    Variant("every patch of 256 images", options={"patches": None, "rows": 256}),
    *_of_ablation("own-class last layer", "paper", "paper, one draw", "orthogonal"),
)
"""The same for convolutions: what matters there, and how patches are taken."""

NOISE_VARIANTS = (
    Variant("not bounded", options={"noise_share": None}),
    *(Variant(f"noise share {share:g}", options={"noise_share": share}) for share in (24.0, 12.0)),
    Variant(BASE_LABEL),
    Variant("noise share 3", options={"noise_share": 3.0}),
)
"""How much of a deep net's variance may be the noise of its weights."""

DEFAULTS_LABEL = "headstart, defaults"
"""I-BLM, then `fit` as it is without options."""
INITS = ("uninformative", "heuristic", "xavier", "orthogonal", "lsuv", "iblm")
RACE_VARIANTS = tuple(initializer_variant(init) for init in INITS)
DEFAULT_OPTIMIZER, PAPER_OPTIMIZER = "averaged", "adam"
DEFAULTS = Variant(
    DEFAULTS_LABEL,
    optimizer=DEFAULT_OPTIMIZER,
    settings={"prior": 1.0, "kl_schedule": "constant"},
)
PAPER_RACE_VARIANTS = (*RACE_VARIANTS, DEFAULTS)
"""The paper's six initializers by its protocol, and the library as it is."""
TRAINING_VARIANTS = tuple(
    optimized_variant("iblm", optimizer) for optimizer in (DEFAULT_OPTIMIZER, PAPER_OPTIMIZER)
)
"""What training makes of an I-BLM start."""
ALL_TRAINING_VARIANTS = (
    *TRAINING_VARIANTS,
    *(
        optimized_variant("orthogonal", optimizer)
        for optimizer in (DEFAULT_OPTIMIZER, PAPER_OPTIMIZER)
    ),
)
LONG_VARIANTS = (initializer_variant("orthogonal"), initializer_variant("iblm"))

SMALL_NETS, LARGE_NETS = ("mlp-20x50", "mlp-20x50-tanh"), ("mlp-10x1000", "mlp-10x1000-tanh")
DEEP_VARIANTS = (
    initializer_variant("orthogonal", *SMALL_NETS),
    initializer_variant("lsuv", *SMALL_NETS),
    initializer_variant("iblm"),
)

ROW_COUNTS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True)
class RowSweep:
    """An initializer against the rows of its batches.

    Args:
        name: What the curve is called.
        init: An initializer by name.
        max_rows: The largest number of rows.
        read_out: Whether the read-out gets as many rows.
    """

    name: str
    init: str = "iblm"
    max_rows: int = ROW_COUNTS[-1]
    read_out: bool = False

    def label(self, rows: int) -> str:
        """What the variant with so many rows is called."""
        return f"{self.name}, {rows} rows"

    def variants(self) -> dict[int, Variant]:
        """A variant for each number of rows."""
        return {
            rows: Variant(
                self.label(rows),
                self.init,
                {"rows": rows, **({"last_rows": rows} if self.read_out else {})},
            )
            for rows in ROW_COUNTS
            if rows <= self.max_rows
        }


ROW_SWEEPS = (
    RowSweep("iblm"),
    RowSweep("iblm, rows and read-out", read_out=True),
    RowSweep("iblm-paper", "iblm-paper", max_rows=1024),
)

PARETO_VARIANTS = (
    *RACE_VARIANTS,
    initializer_variant("iblm-paper"),
    Variant("cheaper iblm", options={"rows": 512, "last_rows": 2048}),
    Variant("dearer iblm", options={"rows": 16_384, "last_rows": 60_000}),
)
