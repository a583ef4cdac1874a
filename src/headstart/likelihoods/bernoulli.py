"""Yes or no, from one logit."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.distributed.collectives import ONE, Ranks
from headstart.errors import HeadstartError
from headstart.likelihoods.base import (
    CONCENTRATION,
    Likelihood,
    class_scores,
    lognormal_match,
    random_codes,
    refuse_unless,
)


class Bernoulli(Likelihood):
    """y ~ Bernoulli(sigmoid f), labels 0 and 1.

    As a regression target the label is a Beta(y + α, 1 − y + α), a ratio of two Gamma variables; each is matched by a lognormal
    and the logit is the difference of their logs: `t = t₁ − t₀`, `v = v₁ + v₀`.

    Example:
        >>> Bernoulli().log_prob(torch.zeros(1, 1), torch.tensor([1]))
        tensor([-0.6931])
    """

    name = "bernoulli"

    def check(self, y: Tensor, outputs: int) -> Tensor:
        if outputs != 1:
            raise HeadstartError(
                f"Bernoulli reads one logit, but the net has {outputs} outputs; Categorical reads several."
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
        return F.logsigmoid(torch.where(y.bool(), f.squeeze(-1), -f.squeeze(-1)))

    def regression_targets(self, y: Tensor, centre: bool = True) -> tuple[Tensor, Tensor]:
        ones = y.to(torch.get_default_dtype()).unsqueeze(1)
        (t1, v1), (t0, v0) = (
            lognormal_match(ones + CONCENTRATION),
            lognormal_match(1 - ones + CONCENTRATION),
        )
        return t1 - t0, v1 + v0

    def label_features(self, y: Tensor, count: int, ranks: Ranks = ONE) -> tuple[Tensor, Tensor]:
        """The logit target times a random number: two classes have no more than one feature."""
        t, _ = self.regression_targets(y)
        return random_codes(t, count, ranks)

    def mean(self, f: Tensor) -> Tensor:
        return f.sigmoid()

    def variance(self, f: Tensor) -> Tensor:
        return f.sigmoid() * f.neg().sigmoid()

    def probs(self, f: Tensor) -> Tensor:
        """(..., B, 2): of 0 and of 1."""
        return torch.cat([f.neg().sigmoid(), f.sigmoid()], dim=-1)

    def sample(self, f: Tensor) -> Tensor:
        return torch.bernoulli(f.squeeze(-1).sigmoid()).long()

    def evaluate(self, f: Tensor, y: Tensor) -> dict[str, float]:
        return class_scores(self, f, self.check(y, f.shape[-1]))
