"""Class labels."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.distributed.rows import LOCAL_ROWS, AllRows
from headstart.errors import HeadstartError
from headstart.likelihoods.base import refuse_unless
from headstart.likelihoods.kinds import CategoryLabels
from headstart.likelihoods.targets import CONCENTRATION, lognormal_match
from headstart.linalg.precision import exact_device

IGNORED_WEIGHT = 1e-8
"""What a row without a label counts for in the regressions of I-BLM: next to nothing."""
SUM_TOLERANCE = 1e-3
"""How far the sum of a row of probabilities may be from 1: they may be in half precision."""


class Categorical(CategoryLabels):
    """y ~ Categorical(softmax f).

    Labels are classes, or rows of probabilities (soft labels), whose log-likelihood is
    `Σ_k y_k log p_k`.
    As regression targets a label is a Dirichlet with concentration `y + α` (y one-hot), each of its
    Gamma variables matched by a lognormal: `v = log(1/(y+α) + 1)`, `t = log(y+α) − v/2`.

    `class_weight` and `label_smoothing` change what is trained, not what is predicted: predictions
    and metrics are those of the plain likelihood.

    Args:
        num_classes: K, at least 2.
        class_weight: what the log-likelihood of each class is multiplied by, K positive numbers.
            Weights whose mean over the rows is 1 keep the balance between likelihood and KL.
        label_smoothing: ε of the labels `(1 − ε) y + ε/K` that are trained on, from 0 to below 1.
        ignore_index: the label of rows without one, which count for nothing; None: there are none.

    Example:
        >>> lik = Categorical(num_classes=3)
        >>> lik.log_prob(torch.zeros(1, 3), torch.tensor([2]))
        tensor([-1.0986])
        >>> weighted = Categorical(3, class_weight=[1.0, 1.0, 2.0], ignore_index=-100)
        >>> weighted.log_prob(torch.zeros(2, 3), torch.tensor([2, -100])).abs()
        tensor([2.1972, 0.0000])
    """

    name = "categorical"
    class_weight: Tensor | None

    def __init__(
        self,
        num_classes: int,
        *,
        class_weight: Sequence[float] | Tensor | None = None,
        label_smoothing: float = 0.0,
        ignore_index: int | None = None,
    ) -> None:
        super().__init__()
        if not hasattr(num_classes, "__index__"):
            raise HeadstartError(
                "Categorical takes the number of classes, as in Categorical(num_classes=3), not "
                f"{num_classes!r}; labels are whole numbers from 0 on."
            )
        if num_classes < 2:
            raise HeadstartError(f"Categorical needs at least two classes, not {num_classes}.")
        if not 0 <= label_smoothing < 1:
            raise HeadstartError(
                f"label_smoothing must be at least 0 and below 1, not {label_smoothing}."
            )
        self.num_classes, self.label_smoothing = int(num_classes), float(label_smoothing)
        self.ignore_index = ignore_index
        weights = (
            None if class_weight is None else torch.as_tensor(class_weight, dtype=torch.float64)
        )
        if weights is not None and not (
            weights.shape == (num_classes,) and bool((weights > 0).all() & weights.isfinite().all())
        ):
            raise HeadstartError(
                f"class_weight must be {num_classes} positive numbers, one per class, "
                f"not {weights.tolist()}."
            )
        # Part of `config`, not of the state: files from before it was there can be read.
        self.register_buffer("class_weight", weights, persistent=False)

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels in the one shape and dtype that the other methods take.

        Args:
            y: integers 0…K−1 (or `ignore_index`), (rows,), or probabilities, (rows, K).
            outputs: the outputs of the net: K.

        Raises:
            HeadstartError: where they do not fit.
        """
        k = self.num_classes
        if outputs != k:
            raise HeadstartError(
                f"The net has {outputs} outputs, but Categorical(num_classes={k}) needs {k}."
            )
        is_row = y.ndim == 2 and y.shape[1] == k
        if is_row and y.is_floating_point():
            sums = (y.sum(1) - 1).abs() <= SUM_TOLERANCE
            refuse_unless(
                (y >= 0).all(1) & sums,
                lambda: "Rows of soft labels must be probabilities: at least 0, with sum 1.",
            )
            return y
        if y.is_floating_point() or y.ndim != 1:
            hint = " (one-hot rows? take y.argmax(1))" if is_row else _hint(y)
            raise HeadstartError(
                f"Categorical wants integer labels of shape (rows,) or probabilities of shape "
                f"(rows, {k}), not {y.dtype} of shape {tuple(y.shape)}{hint}."
            )
        valid = (y >= 0) & (y < k)
        refuse_unless(
            valid if self.ignore_index is None else valid | ~self._has_label(y),
            lambda: (
                f"Labels must lie in 0…{k - 1}; found {int(y.min())}…{int(y.max())}"
                + ("; subtract 1." if int(y.min()) == 1 and int(y.max()) == k else ".")
            ),
        )
        return y.long()

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """`Σ_k w_k y_k log p_k` of each row, (..., B): log p(y | f) where w is 1, y a class.

        Args:
            f: logits, (..., B, K).
            y: labels as `check` returns them.
        """
        log_p = f.log_softmax(-1)
        if y.ndim == 1 and self._is_plain:
            return log_p.gather(-1, y.expand(f.shape[:-1]).unsqueeze(-1)).squeeze(-1)
        return (self._weighted(y, f.dtype) * log_p).sum(-1)

    def log_predictive(self, f: Tensor, y: Tensor) -> Tensor:
        """`log mean_s p(y | f_s)` of each row; of soft labels its mean over y, as one draws it.

        Args:
            f: draws of the logits, (S, B, K).
            y: labels as `check` returns them.
        """
        if y.ndim == 1:
            return super().log_predictive(f, y)
        log_p = f.log_softmax(-1).logsumexp(0) - math.log(len(f))
        return (self._weighted(y, f.dtype) * log_p).sum(-1)

    def log_rows(self, f: Tensor, y: Tensor) -> dict[str, Tensor]:
        """`mnll` of each row, and `expected_nll` of each draw.

        Args:
            f: draws of the logits, (S, B, K).
            y: labels as `check` returns them.
        """
        if y.ndim == 1:
            return super().log_rows(f, y)
        mnll, expected = -self.log_predictive(f, y), -self.log_prob(f, y)
        return {"mnll": mnll, "expected_nll": expected}

    def curvature(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """`Y − s p` and `s p (1 − p)`, Y the weighted label probabilities and s their sum.

        Args:
            f: logits, (..., B, K).
            y: labels as `check` returns them.
        """
        p, weighted = f.softmax(-1), self._weighted(y, f.dtype)
        total = weighted.sum(-1, keepdim=True)
        return weighted - total * p, total * p * (1 - p)

    def label_weights(self, y: Tensor) -> Tensor | None:
        """`Σ_k w_k y_k` of each label, 0 where there is none.

        Args:
            y: labels as `check` returns them.
        """
        if self._is_plain:
            return None
        return self._weighted(y.to(exact_device(y.device)), torch.float64).sum(1)

    def for_prediction(self) -> Categorical:
        """A copy without class weights and smoothing: predictions are scored as they are."""
        frozen = copy.deepcopy(self).requires_grad_(False)
        frozen.class_weight, frozen.label_smoothing = None, 0.0
        return frozen

    def regression_targets(self, y: Tensor, center: bool = True) -> tuple[Tensor, Tensor]:
        """The lognormal targets of a label's Dirichlet; a row that counts w has 1/w of its noise.

        Args:
            y: labels as `check` returns them.
            center: takes a constant off all classes alike, which the softmax does not see.

        Returns:
            Targets (N, K) and noise variances.
        """
        probabilities = self._smoothed(y, torch.get_default_dtype())
        t, v = lognormal_match(probabilities + CONCENTRATION)
        return (t - t.mean(1, keepdim=True) if center else t), v * self._noise_factor(y, v.dtype)

    def label_features(
        self, y: Tensor, count: int, rows: AllRows = LOCAL_ROWS
    ) -> tuple[Tensor, Tensor]:
        """Random Gaussian combinations of the class targets.

        Args:
            y: labels as `check` returns them.
            count: how many.
            rows: means over all rows, of which `y` may be a shard.
        """
        features, v = super().label_features(y, count, rows)
        return features, v * self._noise_factor(y, v.dtype)

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

    def summarize(self, f: Tensor, y: Tensor) -> dict[str, Tensor]:
        """That of the rows with a label; others do not count.

        Of soft labels metrics are the mean over labels drawn from them.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as `check` returns them.
        """
        return CategoryLabels.summarize(self.for_prediction(), *self.labeled(f, y))

    def labeled(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The rows with a label.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as `check` returns them.
        """
        if self.ignore_index is None or y.ndim > 1:
            return f, y
        labeled = self._has_label(y)
        return f[:, labeled], y[labeled]

    def score(self, summary: dict[str, Tensor]) -> dict[str, float]:
        """The metrics of `evaluate`.

        Args:
            summary: as `summarize` gives it.
        """
        if not len(summary["y"]):
            raise HeadstartError(
                f"Every label is ignore_index={self.ignore_index}: there is nothing to score."
            )
        return super().score(summary)

    def config(self) -> dict[str, Any]:
        weights = self.class_weight
        given = {
            "class_weight": None if weights is None else weights.tolist(),
            "label_smoothing": self.label_smoothing or None,
            "ignore_index": self.ignore_index,
        }
        kept = {name: value for name, value in given.items() if value is not None}
        return {"num_classes": self.num_classes, **kept}

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.config().items())

    @property
    def _is_plain(self) -> bool:
        """Whether the log-likelihood of a class is its log-probability, for all classes."""
        return self.class_weight is None and self.ignore_index is None and not self.label_smoothing

    def _has_label(self, y: Tensor) -> Tensor:
        """Which rows of class labels count."""
        if self.ignore_index is None:
            return torch.ones_like(y, dtype=torch.bool)
        return y != self.ignore_index

    def _smoothed(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """Labels as probabilities that are trained on, (B, K); alike where there is no label."""
        k = self.num_classes
        if y.ndim == 1:
            labeled = self._has_label(y)
            one_hot = F.one_hot(torch.where(labeled, y, 0), k).to(dtype)
            y = (
                one_hot.where(labeled.unsqueeze(1), 1 / k)
                if self.ignore_index is not None
                else one_hot
            )
        return (1 - self.label_smoothing) * y.to(dtype) + self.label_smoothing / k

    def _weighted(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """`w_k y_k` of the smoothed labels, (B, K); 0 where there is no label."""
        weighted = self._smoothed(y, dtype)
        if self.class_weight is not None:
            weighted = weighted * self.class_weight.to(weighted)
        return weighted if y.ndim == 2 else weighted * self._has_label(y).unsqueeze(1)

    def _noise_factor(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """What multiplies the noise of a row's targets, (B, 1): one over what the row counts."""
        return 1 / self._weighted(y, dtype).sum(1, keepdim=True).clamp_min(IGNORED_WEIGHT)


def _hint(y: Tensor) -> str:
    """How labels of a wrong dtype or shape become class indices, where that is plain."""
    take = ".squeeze(1)" if y.ndim == 2 and y.shape[1] == 1 else ""
    is_plain = (y.ndim == 1 or take) and bool((y == y.round()).all())
    take += ".long()" if y.is_floating_point() else ""
    return f" (take y{take})" if is_plain else ""
