"""Class labels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.distributed.rows import LOCAL_ROWS, AllRows
from headstart.errors import HeadstartError
from headstart.likelihoods.base import Likelihood, class_scores, refuse_unless
from headstart.likelihoods.targets import CONCENTRATION, lognormal_match, random_codes


class Categorical(Likelihood):
    """y ~ Categorical(softmax f).

    As regression targets a label is a Dirichlet with concentration `one_hot + α`, each of its Gamma
    variables matched by a lognormal: `v = log(1/(Y+α) + 1)`, `t = log(Y+α) − v/2`.

    Args:
        num_classes: K, at least 2.

    Example:
        >>> lik = Categorical(num_classes=3)
        >>> lik.log_prob(torch.zeros(1, 3), torch.tensor([2]))
        tensor([-1.0986])
    """

    name = "categorical"

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        if num_classes < 2:
            raise HeadstartError(f"Categorical needs at least two classes, not {num_classes}.")
        self.num_classes = num_classes

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels in the one shape and dtype that the other methods take.

        Args:
            y: integers 0…K−1, (rows,).
            outputs: the outputs of the net: K.

        Raises:
            HeadstartError: where they do not fit.
        """
        k = self.num_classes
        if outputs != k:
            raise HeadstartError(
                f"The net has {outputs} outputs, but Categorical(num_classes={k}) needs {k}."
            )
        if y.is_floating_point() or y.ndim != 1:
            hint = " (one-hot rows? take y.argmax(1))" if y.ndim == 2 and y.shape[1] == k else ""
            raise HeadstartError(
                f"Categorical wants integer labels of shape (rows,), not {y.dtype} "
                f"of shape {tuple(y.shape)}{hint}."
            )
        refuse_unless(
            (y >= 0) & (y < k),
            lambda: f"Labels must lie in 0…{k - 1}; found {int(y.min())}…{int(y.max())}.",
        )
        return y.long()

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y | f) of each row, (..., B).

        Args:
            f: logits, (..., B, K).
            y: labels as `check` returns them.
        """
        return f.log_softmax(-1).gather(-1, y.expand(f.shape[:-1]).unsqueeze(-1)).squeeze(-1)

    def curvature(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """`Y − p` and `p (1 − p)`, Y the one-hot labels.

        Args:
            f: logits, (..., B, K).
            y: labels as `check` returns them.
        """
        p = f.softmax(-1)
        return F.one_hot(y, self.num_classes).to(f) - p, p * (1 - p)

    def regression_targets(self, y: Tensor, center: bool = True) -> tuple[Tensor, Tensor]:
        """The lognormal targets of a label's Dirichlet.

        Args:
            y: labels as `check` returns them.
            center: takes a constant off all classes alike, which the softmax does not see.

        Returns:
            Targets (N, K) and noise variances.
        """
        one_hot = F.one_hot(y, self.num_classes).to(torch.get_default_dtype())
        t, v = lognormal_match(one_hot + CONCENTRATION)
        return (t - t.mean(1, keepdim=True) if center else t), v

    def label_features(
        self, y: Tensor, count: int, rows: AllRows = LOCAL_ROWS
    ) -> tuple[Tensor, Tensor]:
        """Random Gaussian combinations of the class targets.

        Args:
            y: labels as `check` returns them.
            count: how many.
            rows: means over all rows, of which `y` may be a shard.
        """
        t, _ = self.regression_targets(y)
        return random_codes(t, count, rows)

    def mean(self, f: Tensor) -> Tensor:
        """Class probabilities, (..., B, K).

        Args:
            f: logits, (..., B, K).
        """
        return f.softmax(-1)

    def probs(self, f: Tensor) -> Tensor:
        """Class probabilities, (..., B, K).

        Args:
            f: logits, (..., B, K).
        """
        return f.softmax(-1)

    def variance(self, f: Tensor) -> Tensor:
        """Of each class's indicator, p(1 − p).

        Args:
            f: logits, (..., B, K).
        """
        p = f.softmax(-1)
        return p * (1 - p)

    def sample(self, f: Tensor) -> Tensor:
        """Labels, (..., B).

        Args:
            f: logits, (..., B, K).
        """
        # log p − log e is a Gumbel race for the largest.
        gumbel = torch.empty_like(f).exponential_().log_()
        return (f - gumbel).argmax(-1)

    def evaluate(self, f: Tensor, y: Tensor) -> dict[str, float]:
        """Error, MNLL, expected NLL, calibration error, Brier score, entropies.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as the user gave them.
        """
        return class_scores(self, f, self.check(y, f.shape[-1]))

    def config(self) -> dict[str, Any]:
        return {"num_classes": self.num_classes}

    def extra_repr(self) -> str:
        return f"num_classes={self.num_classes}"
