"""Every number we report, with its name, unit and orientation in one table."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Metric:
    """How a metric is called, what it is measured in, and which way is better (−1 lower, +1 higher, 0 neither)."""

    name: str
    label: str
    unit: str
    better: int


METRICS = {
    m.name: m
    for m in (
        Metric("rmse", "RMSE", "target units", -1),
        Metric("error", "Error", "share of rows", -1),
        Metric("mnll", "MNLL", "nats per row, −log E_q p", -1),
        Metric("expected_nll", "Expected NLL", "nats per row, −E_q log p", -1),
        Metric("ece", "ECE", "share of rows", -1),
        Metric("brier", "Brier score", "squared probability", -1),
        Metric("entropy", "Predictive entropy", "nats", 0),
        Metric("mutual_information", "Mutual information", "nats", 0),
        Metric("coverage_95", "Coverage of the 95 % interval", "share of targets", 0),
        Metric("auroc", "AUROC", "probability", 1),
        Metric("aupr", "AUPR", "area", 1),
        Metric("fpr95", "FPR at 95 % recall", "share of rows", -1),
    )
}


def rmse(mean: Tensor, y: Tensor) -> Tensor:
    """Root mean squared error over all rows and outputs.

    Example:
        >>> rmse(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
        tensor(1.4142)
    """
    return (mean - y).square().mean().sqrt()


def error(probs: Tensor, y: Tensor) -> Tensor:
    """The share of rows whose most probable class is not theirs; probs (B, K), y (B,)."""
    return (probs.argmax(-1) != y).to(probs.dtype).mean()


def brier(probs: Tensor, y: Tensor) -> Tensor:
    """`Σ_k (p_k − 1[y=k])²`, averaged over rows: 0 to 2."""
    return (probs - torch.nn.functional.one_hot(y, probs.shape[-1])).square().sum(-1).mean()


def ece(probs: Tensor, y: Tensor, bins: int = 15) -> Tensor:
    """Expected calibration error of the top class: `Σ_b (n_b/n) |accuracy_b − confidence_b|`, equal bins `(lo, hi]`.

    Example:
        >>> ece(torch.tensor([[1.0, 0.0], [0.6, 0.4]]), torch.tensor([1, 0]))  # (|0 − 1| + |1 − 0.6|) / 2
        tensor(0.7000)
    """
    counts, confidence, accuracy = reliability(probs, y, bins)
    return (counts * (accuracy - confidence).abs()).sum() / len(y)


def reliability(probs: Tensor, y: Tensor, bins: int = 15) -> tuple[Tensor, Tensor, Tensor]:
    """The reliability diagram of the top class: rows, mean confidence and accuracy of each bin `(lo, hi]`; an empty one has zeros.

    Example:
        >>> reliability(torch.tensor([[1.0, 0.0], [0.6, 0.4]]), torch.tensor([1, 0]), bins=2)
        (tensor([0., 2.]), tensor([0.0000, 0.8000]), tensor([0.0000, 0.5000]))
    """
    confidence, chosen = probs.max(-1)
    which = (confidence * bins).ceil().long().clamp(1, bins) - 1
    parts = torch.stack([torch.ones_like(confidence), confidence, (chosen == y).to(probs.dtype)])
    counts, *sums = torch.zeros(3, bins, dtype=probs.dtype, device=probs.device).index_add(
        1, which, parts
    )
    means = [part / counts.clamp_min(1) for part in sums]
    return counts, means[0], means[1]


def entropy(probs: Tensor) -> Tensor:
    """`−Σ_k p_k log p_k` of each row, in nats."""
    return torch.special.entr(probs).sum(-1)


def mutual_information(probs: Tensor) -> Tensor:
    """Of draws (S, B, K): the entropy of the mean minus the mean entropy, of each row: what is owed to doubt about the weights."""
    return (entropy(probs.mean(0)) - entropy(probs).mean(0)).clamp_min(0)


def coverage(lower: Tensor, upper: Tensor, y: Tensor) -> Tensor:
    """The share of targets inside their interval."""
    return ((lower <= y) & (y <= upper)).to(lower.dtype).mean()


def auroc(inside: Tensor, outside: Tensor) -> Tensor:
    """The probability that an outsider scores higher than an insider, ties counted half.

    Example:
        >>> auroc(torch.tensor([0.1, 0.5]), torch.tensor([0.5, 0.9]))
        tensor(0.8750)
    """
    ordered = inside.sort().values
    below = torch.searchsorted(ordered, outside.contiguous(), right=False)
    ties = torch.searchsorted(ordered, outside.contiguous(), right=True) - below
    return (below + 0.5 * ties).to(inside.dtype).mean() / len(inside)


def aupr(inside: Tensor, outside: Tensor) -> Tensor:
    """The area under the precision-recall curve of finding outsiders by a high score: `Σ (recall_i − recall_{i−1}) precision_i`.

    Example:
        >>> aupr(torch.tensor([0.1, 0.7]), torch.tensor([0.5, 0.9]))  # 1/2 · 1 + 1/2 · 2/3
        tensor(0.8333)
    """
    caught, false = _caught(inside, outside)
    gained = torch.diff(caught, prepend=caught.new_zeros(1)) / len(outside)
    return (gained * caught / (caught + false)).sum()


def fpr95(inside: Tensor, outside: Tensor) -> Tensor:
    """The share of insiders taken for outsiders where the threshold finds 95 % of the outsiders.

    Example:
        >>> fpr95(torch.tensor([0.1, 0.7]), torch.tensor([0.5, 0.9]))
        tensor(0.5000)
    """
    caught, false = _caught(inside, outside)
    enough = torch.searchsorted(caught, 0.95 * len(outside) * (1 - 1e-9))
    return false[enough] / len(inside)


def _caught(inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
    """Outsiders and insiders at or above each distinct score, from the highest down."""
    scores = torch.cat([inside, outside])
    levels = scores.unique().flip(0)
    return tuple(  # type: ignore[return-value]
        len(part) - torch.searchsorted(part.sort().values, levels, right=False).to(scores.dtype)
        for part in (outside, inside)
    )
