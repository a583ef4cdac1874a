"""What can be chosen about I-BLM."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headstart.errors import HeadstartError, unknown

LEAST = {"rows": 2, "last_rows": 1, "patches": 2, "units_per_batch": 1, "evidence_rows": 1}
"""The least that these settings may be, where they are given."""


@dataclass(frozen=True)
class Settings:
    """The choices the paper leaves open.

    Hidden units: `targets` are `random_features` of the label or the `label` itself (a random class); `centre` and
    `standardize` them; a share of their standard deviation, from 0 in some units to `input_share` in others, is a random
    projection of the layer's own inputs, so that units differ and nothing is forgotten; `noise_var` replaces the likelihood's
    noise; the evidence of a unit with a hundred weights counts as that of `evidence_rows` rows, at most as many as there are, and
    less where units are wider or rows scarce (None: the rows at hand); `rescale` gives every pre-activation variance 1 and a mean
    drawn with standard deviation `bias_spread`; of that variance at most `noise_share / layers²` is the noise of the weights
    (None: whatever it is), for what goes into a deep net must come out of it; `units_per_batch` units (None: all of the layer)
    share a batch of `rows` rows (None: eight for each weight of a unit, at least 4096). A convolution takes `patches` patches
    from them, or four for each weight where those are more, evenly from all images (None: every patch).
    The read-out regresses on up to `last_rows` rows (None: 16 384, behind convolutions half as many), or without `read_out` like a
    hidden unit, on its own class; then `fit_noise` sets what the likelihood learns with the weights, a noise variance, to its best.
    """

    targets: str = "random_features"
    centre: bool = True
    standardize: bool = True
    input_share: float = 0.98
    noise_var: float | None = None
    evidence_rows: int | None = 10_000
    rescale: bool = True
    bias_spread: float = 0.7
    noise_share: float | None = 6.0
    variance_scale: float = 1.0
    match: str = "kl_qp"
    rows: int | None = None
    units_per_batch: int | None = None
    patches: int | None = 8192
    read_out: bool = True
    last_rows: int | None = None
    fit_noise: bool = True

    def __post_init__(self) -> None:
        if self.targets not in ("label", "random_features"):
            raise unknown("kind of targets", self.targets, ("label", "random_features"))
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= least):
                raise HeadstartError(
                    f"I-BLM's {name} is a whole number, at least {least}, not {value}."
                )
        for name in ("variance_scale", "noise_var", "noise_share"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise HeadstartError(f"I-BLM's {name} is a positive number, not {value}.")
        if not 0 <= self.input_share < 1:
            raise HeadstartError(f"input_share lies in [0, 1), not {self.input_share}.")
        if self.match not in ("kl_qp", "kl_pq"):
            raise unknown("match", self.match, ("kl_qp", "kl_pq"))


DEFAULT = Settings()
PAPER = Settings(
    targets="label",
    centre=False,
    standardize=False,
    input_share=0.0,
    evidence_rows=None,
    rescale=False,
    bias_spread=0.0,
    noise_share=None,
    rows=256,
    units_per_batch=1,
    patches=None,
    read_out=False,
    fit_noise=False,
)
"""Algorithm 1 to the letter: a fresh mini-batch and a random class for each unit."""
