"""What a likelihood owns: everything about the labels."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headstart.distributed.rows import LOCAL_ROWS, AllRows
from headstart.errors import HeadstartError, in_error
from headstart.likelihoods.noise import NoiseModel
from headstart.likelihoods.reading import OutputReader


class Likelihood(OutputReader, ABC):
    """p(y | f): everything about the labels of a net with outputs f (..., B, K).

    Losses, targets of Bayesian linear models, predictions and metrics.
    """

    name: str
    lowest: float = -math.inf
    """No label is lower."""
    has_counts: bool = False
    """Whether labels are whole numbers: their intervals hold at least what they promise."""

    # The labels.
    @abstractmethod
    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels in the one shape and dtype that the other methods take.

        Args:
            y: the labels as the user gave them.
            outputs: K, the outputs of the net.

        Raises:
            HeadstartError: with a sentence about what is wrong with them.
        """

    @abstractmethod
    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y | f) of each row, (..., B), summed over outputs.

        Args:
            f: outputs of the net, (..., B, K).
            y: labels as `check` returns them.
        """

    # The Bayesian linear models of I-BLM.
    @abstractmethod
    def regression_targets(self, y: Tensor, center: bool = True) -> tuple[Tensor, Tensor]:
        """Targets for the last layer, one column per output.

        Args:
            y: labels as `check` returns them.
            center: whether to take off what the likelihood does not see.

        Returns:
            Targets t (N, K) and noise variances v (N, K) or (N, 1).
        """

    def refined_targets(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor] | None:
        """Targets of a second round, which know the outputs of the first.

        Args:
            y: labels as `check` returns them.
            f: outputs of the mean network after the first round, (N, K).

        Returns:
            Targets and noise variances; None where one round is enough.
        """
        return None

    @abstractmethod
    def label_features(
        self, y: Tensor, count: int, rows: AllRows = LOCAL_ROWS
    ) -> tuple[Tensor, Tensor]:
        """Random functions of the label, as targets of hidden units.

        Args:
            y: labels as `check` returns them.
            count: how many functions.
            rows: means over all rows, of which `y` may be a shard.

        Returns:
            The functions' values (N, count) and their noise variances (N, 1) or (N, count).
        """

    def fit_(self, f: Tensor, y: Tensor) -> None:
        """Set the parameters that are learned with the weights, if any, to their best.

        Args:
            f: draws of the outputs, (S, N, K).
            y: labels as `check` returns them.
        """

    def bound_(self, f: Tensor) -> None:
        """Keep a noise that varies from row to row within the range of the training rows.

        Likelihoods whose noise does not vary have nothing to bound.

        Args:
            f: draws of the outputs at the training rows, (S, N, K).
        """

    # The read-out as a Bayesian linear model given the layers below it.
    def curvature(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of log p(y | f) and the diagonal of its negative Hessian, each (..., B, K).

        Args:
            f: outputs of the net, (..., B, K).
            y: labels as `check` returns them.
        """
        with torch.enable_grad():
            f = f.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.log_prob(f, y).sum(), f, create_graph=True)
            each = [
                torch.autograd.grad(column.sum(), f, retain_graph=True)[0][..., k]
                for k, column in enumerate(slope.unbind(-1))
            ]
        return slope.detach(), -torch.stack(each, -1)

    def noise_model(self, outputs: int) -> NoiseModel | None:
        """The noise, where it is Gaussian and the same in every row; None elsewhere.

        Args:
            outputs: K, the outputs of the net.
        """
        return None

    def set_noise_(self, log_var: Tensor, log_predictive: Tensor) -> None:
        """Take these noise variances; likelihoods without a `noise_model` have none.

        Args:
            log_var: the logarithm of the variances of the bound, as `noise_model` has them.
            log_predictive: those of predictions.
        """

    def forget_predictive_noise_(self) -> None:
        """Predict with the noise of the bound, where predictions had one of their own."""

    def scale_predictive_noise_(self, factor: float | Tensor) -> None:
        """Multiply the standard deviation of the noise in predictions, where it has a size.

        Args:
            factor: a positive number, or one per label.
        """

    @property
    def has_predictive_noise(self) -> bool:
        """Whether predictions have another noise than the bound."""
        return False

    # Predictions: the conditional moments of y given f.
    # Predictive moments follow by the laws of total mean and variance.
    @abstractmethod
    def mean(self, f: Tensor) -> Tensor:
        """E[y | f], in the user's units; class probabilities for classification.

        Args:
            f: outputs of the net, (..., B, K).
        """

    @abstractmethod
    def variance(self, f: Tensor) -> Tensor:
        """Var[y | f], in the user's units squared.

        Args:
            f: outputs of the net, (..., B, K).
        """

    @abstractmethod
    def sample(self, f: Tensor) -> Tensor:
        """A label for each row, drawn from p(y | f), in the shape `log_prob` takes.

        Args:
            f: outputs of the net, (..., B, K).
        """

    @abstractmethod
    def evaluate(self, f: Tensor, y: Tensor) -> dict[str, float]:
        """Metrics by name.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as the user gave them.
        """

    def summarize(self, f: Any, y: Any) -> dict[str, Tensor] | None:
        """What `score` needs of each label, in tensors whose rows can be joined.

        None: all draws are needed at once, and `evaluate` is asked.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as `check` returns them.
        """
        return None

    def score(self, summary: dict[str, Tensor]) -> dict[str, float]:
        """The metrics of `evaluate`; here of each tensor its mean over rows.

        Args:
            summary: as `summarize` gives it, the rows of several calls one after another.
        """
        return {name: float(values.mean()) for name, values in summary.items()}

    def quantile(self, f: Tensor, level: float) -> Tensor:
        """A quantile of the predictive mixture over draws.

        Args:
            f: draws of the outputs, (S, B, K).
            level: between 0 and 1.

        Raises:
            HeadstartError: where labels have no order.
        """
        raise HeadstartError(
            f"{type(self).__name__} labels have no order, so no interval; "
            "look at probs and entropy instead."
        )

    def interval(self, f: Tensor, level: float) -> tuple[Tensor, Tensor]:
        """An interval of the predictive mixture over draws: the central one, but for counts.

        Args:
            f: draws of the outputs, (S, B, K).
            level: between 0 and 1.
        """
        return self.quantile(f, (1 - level) / 2), self.quantile(f, (1 + level) / 2)

    def probs(self, f: Tensor) -> Tensor:
        """Class probabilities given f.

        Args:
            f: outputs of the net, (..., B, K).

        Raises:
            HeadstartError: where there are no classes.
        """
        raise HeadstartError(
            f"{type(self).__name__} has no classes, so no class probabilities; "
            "look at mean and std instead."
        )

    # What is common to all.
    def identity(self) -> list[Any]:
        """What tells this likelihood from another: its name, its options, and those of its parts.

        The options alone do not say what it is made of.
        """
        return [self.name, self.config(), *(part.identity() for part in self.parts().values())]

    def for_prediction(self) -> Likelihood:
        """A copy that predictions keep: training goes on without changing it."""
        return copy.deepcopy(self).requires_grad_(False)

    def config(self) -> dict[str, Any]:
        """The options that rebuild this likelihood, its tensors apart.

        As in `LIKELIHOODS[name](**config)`.
        """
        return {}

    def log_predictive(self, f: Tensor, y: Tensor) -> Tensor:
        """`log mean_s p(y | f_s)` of each row.

        The predictive density, not the expected log-likelihood.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as `check` returns them.
        """
        return self.log_prob(f, y).logsumexp(0) - math.log(len(f))

    def log_scores(self, f: Tensor, y: Tensor) -> dict[str, float]:
        """`mnll` and `expected_nll ≥ mnll`, averaged over rows.

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as `check` returns them.
        """
        return {name: float(each.mean()) for name, each in self.log_rows(f, y).items()}

    def log_rows(self, f: Tensor, y: Tensor) -> dict[str, Tensor]:
        """`mnll = −log E_q p` of each row; `expected_nll = −log p` of each draw, (S, B).

        Args:
            f: draws of the outputs, (S, B, K).
            y: labels as `check` returns them.
        """
        each = self.log_prob(f, y)
        mnll = -(each.logsumexp(0) - math.log(each.shape[0]))
        return {"mnll": mnll, "expected_nll": -each}


def require_likelihood(given: object) -> None:
    """Refuse what is no likelihood.

    Args:
        given: What stands where a likelihood should.

    Raises:
        HeadstartError: It is a class, a loss or a name.
    """
    if not isinstance(given, Likelihood):
        raise HeadstartError(
            "The likelihood must be one of headstart's, as in hs.Gaussian() or "
            f"hs.Categorical(num_classes=3), not {in_error(given)}."
        )


def refuse_unless(valid: Tensor, sentence: Callable[[], str]) -> None:
    """Refuse labels whose values are not valid.

    A compiled graph cannot branch on values, and trusts them.

    Args:
        valid: whether each label is.
        sentence: what to say where one is not.
    """
    if not torch.compiler.is_compiling() and not bool(valid.all()):
        raise HeadstartError(sentence())


def check_columns(y: Tensor, outputs: int, like: str) -> Tensor:
    """Real-valued labels as (B, outputs); a single output may come as (B,)."""
    if not (
        y.is_floating_point() or y.dtype in (torch.int64, torch.int32, torch.uint8, torch.bool)
    ):
        raise HeadstartError(f"{like} takes real numbers as targets, not {y.dtype}.")
    if y.ndim == 1 and outputs == 1:
        y = y.unsqueeze(1)
    if y.ndim != 2 or y.shape[1] != outputs:
        wanted = f"(rows, {outputs})" + (" or (rows,)" if outputs == 1 else "")
        raise HeadstartError(
            f"The net has {outputs} outputs, so {like} wants targets of shape {wanted}, "
            f"not {tuple(y.shape)}."
        )
    return y if y.is_floating_point() else y.to(torch.get_default_dtype())


def gaussian_log_density(y: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """log N(y | mean, var), element by element."""
    return -0.5 * ((y - mean).square() / var + var.log() + math.log(2 * math.pi))
