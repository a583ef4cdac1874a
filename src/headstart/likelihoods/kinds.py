"""What likelihoods of the same kind of labels share: scores, label features, what is learned."""

from __future__ import annotations

from abc import ABC

import torch
from torch import Tensor

from headstart import metrics
from headstart.distributed.rows import LOCAL_ROWS, AllRows
from headstart.likelihoods.base import Likelihood
from headstart.likelihoods.maximum import maximize_
from headstart.likelihoods.targets import fourier_features, random_codes


class NumberLabels(Likelihood, ABC):
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
    def evaluate(self, f: Tensor, y: Tensor) -> dict[str, float]:
        """RMSE, MNLL, expected NLL and coverage of the 95 % interval.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as the user gave them.
        """
        y = self.check(y, f.shape[-1])
        inside = metrics.coverage(self.quantile(f, 0.025), self.quantile(f, 0.975), y)
        rmse = metrics.rmse(self.mean(f).mean(0), y)
        return {"rmse": float(rmse), **self.log_scores(f, y), "coverage_95": float(inside)}


class CategoryLabels(Likelihood, ABC):
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
    def evaluate(self, f: Tensor, y: Tensor) -> dict[str, float]:
        """Error, MNLL, expected NLL, calibration error, Brier score, entropies.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as the user gave them.
        """
        y, each = self.check(y, f.shape[-1]), self.probs(f)
        probs = each.mean(0)
        return {
            "error": float(metrics.error(probs, y)),
            **self.log_scores(f, y),
            "ece": float(metrics.ece(probs, y)),
            "brier": float(metrics.brier(probs, y)),
            "entropy": float(metrics.entropy(probs).mean()),
            "mutual_information": float(metrics.mutual_information(each).mean()),
        }
