"""What can be chosen about I-BLM."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from headstart.errors import HeadstartError, unknown


class Unset(Enum):
    """The type of `UNSET`: an option that the caller has not set, where None means something."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset.UNSET
MINIMA = {"rows": 2, "last_rows": 1, "patches": 2, "units_per_batch": 1, "evidence_rows": 1}
"""Lower bounds of these settings, where they are given."""


@dataclass(frozen=True)
class IBLMSettings:
    """The choices of I-BLM that the paper leaves open.

    Args:
        targets: hidden units regress on "random_features" of the label, or on the "label" itself,
            that of a random class.
        center: whether targets are centered.
        standardize: whether targets are divided by their standard deviation.
        input_share: a fraction of a target's standard deviation, from 0 in some units to this in
            others, is a random projection of the layer's own inputs, so that units differ and
            nothing is forgotten.
        noise_var: replaces the likelihood's noise variance.
        evidence_rows: the evidence of a unit with a hundred weights counts as that of so many rows,
            at most as many as there are, and less where units are wider or rows scarce; None: the
            rows at hand.
        rescale: whether every pre-activation gets variance 1 and a random mean.
        bias_spread: the standard deviation of these random means.
        noise_share: of a pre-activation's variance at most `noise_share / layers²` is the noise of
            the weights, for what goes into a deep net must come out of it; None: no bound.
        variance_scale: multiplies the variances of hidden units.
        match: the divergence by which a posterior is projected, "kl_qp" or "kl_pq".
        rows: rows of a layer's regression; None: eight for each weight of a unit, at least 4096.
        units_per_batch: how many units share a batch of rows; None: all of the layer.
        patches: patches that a convolution takes evenly from all images, or four for each weight
            where those are more; None: every patch.
        read_out: whether the last layer regresses on all rows up to `last_rows`; without it each
            of its units regresses like a hidden one, on its own class.
        last_rows: a bound on the rows of the read-out; None: 16 384, behind convolutions half as
            many.
        fit_noise: whether what the likelihood learns with the weights, a noise variance, is set to
            its best at the end.
        one_draw: whether the rows of a batch share one draw of the weights of the layers below, as
            the paper writes; without it each row has its own where that is the true law.

    Raises:
        HeadstartError: where a value makes no sense.
    """

    targets: str = "random_features"
    center: bool = True
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
    one_draw: bool = False

    def __post_init__(self) -> None:
        if self.targets not in ("label", "random_features"):
            raise unknown("kind of targets", self.targets, ("label", "random_features"))
        for name, minimum in MINIMA.items():
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= minimum):
                raise HeadstartError(
                    f"I-BLM's {name} is a whole number, at least {minimum}, not {value}."
                )
        for name in ("variance_scale", "noise_var", "noise_share"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise HeadstartError(f"I-BLM's {name} is a positive number, not {value}.")
        if not 0 <= self.input_share < 1:
            raise HeadstartError(f"input_share lies in [0, 1), not {self.input_share}.")
        if self.match not in ("kl_qp", "kl_pq"):
            raise unknown("match", self.match, ("kl_qp", "kl_pq"))


DEFAULT_SETTINGS = IBLMSettings()
PAPER_SETTINGS = IBLMSettings(
    targets="label",
    center=False,
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
"""Our reading of Algorithm 1: a fresh mini-batch and a random class for each unit.

It draws the layers below row by row; the paper draws one sample of the weights, as `one_draw` does.
"""
