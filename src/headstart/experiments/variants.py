"""What a suite races: initialisers as they are, or with some of their options changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headstart.errors import HeadstartError
from headstart.inference import make_inference


@dataclass(frozen=True)
class Variant:
    """An initialiser with options and a method, under the label of its rows; `models`: only these nets of a suite.

    Example:
        >>> plain("iblm") == Variant("iblm", "iblm"), Variant("256 rows", options={"rows": 256}).init
        (True, 'iblm')
    """

    label: str
    init: str = "iblm"
    options: Mapping[str, Any] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    method: str = "svi"


def plain(init: str, *models: str) -> Variant:
    """An initialiser as it is, under its own name."""
    return Variant(init, init, models=models)


def by_method(method: str, inits: Sequence[str]) -> list[Variant]:
    """A method from each of these starts; MC dropout brings its own, torch's.

    Example:
        >>> [variant.label for method in ("svi", "noisy-kfac", "mc-dropout") for variant in by_method(method, ["iblm"])]
        ['iblm', 'noisy-kfac from iblm', 'mc-dropout']
    """
    if method == DROPOUT.method:
        return [DROPOUT]
    if not inits:
        raise HeadstartError(
            "Name at least one initialiser with --init, as in --init orthogonal,iblm."
        )
    return [
        plain(init)
        if method == "svi"
        else Variant(f"{method} from {init}", init, method=make_inference(method).name)
        for init in inits
    ]


DROPOUT = Variant("mc-dropout", "stock", method="mc-dropout")
NOISY_KFAC = Variant("noisy-kfac", "stock", method="noisy-kfac")
"""Rival methods, from torch's own start."""

BASE = "default"
ABLATION = (
    Variant(BASE),
    Variant("label targets", options={"targets": "label"}),
    Variant("not centred", options={"center": False}),
    Variant("not standardised", options={"standardize": False}),
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
    Variant("orthogonal", "orthogonal"),
)
"""I-BLM as it is by default, one change at a time, and two yardsticks."""


def _of_ablation(*labels: str) -> tuple[Variant, ...]:
    return tuple(variant for variant in ABLATION if variant.label in labels)


LENET_ABLATION = (
    *_of_ablation(
        BASE,
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
    *_of_ablation("own-class last layer", "paper", "orthogonal"),
)
"""The same for convolutions: what matters there, and how patches are taken."""

NOISE = (
    Variant("not bounded", options={"noise_share": None}),
    *(Variant(f"noise share {share:g}", options={"noise_share": share}) for share in (24.0, 12.0)),
    Variant(BASE),
    Variant("noise share 3", options={"noise_share": 3.0}),
)
"""How much of a deep net's variance may be the noise of its weights."""

INITS = ("uninformative", "heuristic", "xavier", "orthogonal", "lsuv", "iblm")
RACE = tuple(plain(init) for init in INITS)
LONG = (plain("orthogonal"), plain("iblm"))

SMALL_NETS, LARGE_NETS = ("mlp-20x50", "mlp-20x50-tanh"), ("mlp-10x1000", "mlp-10x1000-tanh")
DEEP = (plain("orthogonal", *SMALL_NETS), plain("lsuv", *SMALL_NETS), plain("iblm"))

ROWS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True)
class Line:
    """An initialiser against the rows of its batches: up to `most`, and if `read_out` with as many rows for the read-out."""

    name: str
    init: str = "iblm"
    most: int = ROWS[-1]
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
            for rows in ROWS
            if rows <= self.most
        }


LINES = (
    Line("iblm"),
    Line("iblm, rows and read-out", read_out=True),
    Line("iblm-paper", "iblm-paper", most=1024),
)

PARETO = (
    *RACE,
    plain("iblm-paper"),
    Variant("cheaper iblm", options={"rows": 512, "last_rows": 2048}),
    Variant("dearer iblm", options={"rows": 16_384, "last_rows": 60_000}),
)
