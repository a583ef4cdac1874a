"""Rows that count for more or less than others, or for nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headstart.distributed.rows import LOCAL_ROWS, MIN_WEIGHT, AllRows
from headstart.errors import HeadstartError
from headstart.likelihoods.base import Likelihood, refuse_unless
from headstart.likelihoods.wrapped import WrappedLikelihood
from headstart.linalg.precision import in_double
from headstart.nested import Nested
from headstart.network.inputs import WEIGHT_KEY


class Weighted(WrappedLikelihood):
    """`w log p(y | f)`: the log-likelihood of each row multiplied by a weight of its own.

    Labels come with their weights: a batch is a dictionary with `labels` and `sample_weight`, or a
    pair `(x, (y, weights))`; labels alone have weight 1. Weights whose mean over the rows is 1 keep
    the balance between likelihood and KL. As a mask, of weights 0 and 1, they leave rows out, and
    in `PerPosition(Weighted(likelihood))` positions. Weights change what is trained, not what is
    predicted: metrics leave out rows of weight 0 and count all others alike.

    Args:
        likelihood: that of a row of weight 1.

    Example:
        >>> import headstart as hs
        >>> lik = Weighted(hs.Bernoulli())
        >>> y = Nested((torch.ones(3), torch.tensor([1.0, 2.0, 0.0])))
        >>> lik.log_prob(torch.zeros(3, 1), lik.check(y, 1)).abs()  # log 2, twice that, nothing
        tensor([0.6931, 1.3863, 0.0000])
    """

    name = "weighted"
    is_plain = False

    def __init__(self, likelihood: Likelihood) -> None:
        super().__init__(likelihood)
        if not likelihood.is_plain:
            raise HeadstartError(
                f"Weights belong to single labels, not to {likelihood.name}: weight the likelihood "
                "of a position or of a head, as in PerPosition(Weighted(likelihood))."
            )
        self._as_mask = False

    def _labels(self, y: Any) -> Tensor:
        return _apart(y)[0]

    def for_prediction(self) -> Weighted:
        """A copy that predictions keep: labels of weight 0 do not count, all others count alike."""
        found = super().for_prediction()
        found._as_mask = True
        return found

    def label_weights(self, y: Any) -> Tensor | None:
        """The weights, times what the likelihood within counts labels for.

        Args:
            y: labels as `check` returns them.
        """
        own, within = self._weights(y), super().label_weights(y)
        return within if own is None else own if within is None else own.to(within) * within

    def _weights(self, y: Any) -> Tensor | None:
        """The weights that came with the labels."""
        weights = _apart(y)[1]
        return weights if weights is None or not self._as_mask else (weights > 0).to(weights)

    # Labels and their weights.
    def check(self, y: Any, outputs: Any) -> Any:
        """Labels as the likelihood wants them, and weights (rows,).

        Args:
            y: labels with weights, or labels alone.
            outputs: K, the outputs of the net.

        Raises:
            HeadstartError: they do not fit, or a weight is negative.
        """
        labels, weights = _apart(y)
        labels = self.likelihood.check(labels, outputs)
        if weights is None:
            weights = torch.ones(len(labels), device=labels.device)
        if weights.shape != (len(labels),):
            raise HeadstartError(
                f"There must be a weight for each label, {(len(labels),)}, "
                f"not {tuple(weights.shape)}."
            )
        refuse_unless(
            weights >= 0, lambda: f"Weights must be at least 0; one is {float(weights.min()):g}."
        )
        return Nested(named={"labels": labels, WEIGHT_KEY: weights})

    def plain_labels(self, y: Any) -> Any:
        """The labels without their weights.

        Args:
            y: labels as `check` returns them.
        """
        return _apart(y)[0]

    def log_prob(self, f: Tensor, y: Any) -> Tensor:
        """`w log p(y | f)` of each row, (..., B).

        Args:
            f: outputs of the net, (..., B, K).
            y: labels as `check` returns them; labels alone have weight 1.
        """
        labels, weights = _apart(y)[0], self._weights(y)
        each = self.likelihood.log_prob(f, labels)
        return each if weights is None else weights.to(each) * each

    def curvature(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """The gradient of `w log p(y | f)` and the diagonal of its negative Hessian.

        Args:
            f: outputs of the net, (..., B, K).
            y: labels as `check` returns them.
        """
        labels, weights = _apart(y)
        slope, curvature = self.likelihood.curvature(f, labels)
        if weights is None:
            return slope, curvature
        weights = weights.to(slope).unsqueeze(-1)
        return weights * slope, weights * curvature

    # I-BLM: a row that counts w has 1/w of the noise.
    def regression_targets(self, y: Any, center: bool = True) -> tuple[Tensor, Tensor]:
        """Targets, and noise variances divided by the weights.

        Args:
            y: labels as `check` returns them.
            center: whether to take off what the likelihood does not see.
        """
        return _louder(super().regression_targets(y, center), self._weights(y))

    def refined_targets(self, y: Any, f: Tensor) -> tuple[Tensor, Tensor] | None:
        """Targets of a second round; None where one round is enough.

        Args:
            y: labels as `check` returns them.
            f: outputs of the mean network, (N, K).
        """
        targets = super().refined_targets(y, f)
        return None if targets is None else _louder(targets, self._weights(y))

    def label_features(
        self, y: Any, count: int, rows: AllRows = LOCAL_ROWS
    ) -> tuple[Tensor, Tensor]:
        """Random functions of the label, and noise variances divided by the weights.

        Args:
            y: labels as `check` returns them.
            count: how many functions.
            rows: means over all rows, of which `y` may be a shard.
        """
        return _louder(super().label_features(y, count, rows), self._weights(y))

    def fit_(self, f: Tensor, y: Any) -> None:
        """Set the parameters that are learned with the weights of the net to their best.

        Rows are taken as often as they count, as near as their number allows.

        Args:
            f: draws of the outputs, (S, N, K).
            y: labels as `check` returns them.
        """
        labels, weights = _apart(y)
        if weights is None or bool((weights == weights[:1]).all()):
            self.likelihood.fit_(f, labels)
            return
        chosen = rows_as_counted(weights)
        self.likelihood.fit_(f[:, chosen], labels[chosen])

    # Predictions know no weights, but which labels count.

    def log_predictive(self, f: Tensor, y: Any) -> Tensor:
        """`log mean_s p(y | f_s)` of each row, without weights.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as `check` returns them.
        """
        return self.likelihood.log_predictive(f, _apart(y)[0])

    def evaluate(self, f: Tensor, y: Any) -> dict[str, float]:
        """The metrics of all rows that count.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as `check` returns them.

        Raises:
            HeadstartError: no row counts.
        """
        labels, weights = _apart(y)
        if weights is None:
            return self.likelihood.evaluate(f, labels)
        counts = weights > 0
        if not bool(counts.any()):
            raise HeadstartError("Every weight is 0: there is nothing to score.")
        return self.likelihood.evaluate(f[:, counts], labels[counts])

    def summarize(self, f: Tensor, y: Any) -> dict[str, Tensor] | None:
        """That of all rows that count.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as `check` returns them.
        """
        labels, weights = _apart(y)
        counts = slice(None) if weights is None else weights > 0
        return self.likelihood.summarize(f[:, counts], labels[counts])

    def score(self, summary: dict[str, Tensor]) -> dict[str, float]:
        """The metrics of all rows that count.

        Args:
            summary: as `summarize` gives it.
        """
        if not len(next(iter(summary.values()))):
            raise HeadstartError("Every weight is 0: there is nothing to score.")
        return self.likelihood.score(summary)


def rows_as_counted(weights: Tensor) -> Tensor:
    """As many rows as there are, each taken as often as it counts, as near as that goes.

    Args:
        weights: the weight of each row, some of them above 0.

    Example:
        >>> rows_as_counted(torch.tensor([2.0, 0.0, 1.0, 1.0])).tolist()
        [0, 0, 2, 3]
    """
    total = in_double(weights).cumsum(0)
    at = (torch.arange(len(weights), device=weights.device) + 0.5) / len(weights)
    return torch.searchsorted(total / total[-1], in_double(at)).clamp_max(len(weights) - 1)


def _apart(y: Any) -> tuple[Tensor, Tensor | None]:
    """Labels and weights."""
    if isinstance(y, Tensor):
        return y, None
    if WEIGHT_KEY in y.named:
        return y.named["labels"], y.named[WEIGHT_KEY]
    if len(y.args) != 2 or y.named:
        raise HeadstartError(
            "Weighted wants labels and weights: a dictionary batch with 'labels' and "
            f"{WEIGHT_KEY!r}, or a pair (x, (y, weights)); not {', '.join(y.keys)}."
        )
    return y.args[0], y.args[1]


def _louder(targets: tuple[Tensor, Tensor], weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Targets with noise that is the larger the less a row counts."""
    t, v = targets
    if weights is None:
        return t, v
    return t, v / weights.to(v).clamp_min(MIN_WEIGHT).unsqueeze(1)
