"""Yes or no, from one logit."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.likelihoods.base import refuse_unless
from headstart.likelihoods.kinds import CategoryLabels
from headstart.likelihoods.targets import logit_match


class Bernoulli(CategoryLabels):
    """y ~ Bernoulli(sigmoid f), labels 0 and 1.

    As a regression target the label is a Beta(y + α, 1 − y + α), a ratio of two Gamma variables.
    Each is matched by a lognormal, and the logit is the difference of their logs:
    `t = t₁ − t₀`, `v = v₁ + v₀`.

    Example:
        >>> Bernoulli().log_prob(torch.zeros(1, 1), torch.tensor([1]))
        tensor([-0.6931])
    """

    name = "bernoulli"

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels in the one shape and dtype that the other methods take.

        Args:
            y: 0 and 1, (rows,) or (rows, 1).
            outputs: the outputs of the net: 1.

        Raises:
            HeadstartError: where they do not fit.
        """
        if outputs != 1:
            raise HeadstartError(
                f"Bernoulli reads one logit, but the net has {outputs} outputs; "
                "Categorical reads one for each class, MultiLabel one for each of several labels."
            )
        if y.ndim == 2 and y.shape[1] == 1:
            y = y.squeeze(1)
        if y.ndim != 1:
            raise HeadstartError(
                f"Bernoulli wants labels of shape (rows,) or (rows, 1), not {tuple(y.shape)}."
            )
        refuse_unless(
            (y == 0) | (y == 1), lambda: "Bernoulli wants labels 0 and 1, and found others."
        )
        return y.long()

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y | f) of each row, (..., B).

        Args:
            f: logits, (..., B, 1).
            y: labels as `check` returns them.
        """
        return F.logsigmoid(torch.where(y.bool(), f.squeeze(-1), -f.squeeze(-1)))

    def curvature(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """`y − p` and `p (1 − p)`.

        Args:
            f: logits, (..., B, 1).
            y: labels as `check` returns them.
        """
        return y.to(f).unsqueeze(-1) - f.sigmoid(), self.variance(f)

    def regression_targets(self, y: Tensor, center: bool = True) -> tuple[Tensor, Tensor]:
        """The logit as a difference of two lognormal matches.

        Args:
            y: labels as `check` returns them.
            center: makes no difference.

        Returns:
            Targets (N, 1) and noise variances.
        """
        return logit_match(y.to(torch.get_default_dtype()).unsqueeze(1))

    def mean(self, f: Tensor) -> Tensor:
        """The probability of 1.

        Args:
            f: logits, (..., B, 1).
        """
        return f.sigmoid()

    def variance(self, f: Tensor) -> Tensor:
        """p(1 − p).

        Args:
            f: logits, (..., B, 1).
        """
        return f.sigmoid() * f.neg().sigmoid()

    def probs(self, f: Tensor) -> Tensor:
        """The probabilities of 0 and of 1, (..., B, 2).

        Args:
            f: logits, (..., B, 1).
        """
        return torch.cat([f.neg().sigmoid(), f.sigmoid()], dim=-1)

    def sample(self, f: Tensor) -> Tensor:
        """Labels 0 and 1, (..., B).

        Args:
            f: logits, (..., B, 1).
        """
        return torch.bernoulli(f.squeeze(-1).sigmoid()).long()
