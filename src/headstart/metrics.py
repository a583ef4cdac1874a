"""Every number we report, with its name, unit and orientation in one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from headstart.errors import HeadstartError


@dataclass(frozen=True)
class Metric:
    """What a metric is called, what it is measured in, and which way is better.

    Args:
        name: Its name in scores and files.
        label: Its name on pages.
        unit: What it is measured in.
        better: −1 where lower is better, +1 where higher is, 0 where neither is.
    """

    name: str
    label: str
    unit: str
    better: int


METRICS = {
    m.name: m
    for m in (
        Metric("rmse", "RMSE", "target units", -1),
        Metric("error", "Error", "fraction of rows", -1),
        Metric("mnll", "MNLL", "nats per row, −log E_q p", -1),
        Metric("expected_nll", "Expected NLL", "nats per row, −E_q log p", -1),
        Metric("ece", "ECE", "fraction of rows", -1),
        Metric("brier", "Brier score", "squared probability", -1),
        Metric("entropy", "Predictive entropy", "nats", 0),
        Metric("mutual_information", "Mutual information", "nats", 0),
        Metric("coverage_95", "Coverage of the 95 % interval", "fraction of targets", 0),
        Metric("crps", "CRPS", "target units", -1),
        Metric("interval_score_95", "Interval score of the 95 % interval", "target units", -1),
        Metric("auroc", "AUROC", "probability", 1),
        Metric("aupr", "AUPR", "area", 1),
        Metric("fpr95", "FPR at 95 % recall", "fraction of rows", -1),
    )
}
"""Every metric by name."""
OWN_METRICS: dict[str, Callable[[Any, Tensor], float | None]] = {}
"""Metrics of the user's own by name, functions of the predictive distribution and the labels."""
M = TypeVar("M", bound=Callable[..., "float | None"])


def register_metric(name: str, *, better: int, label: str = "", unit: str = "") -> Callable[[M], M]:
    """A decorator that adds a metric of your own to all scores, and so to `fit(monitor=name)`.

    The function takes a `Predictive` and its labels (as the likelihood's `check` returns them) and
    returns a number, or None where it has no meaning, for other likelihoods say.

    Args:
        name: Its name in scores and files.
        better: −1 where lower is better, +1 where higher is, 0 where neither is.
        label: Its name on pages; by default `name`.
        unit: What it is measured in.

    Returns:
        The decorator, which returns the function as it is.

    Raises:
        HeadstartError: The name is that of another metric, or `better` is no side.

    Example:
        >>> @register_metric("mae", better=-1)
        ... def mae(pred, y):
        ...     return float((pred.mean - y).abs().mean())
        >>> METRICS.pop("mae").better, OWN_METRICS.pop("mae") is mae
        (-1, True)
    """
    if name in METRICS and name not in OWN_METRICS:
        raise HeadstartError(f"There is a metric {name!r} already; choose another name.")
    if better not in (-1, 0, 1):
        raise HeadstartError(f"better must be −1, 0 or 1, not {better}.")

    def register(of: M) -> M:
        METRICS[name], OWN_METRICS[name] = Metric(name, label or name, unit, better), of
        return of

    return register


def score_metric(name: str) -> Metric:
    """What a score is, of one head of a net or of all.

    Args:
        name: of a metric, with that of a head before it where there are several.

    Example:
        >>> score_metric("depth/rmse").better
        -1
    """
    return METRICS[name.rpartition("/")[2]]


def rmse(mean: Tensor, y: Tensor) -> Tensor:
    """Root mean squared error over all rows and outputs.

    Args:
        mean: Predictions.
        y: Targets, in the same shape.

    Example:
        >>> rmse(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
        tensor(1.4142)
    """
    return (mean - y).square().mean().sqrt()


def crps(samples: Tensor, y: Tensor) -> Tensor:
    """The continuous ranked probability score of each row, `E|Y − y| − ½ E|Y − Y'|`.

    The expectation over pairs is that of independent draws, so that no number of samples biases it.

    Args:
        samples: Draws of the label, (S, B), at least two.
        y: Labels, (B,).

    Returns:
        The score of each row, (B,); lower is better.

    Example:
        Here `E|Y − y| = 1` and `E|Y − Y'| = 2`:

        >>> crps(torch.tensor([[-1.0], [1.0]]), torch.tensor([0.0]))
        tensor([0.])
    """
    count = len(samples)
    ordered = samples.sort(0).values
    weight = 2 * torch.arange(1, count + 1, dtype=samples.dtype, device=samples.device) - count - 1
    pairs = 2 * (weight[:, None] * ordered).sum(0) / (count * (count - 1))
    return (samples - y).abs().mean(0) - 0.5 * pairs


def interval_score(low: Tensor, high: Tensor, y: Tensor, level: float) -> Tensor:
    """The interval score of each row: the width, and 2/α times what a label lies outside.

    Args:
        low: Lower ends, (B,).
        high: Upper ends, (B,).
        y: Labels, (B,).
        level: 1 − α, the probability that the interval is meant to have.

    Returns:
        The score of each row, (B,); the quantiles at α/2 and 1 − α/2 have the lowest on average.

    Example:
        >>> interval_score(torch.zeros(2), torch.ones(2), torch.tensor([0.5, 1.5]), 0.5)
        tensor([1., 3.])
    """
    outside = (low - y).clamp_min(0) + (y - high).clamp_min(0)
    return high - low + 2 / (1 - level) * outside


def error(probs: Tensor, y: Tensor) -> Tensor:
    """The fraction of rows whose most probable class is not theirs.

    Args:
        probs: Class probabilities, (B, K).
        y: Classes, (B,), or the probabilities that they are drawn from, (B, K).

    Example:
        >>> error(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1]))
        tensor(0.5000)
    """
    return (1 - _is_right(probs.argmax(-1), y, probs.dtype)).mean()


def brier(probs: Tensor, y: Tensor) -> Tensor:
    """The Brier score, `Σ_k (p_k − 1[y=k])²` averaged over rows: 0 to 2.

    Args:
        probs: Class probabilities, (B, K).
        y: Classes, (B,), or the probabilities that they are drawn from, (B, K).

    Example:
        >>> brier(torch.tensor([[0.5, 0.5]]), torch.tensor([1]))
        tensor(0.5000)
    """
    if y.ndim == 1:
        return (probs - torch.nn.functional.one_hot(y, probs.shape[-1])).square().sum(-1).mean()
    return ((probs - y).square() + y * (1 - y)).sum(-1).mean()


def ece(probs: Tensor, y: Tensor, bins: int = 15) -> Tensor:
    """Expected calibration error of the top class, `Σ_b (n_b/n) |accuracy_b − confidence_b|`.

    Args:
        probs: Class probabilities, (B, K).
        y: Classes, (B,), or the probabilities that they are drawn from, (B, K).
        bins: How many bins `(low, high]` of equal width the confidences are sorted into.

    Example:
        Two bins hold a row each, `(|0 − 1| + |1 − 0.6|) / 2`:

        >>> ece(torch.tensor([[1.0, 0.0], [0.6, 0.4]]), torch.tensor([1, 0]))
        tensor(0.7000)
    """
    counts, confidence, accuracy = reliability(probs, y, bins)
    return (counts * (accuracy - confidence).abs()).sum() / len(y)


def reliability(probs: Tensor, y: Tensor, bins: int = 15) -> tuple[Tensor, Tensor, Tensor]:
    """The reliability diagram of the top class.

    Args:
        probs: Class probabilities, (B, K).
        y: Classes, (B,), or the probabilities that they are drawn from, (B, K).
        bins: How many bins `(low, high]` of equal width the confidences are sorted into.

    Returns:
        Rows, mean confidence and accuracy of each bin; an empty bin has zeros.

    Example:
        >>> reliability(torch.tensor([[1.0, 0.0], [0.6, 0.4]]), torch.tensor([1, 0]), bins=2)
        (tensor([0., 2.]), tensor([0.0000, 0.8000]), tensor([0.0000, 0.5000]))
    """
    confidence, chosen = probs.max(-1)
    which = (confidence * bins).ceil().long().clamp(1, bins) - 1
    right = _is_right(chosen, y, probs.dtype)
    parts = torch.stack([torch.ones_like(confidence), confidence, right])
    counts, *sums = torch.zeros(3, bins, dtype=probs.dtype, device=probs.device).index_add(
        1, which, parts
    )
    means = [part / counts.clamp_min(1) for part in sums]
    return counts, means[0], means[1]


def _is_right(chosen: Tensor, y: Tensor, dtype: torch.dtype) -> Tensor:
    """The probability that each chosen class is the row's, (B,)."""
    right = chosen == y if y.ndim == 1 else y.gather(1, chosen.unsqueeze(1)).squeeze(1)
    return right.to(dtype)


def entropy(probs: Tensor) -> Tensor:
    """The entropy `−Σ_k p_k log p_k` of each row, in nats.

    Args:
        probs: Class probabilities, (..., K).

    Example:
        >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
        tensor([0.6931, 0.0000])
    """
    return torch.special.entr(probs).sum(-1)


def mutual_information(probs: Tensor) -> Tensor:
    """The entropy of the mean minus the mean entropy of each row: doubt about the weights.

    Args:
        probs: Draws of class probabilities, (S, B, K).

    Example:
        >>> mutual_information(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]))
        tensor([0.6931])
    """
    return (entropy(probs.mean(0)) - entropy(probs).mean(0)).clamp_min(0)


def coverage(lower: Tensor, upper: Tensor, y: Tensor) -> Tensor:
    """The fraction of targets inside their interval.

    Args:
        lower: Lower ends.
        upper: Upper ends, in the same shape.
        y: Targets, in the same shape.

    Example:
        >>> coverage(torch.zeros(4), torch.ones(4), torch.tensor([-1.0, 0.0, 0.5, 1.0]))
        tensor(0.7500)
    """
    return ((lower <= y) & (y <= upper)).to(lower.dtype).mean()


def auroc(in_distribution: Tensor, out_of_distribution: Tensor) -> Tensor:
    """The probability that an out-of-distribution row scores higher than an in-distribution one.

    Ties count half.

    Args:
        in_distribution: Scores of rows like those of training.
        out_of_distribution: Scores of rows unlike them, which should be higher.

    Example:
        >>> auroc(torch.tensor([0.1, 0.5]), torch.tensor([0.5, 0.9]))
        tensor(0.8750)
    """
    ordered = in_distribution.sort().values
    below = torch.searchsorted(ordered, out_of_distribution.contiguous(), right=False)
    ties = torch.searchsorted(ordered, out_of_distribution.contiguous(), right=True) - below
    return (below + 0.5 * ties).to(in_distribution.dtype).mean() / len(in_distribution)


def aupr(in_distribution: Tensor, out_of_distribution: Tensor) -> Tensor:
    """The area under the precision-recall curve of finding out-of-distribution rows.

    It is `Σ_i (recall_i − recall_{i−1}) precision_i` over thresholds on the score.

    Args:
        in_distribution: Scores of rows like those of training.
        out_of_distribution: Scores of rows unlike them, which should be higher.

    Example:
        The two rows are found with precisions 1 and 2/3:

        >>> aupr(torch.tensor([0.1, 0.7]), torch.tensor([0.5, 0.9]))
        tensor(0.8333)
    """
    true, false = _positives(in_distribution, out_of_distribution)
    gained = torch.diff(true, prepend=true.new_zeros(1)) / len(out_of_distribution)
    return (gained * true / (true + false)).sum()


def fpr95(in_distribution: Tensor, out_of_distribution: Tensor) -> Tensor:
    """The false-positive rate where 95 % of the out-of-distribution rows are found.

    Args:
        in_distribution: Scores of rows like those of training.
        out_of_distribution: Scores of rows unlike them, which should be higher.

    Example:
        >>> fpr95(torch.tensor([0.1, 0.7]), torch.tensor([0.5, 0.9]))
        tensor(0.5000)
    """
    true, false = _positives(in_distribution, out_of_distribution)
    enough = torch.searchsorted(true, 0.95 * len(out_of_distribution) * (1 - 1e-9))
    return false[enough] / len(in_distribution)


def _positives(in_distribution: Tensor, out_of_distribution: Tensor) -> tuple[Tensor, Tensor]:
    """True and false positives at or above each distinct score, from the highest down."""
    scores = torch.cat([in_distribution, out_of_distribution])
    levels = scores.unique().flip(0)
    return tuple(  # type: ignore[return-value]
        len(part) - torch.searchsorted(part.sort().values, levels, right=False).to(scores.dtype)
        for part in (out_of_distribution, in_distribution)
    )
