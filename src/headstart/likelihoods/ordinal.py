"""Classes with an order, from one output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.distributed.rows import LOCAL_ROWS, AllRows
from headstart.errors import HeadstartError
from headstart.likelihoods.base import refuse_unless
from headstart.likelihoods.kinds import CategoryLabels
from headstart.likelihoods.maximum import maximize_
from headstart.likelihoods.targets import LOGISTIC_VAR, fourier_features, working_response


class Ordinal(CategoryLabels):
    """P(y ≤ k) = sigmoid(c_k − f), classes 0…K−1 in order: the cumulative logit.

    A latent `f + ε`, ε logistic, is cut into classes at the points c_0 < … < c_{K−2}.
    I-BLM regresses in two rounds.
    First on the mean of a standard logistic variable within the class,
    `t = (H(a) − H(b))/(b − a)` between the probabilities a and b of its ends, with the entropy
    `H(u) = −u log u − (1 − u) log(1 − u)`, and `v = π²/3`.
    Then on the working response of that fit, a Newton step of each row.

    Args:
        num_classes: K, at least 2.
        cut_points: K − 1 numbers that rise; by default a standard logistic variable is cut into
            classes of the same probability.
        learn_cut_points: whether they are learned with the weights.

    Example:
        >>> lik = Ordinal(3, cut_points=[-1.0, 1.0], learn_cut_points=False)
        >>> lik.probs(torch.zeros(1, 1))
        tensor([[0.2689, 0.4621, 0.2689]])
    """

    name = "ordinal"

    def __init__(
        self,
        num_classes: int,
        *,
        cut_points: Sequence[float] | Tensor | None = None,
        learn_cut_points: bool = True,
    ) -> None:
        super().__init__()
        if num_classes < 2:
            raise HeadstartError(f"Ordinal needs at least two classes, not {num_classes}.")
        self.num_classes = num_classes
        even = torch.arange(1, num_classes, dtype=torch.float64) / num_classes
        points = even.logit()
        if cut_points is not None:
            points = torch.as_tensor(cut_points, dtype=torch.float64)
        sound = points.shape == even.shape and bool(points.isfinite().all())
        if not (sound and bool((points.diff() > 0).all())):
            raise HeadstartError(
                f"cut_points of {num_classes} classes must be {num_classes - 1} numbers that rise, "
                f"not {points.tolist()}."
            )
        self.first_cut = nn.Parameter(points[:1].clone(), requires_grad=learn_cut_points)
        self.log_gaps = nn.Parameter(points.diff().log(), requires_grad=learn_cut_points)

    @property
    def cut_points(self) -> Tensor:
        """c, (K − 1,)."""
        return torch.cat([self.first_cut, self.first_cut + self.log_gaps.exp().cumsum(0)])

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels in the one shape and dtype that the other methods take.

        Args:
            y: integers 0…K−1, (rows,) or (rows, 1).
            outputs: the outputs of the net: 1.

        Raises:
            HeadstartError: where they do not fit.
        """
        if outputs != 1:
            raise HeadstartError(
                f"Ordinal reads one output, which the cut points divide into classes, "
                f"but the net has {outputs}."
            )
        if y.ndim == 2 and y.shape[1] == 1:
            y = y.squeeze(1)
        if y.is_floating_point() or y.ndim != 1:
            raise HeadstartError(
                f"Ordinal wants integer labels of shape (rows,), not {y.dtype} "
                f"of shape {tuple(y.shape)}."
            )
        last = self.num_classes - 1
        refuse_unless(
            (y >= 0) & (y <= last),
            lambda: f"Labels must lie in 0…{last}; found {int(y.min())}…{int(y.max())}.",
        )
        return y.long()

    def fit_(self, f: Tensor, y: Tensor) -> None:
        """The most likely cut points, if they are learned.

        Args:
            f: draws of the outputs, (S, N, 1).
            y: labels as `check` returns them.
        """
        maximize_(self, f, y)

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y | f) of each row, (..., B).

        With `a = c_y − f` and `b = c_{y−1} − f` it is `log σ(a) + log σ(−b) + log(1 − e^{b−a})`.

        Args:
            f: outputs of the net, (..., B, 1).
            y: labels as `check` returns them.
        """
        upper, lower = self._ends(f, y)
        # A class at an end has no second cut point.
        last, first = y == self.num_classes - 1, y == 0
        gap = torch.cat([self.log_gaps.new_zeros(1), self.log_gaps, self.log_gaps.new_zeros(1)])
        inside = torch.log(-torch.expm1(-gap.exp()))[y.to(gap.device)].to(f)
        zero = torch.zeros_like(upper)
        return (
            torch.where(last, zero, F.logsigmoid(upper))
            + torch.where(first, zero, F.logsigmoid(-lower))
            + torch.where(first | last, zero, inside)
        )

    def curvature(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """`σ(a) + σ(b) − 1` and `σ(a) σ(−a) + σ(b) σ(−b)`, a and b the ends of the class.

        Args:
            f: outputs of the net, (..., B, 1).
            y: labels as `check` returns them.
        """
        upper, lower = self._ends(f, y)
        a = torch.where(y == self.num_classes - 1, 1.0, upper.sigmoid())
        b = torch.where(y == 0, 0.0, lower.sigmoid())
        slope, curvature = a + b - 1, a * (1 - a) + b * (1 - b)
        return slope.detach().unsqueeze(-1), curvature.detach().unsqueeze(-1)

    def regression_targets(self, y: Tensor, center: bool = True) -> tuple[Tensor, Tensor]:
        """The mean of a standard logistic variable within the class.

        Args:
            y: labels as `check` returns them.
            center: makes no difference.

        Returns:
            Targets (N, 1) and noise variances.
        """
        probs = self.cut_points.detach().sigmoid()
        ends = torch.cat([probs.new_zeros(1), probs, probs.new_ones(1)])
        entropy = torch.special.entr(ends) + torch.special.entr(1 - ends)
        means = (-entropy.diff() / ends.diff()).to(torch.get_default_dtype())
        t = means.to(y.device)[y].unsqueeze(1)
        return t, torch.full_like(t, LOGISTIC_VAR)

    def refined_targets(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """The working response.

        Args:
            y: labels as `check` returns them.
            f: outputs of the mean network after the first round, (N, 1).
        """
        return working_response(f, *self.curvature(f, y))

    def label_features(
        self, y: Tensor, count: int, rows: AllRows = LOCAL_ROWS
    ) -> tuple[Tensor, Tensor]:
        """Random Fourier features of the target.

        Args:
            y: labels as `check` returns them.
            count: how many.
            rows: means over all rows, of which `y` may be a shard.
        """
        t, v = self.regression_targets(y)
        return fourier_features(t, rows.mean(v), count, rows)

    def mean(self, f: Tensor) -> Tensor:
        """Class probabilities, (..., B, K).

        Args:
            f: outputs of the net, (..., B, 1).
        """
        return self.probs(f)

    def probs(self, f: Tensor) -> Tensor:
        """Class probabilities, (..., B, K).

        Args:
            f: outputs of the net, (..., B, 1).
        """
        labels = torch.arange(self.num_classes, device=f.device)
        return self.log_prob(f.unsqueeze(-2), labels).exp()

    def variance(self, f: Tensor) -> Tensor:
        """Of each class's indicator, p(1 − p).

        Args:
            f: outputs of the net, (..., B, 1).
        """
        p = self.probs(f)
        return p * (1 - p)

    def sample(self, f: Tensor) -> Tensor:
        """Labels, (..., B).

        Args:
            f: outputs of the net, (..., B, 1).
        """
        uniform = torch.rand_like(f).clamp_min(torch.finfo(f.dtype).tiny)
        return (f + uniform.logit() > self.cut_points.detach().to(f)).sum(-1)

    def quantile(self, f: Tensor, level: float) -> Tensor:
        """The lowest class whose cumulative probability reaches `level`, (B, 1).

        Args:
            f: draws of the outputs, (S, B, 1).
            level: between 0 and 1.
        """
        below = (self.cut_points.detach().to(f) - f).sigmoid().mean(0)
        return (below < level).sum(-1, keepdim=True)

    def config(self) -> dict[str, Any]:
        return {
            "num_classes": self.num_classes,
            "learn_cut_points": self.first_cut.requires_grad,
        }

    def extra_repr(self) -> str:
        points = [round(c, 4) for c in self.cut_points.tolist()]
        return f"num_classes={self.num_classes}, cut_points={points}"

    def _ends(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """`c_y − f` and `c_{y−1} − f`, (..., B); a class at an end has only one of them."""
        cuts = self.cut_points.to(f)
        upper = cuts[y.clamp_max(self.num_classes - 2)]
        return upper - f.squeeze(-1), cuts[(y - 1).clamp_min(0)] - f.squeeze(-1)
