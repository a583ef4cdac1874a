"""What likelihoods of the same kind of labels share: scores, label features, what is learned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from headstart import metrics
from headstart.distributed.rows import LOCAL_ROWS, AllRows
from headstart.likelihoods.base import Likelihood
from headstart.likelihoods.maximum import maximize_
from headstart.likelihoods.predictions import has_own_log_scores
from headstart.likelihoods.quantiles import count_interval, count_quantile
from headstart.likelihoods.targets import fourier_features, random_codes


def mean_logs(summary: dict[str, Tensor]) -> dict[str, float]:
    """The means over rows of what `log_rows` gave.

    Args:
        summary: of rows, what that gave among other things.
    """
    return {name: float(summary[name].mean()) for name in ("mnll", "expected_nll")}


class Summarized(Likelihood, ABC):
    """A likelihood whose metrics are those of summaries of rows."""

    @torch.no_grad()
    def evaluate(self, f: Tensor, y: Tensor) -> dict[str, float]:
        """The metrics that `score` gives; those of `log_scores` where a subclass has its own.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as the user gave them.
        """
        labels = self.check(y, f.shape[-1])
        scores = self.score(self.summarize(f, labels))
        if not has_own_log_scores(self):
            return scores
        return scores | self.for_prediction().log_scores(*self.labeled(f, labels))

    def labeled(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that count in metrics, and their labels.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as `check` returns them.
        """
        return f, y

    @abstractmethod
    def summarize(self, f: Tensor, y: Tensor) -> dict[str, Tensor]:
        """What `score` needs of each label, in tensors whose rows can be joined.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as `check` returns them.
        """


class NumberLabels(Summarized, ABC):
    """Labels that are real numbers or counts."""

    def fit_(self, f: Tensor, y: Tensor) -> None:
        """The most likely values of what is learned with the weights, if anything is.

        Args:
            f: draws of the outputs, (S, N, K).
            y: labels as `check` returns them.
        """
        maximize_(self, f, y)

    def label_features(
        self, y: Tensor, count: int, rows: AllRows = LOCAL_ROWS
    ) -> tuple[Tensor, Tensor]:
        """Random Fourier features of the regression targets.

        Args:
            y: labels as `check` returns them.
            count: how many.
            rows: means over all rows, of which `y` may be a shard.
        """
        t, v = self.regression_targets(y)
        return fourier_features(t, rows.mean(v), count, rows)

    @torch.no_grad()
    def summarize(self, f: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Mean and 95 % interval of each label, and what its density is.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as `check` returns them.
        """
        low, high = self.interval(f, 0.95)
        found = {"y": y, "mean": self.mean(f).mean(0), "low": low, "high": high}
        return found | self.log_rows(f, y)

    def score(self, summary: dict[str, Tensor]) -> dict[str, float]:
        """RMSE, MNLL, expected NLL and coverage of the 95 % interval.

        Args:
            summary: as `summarize` gives it.
        """
        y = summary["y"]
        return {
            "rmse": float(metrics.rmse(summary["mean"], y)),
            **mean_logs(summary),
            "coverage_95": float(metrics.coverage(summary["low"], summary["high"], y)),
        }


class CountedLabels(NumberLabels, ABC):
    """Labels 0, 1, 2, …"""

    lowest = 0.0
    has_counts = True

    @abstractmethod
    def distribution(self, f: Tensor, level: float) -> tuple[Callable[[Tensor], Tensor], Tensor]:
        """P(Y ≤ k) of the predictive mixture over draws, and counts where it reaches `level`.

        Args:
            f: draws of the outputs, (S, B, K).
            level: between 0 and 1.

        Returns:
            A function of counts (B, K), and such counts, both in float64.
        """

    def quantile(self, f: Tensor, level: float) -> Tensor:
        """The smallest count whose cumulative probability reaches `level`.

        Args:
            f: draws of the outputs, (S, B, K).
            level: between 0 and 1.
        """
        cdf, high = self.distribution(f, level)
        return count_quantile(cdf, high, level).to(f)

    def interval(self, f: Tensor, level: float) -> tuple[Tensor, Tensor]:
        """The interval of the predictive mixture that `count_interval` describes.

        Args:
            f: draws of the outputs, (S, B, K).
            level: the least probability of the interval, between 0 and 1.
        """
        cdf, high = self.distribution(f, (1 + level) / 2)
        low, high = count_interval(cdf, high, level)
        return low.to(f), high.to(f)


class CategoryLabels(Summarized, ABC):
    """Labels that are classes."""

    def label_features(
        self, y: Tensor, count: int, rows: AllRows = LOCAL_ROWS
    ) -> tuple[Tensor, Tensor]:
        """Random Gaussian combinations of the regression targets.

        Args:
            y: labels as `check` returns them.
            count: how many.
            rows: means over all rows, of which `y` may be a shard.
        """
        return random_codes(self.regression_targets(y)[0], count, rows)

    @torch.no_grad()
    def summarize(self, f: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Class probabilities, entropies of each row, and what the probability of its label is.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as `check` returns them.
        """
        each = self.probs(f)
        return {
            "y": y,
            "probs": each.mean(0),
            "mutual_information": metrics.mutual_information(each),
            **self.log_rows(f, y),
        }

    def score(self, summary: dict[str, Tensor]) -> dict[str, float]:
        """Error, MNLL, expected NLL, calibration error, Brier score, entropies.

        Args:
            summary: as `summarize` gives it.
        """
        y, probs = summary["y"], summary["probs"]
        return {
            "error": float(metrics.error(probs, y)),
            **mean_logs(summary),
            "ece": float(metrics.ece(probs, y)),
            "brier": float(metrics.brier(probs, y)),
            "entropy": float(metrics.entropy(probs).mean()),
            "mutual_information": float(summary["mutual_information"].mean()),
        }
