"""New labels for an old model: intervals and probabilities set right, or the net updated."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from scipy import optimize

from headstart.errors import HeadstartError
from headstart.likelihoods import Likelihood, Weighted
from headstart.network.layer import inherit_
from headstart.predictive import Predictive
from headstart.tabular.calibration import LEVELS
from headstart.tabular.conformal import conformal_place, conformal_scores
from headstart.tabular.monitor import labeled_rows
from headstart.tabular.run import TableRun
from headstart.training.fit import fit
from headstart.training.weights import scaled_weights

MIN_LABELED = 20
"""Rows that a recalibration or an update takes at least."""
TEMPERATURES = (0.1, 10.0)
"""Between these a temperature is looked for."""


@dataclass(frozen=True)
class Recalibrated:
    """What a recalibration did.

    Args:
        run: The run as it is now.
        rows: The labeled rows that it took.
        words: What has changed, in a sentence.
    """

    run: TableRun
    rows: int
    words: str


def recalibrate(run: TableRun, frame: pd.DataFrame) -> Recalibrated:
    """Set intervals or probabilities right by labeled rows that the run has not learned from.

    Of a quantity, the intervals become conformal: with n such rows, an interval of level 1 − α
    covers a new row of the same kind with a probability between 1 − α and 1 − α + 1/(n + 1). Of
    classes, the logits are divided by the temperature with the largest likelihood.

    Args:
        run: What predicts; it stays as it is.
        frame: The rows; those without a label are left out.
    """
    rows, y = _enough_rows(run, frame)
    if run.schema.target.classes:
        plain = replace(run, temperature=1.0)
        temperature = best_temperature(plain.predict(rows), y)
        before = -float(run.predict(rows).log_prob(y).mean())
        now = replace(run, temperature=temperature)
        after = -float(now.predict(rows).log_prob(y).mean())
        words = (
            f"Logits are divided by {temperature:.3g}, where they were by {run.temperature:.3g}; "
            f"MNLL of these rows {after:.3f}, was {before:.3f}."
        )
        return Recalibrated(now, len(y), words)
    pred = run.predict(rows)
    factors = split_factors(pred, y)
    level = LEVELS[-1]
    low, high = run.intervals(rows, pred, LEVELS)[level]
    before = float(((y >= low) & (y <= high)).double().mean())
    calibration = replace(run.calibration, factors=factors)
    words = (
        f"Intervals of {level:.0%} are now {factors[level]:.3g} standard deviations to either "
        f"side; they held {before:.1%} of these rows before."
    )
    return Recalibrated(replace(run, calibration=calibration, folds=()), len(y), words)


def split_factors(pred: Predictive, y: torch.Tensor) -> dict[float, float]:
    """Split conformal: by level, the factor on the standard deviation that covers these rows.

    Of n distances `|y − mean| / sd` in order, the factor is the one at place ⌈level · (n + 1)⌉.
    """
    distance = conformal_scores(pred, y).sort().values
    places = {level: conformal_place(level, len(y)) for level in LEVELS}
    return {level: float(distance[place - 1]) for level, place in places.items()}


def best_temperature(pred: Predictive, y: torch.Tensor) -> float:
    """What to divide the logits of classes by, for the largest likelihood of these labels."""

    def misfit(log_temperature: float) -> float:
        warm = Predictive(pred.draws / math.exp(log_temperature), pred.likelihood)
        return -float(warm.log_prob(y).mean())

    ends = tuple(math.log(end) for end in TEMPERATURES)
    found = optimize.minimize_scalar(misfit, bounds=ends, method="bounded")
    return math.exp(float(found.x)) if found.fun < misfit(0.0) else 1.0


def update(
    run: TableRun, frame: pd.DataFrame, *, steps: int = 300, lr: float = 1e-3, seed: int = 0
) -> TableRun:
    """Learn from new labeled rows, the posterior of the old ones as the prior (`inherit_`).

    Columns, classes and units stay as they are, and so does what training rows look like:
    `headstart monitor` goes on comparing with the first ones. Conformal intervals, a temperature
    and the size of the noise are dropped: they were found for the net as it was.

    Args:
        run: What predicts; it stays as it is.
        frame: The new rows; those without a label are left out.
        steps: Steps of training.
        lr: The learning rate.
        seed: Seeds the training.
    """
    rows, y = _enough_rows(run, frame)
    return learn_more(run, run.inputs(rows), y, steps=steps, lr=lr, seed=seed)


def learn_more(
    run: TableRun,
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    steps: int,
    lr: float = 1e-3,
    seed: int = 0,
    weights: Any = None,
) -> TableRun:
    """The run after steps on more rows, with its posterior as the prior.

    Args:
        run: What predicts; it stays as it is.
        x: The rows, as the net takes them.
        y: Their labels: in the units of the table, or the places of classes.
        steps: Steps of training.
        lr: The learning rate.
        seed: Seeds the training.
        weights: What each row counts, in proportion; None: all count alike.
    """
    model, likelihood = copy.deepcopy((run.model, run.likelihood))
    inherit_(model)
    dtype = next(model.parameters()).dtype
    labels: Any = y
    counted: Likelihood = likelihood
    if weights is not None:
        labels, counted = (y, scaled_weights(weights, len(y))), Weighted(likelihood)
    # In double precision: labels are in the table's units, and 1e8 ± 1 needs its digits.
    fit(
        model.double(),
        counted,
        (x.double(), labels),
        steps=steps,
        lr=lr,
        lr_schedule="cosine",
        batch_size=min(256, len(y)),
        seed=seed,
        progress=False,
    )
    # Factors and a temperature were found for the net as it was.
    return replace(
        run,
        model=model.to(dtype).eval(),
        likelihood=likelihood,
        calibration=replace(run.calibration, factors={}),
        folds=(),
        temperature=1.0,
    )


def _enough_rows(run: TableRun, frame: pd.DataFrame) -> tuple[pd.DataFrame, torch.Tensor]:
    rows, y = labeled_rows(run, frame)
    if len(y) < MIN_LABELED:
        raise HeadstartError(
            f"{len(y)} rows have a known {run.schema.target.name!r}; at least {MIN_LABELED} are "
            "needed, and the model must not have learned from them."
        )
    return rows, y
