"""Likelihoods that are made of another one, and change what reaches it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any, TypeVar

from torch import Tensor

from headstart.distributed.rows import LOCAL_ROWS, AllRows
from headstart.likelihoods.base import Likelihood

W = TypeVar("W", bound="WrappedLikelihood")


class WrappedLikelihood(Likelihood, ABC):
    """A likelihood within another, which is asked for whatever a subclass does not change.

    Args:
        likelihood: the one within.
    """

    def __init__(self, likelihood: Likelihood) -> None:
        super().__init__()
        self.likelihood, self.lowest = likelihood, likelihood.lowest
        self.has_counts = likelihood.has_counts

    # What reaches the one within, and what becomes of its answers.
    def _outputs(self, f: Tensor) -> Tensor:
        """Outputs as the likelihood within takes them."""
        return f

    def _labels(self, y: Any) -> Any:
        """Labels as the likelihood within takes them."""
        return y

    def _answer(self, values: Tensor, f: Tensor) -> Tensor:
        """What the likelihood within says, (..., rows, K), in the shape of the outputs f."""
        return values

    def parts(self) -> dict[str, Likelihood]:
        """The likelihood within."""
        return {"likelihood": self.likelihood}

    @classmethod
    def rebuilt(cls: type[W], parts: Mapping[str, Any], options: Mapping[str, Any]) -> W:
        """A likelihood from its parts and what `config` returned.

        Args:
            parts: as `parts` gives them.
            options: as `config` gives them.
        """
        return cls(parts["likelihood"], **options)

    def for_prediction(self: W) -> W:
        """A copy that predictions keep."""
        return type(self)(self.likelihood.for_prediction(), **self.config())

    def check_layout(self, y: Any, layout: Any) -> None:
        """Refuse labels whose axes are not those of the outputs.

        Args:
            y: labels as the user gave them.
            layout: what `layout` returned.
        """
        self.likelihood.check_layout(y, layout)

    def plain_labels(self, y: Any) -> Any:
        """The labels without what comes beside them.

        Args:
            y: labels as `check` returns them.
        """
        return self.likelihood.plain_labels(y)

    def label_weights(self, y: Any) -> Tensor | None:
        """What each label counts for; None: all count for one.

        Args:
            y: labels as `check` returns them.
        """
        return self.likelihood.label_weights(self._labels(y))

    # I-BLM.
    def regression_targets(self, y: Any, center: bool = True) -> tuple[Tensor, Tensor]:
        """Targets and noise variances of all labels.

        Args:
            y: labels as `check` returns them.
            center: whether to take off what the likelihood does not see.
        """
        return self.likelihood.regression_targets(self._labels(y), center)

    def refined_targets(self, y: Any, f: Tensor) -> tuple[Tensor, Tensor] | None:
        """Targets of a second round; None where one round is enough.

        Args:
            y: labels as `check` returns them.
            f: outputs of the mean network.
        """
        return self.likelihood.refined_targets(self._labels(y), self._outputs(f))

    def label_features(
        self, y: Any, count: int, rows: AllRows = LOCAL_ROWS
    ) -> tuple[Tensor, Tensor]:
        """Random functions of each label.

        Args:
            y: labels as `check` returns them.
            count: how many functions.
            rows: means over all rows, of which `y` may be a shard.
        """
        return self.likelihood.label_features(self._labels(y), count, rows)

    # What is learned with the weights, and bounds.
    def fit_(self, f: Tensor, y: Any) -> None:
        """Set the parameters that are learned with the weights to their best.

        Args:
            f: draws of the outputs.
            y: labels as `check` returns them.
        """
        self.likelihood.fit_(self._outputs(f), self._labels(y))

    def bound_(self, f: Tensor) -> None:
        """Keep a noise that varies within the range of these rows.

        Args:
            f: draws of the outputs at the training rows.
        """
        self.likelihood.bound_(self._outputs(f))

    def forget_predictive_noise_(self) -> None:
        """Predict with the noise of the bound."""
        self.likelihood.forget_predictive_noise_()

    def scale_predictive_noise_(self, factor: float | Tensor) -> None:
        """Multiply the standard deviation of the noise in predictions.

        Args:
            factor: a positive number, or one per label.
        """
        self.likelihood.scale_predictive_noise_(factor)

    @property
    def has_predictive_noise(self) -> bool:
        return self.likelihood.has_predictive_noise

    # Predictions.
    def mean(self, f: Tensor) -> Tensor:
        """E[y | f].

        Args:
            f: outputs of the net.
        """
        return self._answer(self.likelihood.mean(self._outputs(f)), f)

    def variance(self, f: Tensor) -> Tensor:
        """Var[y | f].

        Args:
            f: outputs of the net.
        """
        return self._answer(self.likelihood.variance(self._outputs(f)), f)

    def probs(self, f: Tensor) -> Tensor:
        """Class probabilities.

        Args:
            f: outputs of the net.
        """
        return self._answer(self.likelihood.probs(self._outputs(f)), f)

    def quantile(self, f: Tensor, level: float) -> Tensor:
        """A quantile of the predictive mixture over draws.

        Args:
            f: draws of the outputs.
            level: between 0 and 1.
        """
        return self._answer(self.likelihood.quantile(self._outputs(f), level), f)

    def interval(self, f: Tensor, level: float) -> tuple[Tensor, Tensor]:
        """The interval of the predictive mixture over draws.

        Args:
            f: draws of the outputs.
            level: between 0 and 1.
        """
        low, high = self.likelihood.interval(self._outputs(f), level)
        return self._answer(low, f), self._answer(high, f)

    def sample(self, f: Tensor) -> Tensor:
        """Labels, without what comes beside them.

        Args:
            f: outputs of the net.
        """
        return self.likelihood.sample(self._outputs(f))

    def evaluate(self, f: Tensor, y: Any) -> dict[str, float]:
        """The metrics of all labels.

        Args:
            f: draws of the outputs.
            y: labels as `check` returns them.
        """
        return self.likelihood.evaluate(self._outputs(f), self._labels(y))

    def summarize(self, f: Tensor, y: Any) -> dict[str, Tensor] | None:
        """That of all labels.

        Args:
            f: draws of the outputs.
            y: labels as `check` returns them.
        """
        return self.likelihood.summarize(self._outputs(f), self._labels(y))

    def score(self, summary: dict[str, Tensor]) -> dict[str, float]:
        """The metrics of all labels.

        Args:
            summary: as `summarize` gives it.
        """
        return self.likelihood.score(summary)
