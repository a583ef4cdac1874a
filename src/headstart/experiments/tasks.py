"""What differs between regression and classification: the likelihood, the outputs, the scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from headstart import data
from headstart.likelihoods import Categorical, Gaussian, Likelihood
from headstart.predictive import Predictive

PAPER_NOISE_VAR = math.exp(-2.0)
"""The noise variance of the paper's regression numbers, and where ours starts."""


@dataclass(frozen=True)
class ExperimentTask:
    """A kind of labels, and what differs for it.

    Args:
        metric: Its main metric.
        standardize_targets: Whether labels are scaled.
        likelihood: From a data set, a noise variance and whether to learn it, to a likelihood.
        outputs: How many outputs a net for a data set has.
        scores: From a prediction, test labels, training labels and their scaling, to the scores.
    """

    metric: str
    standardize_targets: bool
    likelihood: Callable[[data.Dataset, float, bool], Likelihood]
    outputs: Callable[[data.Dataset], int]
    scores: Callable[[Predictive, Tensor, Tensor, data.Scaling], dict[str, float]]


def _regression_scores(
    pred: Predictive, y: Tensor, seen: Tensor, scaling: data.Scaling
) -> dict[str, float]:
    """Metrics on standardized targets, and with the suffix `_units` in target units."""
    found = pred.evaluate(y)
    scale = float(scaling.y_scale)
    loss = (pred.mean - y).square().flatten()
    # The trivial predictor says the training mean, which is 0.
    trivial = y.square().flatten()
    return {
        **found,
        "paper_nll": paper_nll(pred.draws, y),
        "learned_noise_var": float(pred.likelihood.variance(pred.draws[:1, :1])),
        "rmse_units": scale * found["rmse"],
        "mnll_units": found["mnll"] + math.log(scale),
        "expected_nll_units": found["expected_nll"] + math.log(scale),
        "trivial": float(trivial.mean().sqrt()),
        "nc": not_better(loss, trivial),
    }


def _classification_scores(
    pred: Predictive, y: Tensor, seen: Tensor, scaling: data.Scaling
) -> dict[str, float]:
    found = pred.evaluate(y)
    loss, trivial = (pred.probs.argmax(1) != y).float(), (seen.mode().values != y).float()
    return {
        **found,
        "paper_nll": found["expected_nll"],
        "trivial": float(trivial.mean()),
        "nc": not_better(loss, trivial),
    }


def paper_nll(draws: Tensor, y: Tensor) -> float:
    """The paper's regression number: `−1 + (RMSE² + var f)/(2 e⁻²)`.

    It is the expected NLL at noise variance e⁻², without ½ log 2π.

    Example:
        >>> import torch
        >>> draws, y = torch.tensor([[[1.0]], [[3.0]]]), torch.tensor([[1.0]])
        >>> paper_nll(draws, y)  # (1² + 1)/(2 e⁻²) − 1
        6.3890...
    """
    return -1.0 + float((draws - y).square().mean()) / (2 * PAPER_NOISE_VAR)


def not_better(loss: Tensor, trivial: Tensor) -> bool:
    """Whether a predictor is no better than the trivial one.

    It is better where its mean loss is lower by two standard errors of the difference over rows.

    Example:
        >>> import torch
        >>> right, wrong = torch.zeros(100), torch.ones(100)
        >>> not_better(right, wrong), not_better(wrong, wrong)
        (False, True)
    """
    difference = (loss - trivial).double()
    standard_error = difference.std() / math.sqrt(len(difference))
    return not bool(difference.mean() < -2 * standard_error)


EXPERIMENT_TASKS = {
    "regression": ExperimentTask(
        metric="rmse",
        standardize_targets=True,
        likelihood=lambda dataset, noise_var, learn_noise: Gaussian(
            noise_var, learn_noise=learn_noise
        ),
        outputs=lambda dataset: dataset.y.shape[1],
        scores=_regression_scores,
    ),
    "classification": ExperimentTask(
        metric="error",
        standardize_targets=False,
        likelihood=lambda dataset, noise_var, learn_noise: Categorical(len(dataset.class_names)),
        outputs=lambda dataset: len(dataset.class_names),
        scores=_classification_scores,
    ),
}


def metric_of(row: Mapping[str, Any]) -> str:
    """The main metric of a row's task.

    Example:
        >>> metric_of({"step": 0, "error": 0.1})
        'error'
    """
    return next((task.metric for task in EXPERIMENT_TASKS.values() if task.metric in row), "rmse")
