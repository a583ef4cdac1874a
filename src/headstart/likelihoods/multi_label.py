"""Several labels that a row may have or not, from one logit each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart import metrics
from headstart.likelihoods.base import check_columns, refuse_unless
from headstart.likelihoods.kinds import CategoryLabels, mean_logs
from headstart.likelihoods.targets import logit_match


class MultiLabel(CategoryLabels):
    """y_k ~ Bernoulli(sigmoid f_k), K labels that are independent given f: each is 0 or 1.

    Regression targets are those of `hs.Bernoulli`, label by label.

    Example:
        >>> MultiLabel().log_prob(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 1.0]]))  # 3 log ½
        tensor([-2.0794])
    """

    name = "multi_label"

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels in the one shape and dtype that the other methods take.

        Args:
            y: 0 and 1, (rows, K), or (rows,) where K = 1.
            outputs: K, the outputs of the net.

        Raises:
            HeadstartError: where they do not fit.
        """
        y = check_columns(y, outputs, "MultiLabel")
        refuse_unless(
            (y == 0) | (y == 1), lambda: "MultiLabel wants labels 0 and 1, and found others."
        )
        return y

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y | f) of each row, (..., B), summed over labels.

        Args:
            f: logits, (..., B, K).
            y: labels as `check` returns them.
        """
        return F.logsigmoid(torch.where(y == 1, f, -f)).sum(-1)

    def curvature(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """`y − p` and `p (1 − p)`.

        Args:
            f: logits, (..., B, K).
            y: labels as `check` returns them.
        """
        return y - f.sigmoid(), self.variance(f)

    def regression_targets(self, y: Tensor, center: bool = True) -> tuple[Tensor, Tensor]:
        """Logits as differences of two lognormal matches.

        Args:
            y: labels as `check` returns them.
            center: makes no difference.

        Returns:
            Targets (N, K) and noise variances.
        """
        return logit_match(y)

    def mean(self, f: Tensor) -> Tensor:
        """The probability of each label, (..., B, K).

        Args:
            f: logits, (..., B, K).
        """
        return f.sigmoid()

    def variance(self, f: Tensor) -> Tensor:
        """p(1 − p).

        Args:
            f: logits, (..., B, K).
        """
        return f.sigmoid() * f.neg().sigmoid()

    def sample(self, f: Tensor) -> Tensor:
        """Labels 0 and 1, (..., B, K).

        Args:
            f: logits, (..., B, K).
        """
        return torch.bernoulli(f.sigmoid())

    def summarize(self, f: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The probability of each label, and what that of all labels of a row is.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as `check` returns them.
        """
        return {"y": y, "yes": f.sigmoid().mean(0), **self.log_rows(f, y)}

    def score(self, summary: dict[str, Tensor]) -> dict[str, float]:
        """MNLL and expected NLL of rows; error, calibration error and Brier score of single labels.

        Args:
            summary: as `summarize` gives it.
        """
        labels, yes = summary["y"].flatten().long(), summary["yes"].flatten()
        probs = torch.stack([1 - yes, yes], 1)
        return {
            "error": float(metrics.error(probs, labels)),
            **mean_logs(summary),
            "ece": float(metrics.ece(probs, labels)),
            "brier": float(metrics.brier(probs, labels)),
        }
