"""The predictive distribution: draws of a net's outputs, and what the likelihood says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headstart import metrics
from headstart.errors import HeadstartError, unknown
from headstart.likelihoods.base import Likelihood
from headstart.nested import map_each, of_head, parts_of
from headstart.network.inputs import as_tensors


@dataclass(frozen=True, repr=False)
class Predictive:
    """The predictive distribution of B rows, `p(y) = E_q p(y | weights)`, by S draws.

    Variances add up, `std² = aleatoric_std² + epistemic_std²`: noise in y, and doubt about the
    weights. Of a mixture, `epistemic_std² = within_members_std² + between_members_std²`: doubt
    within each member, and their disagreement.

    Args:
        draws: Draws of the net's K outputs, (S, B, K); with P positions in a row (S, B, P, K).
        likelihood: What the outputs say of the labels.
        members: The number M of members; each has S / M of the draws, one after another.
        layout: How the likelihood arranges predictions in the net's own axes. What has shapes
            (B, K) and (B,) below has those of the net's output where a row has positions.
        unlike_training: Whether each row is unlike the training data, (B,); None where nobody asked
            (`predict(flag=)`).

    Example:
        >>> import torch, headstart as hs
        >>> pred = Predictive(torch.zeros(16, 3, 1), hs.Gaussian(4.0, learn_noise=False))
        >>> pred.std.flatten(), pred.epistemic_std.flatten()
        (tensor([2., 2., 2.]), tensor([0., 0., 0.]))
    """

    draws: Any
    likelihood: Likelihood
    members: int = 1
    layout: Any = ()
    unlike_training: Tensor | None = None

    def __repr__(self) -> str:
        if not isinstance(self.draws, Tensor):
            return f"<Predictive of the heads {', '.join(self.draws.keys)}>"
        samples, rows, *positions, outputs = self.draws.shape
        at = f" at {positions[0]} positions" if positions else ""
        words = f"{rows} rows and {outputs} outputs{at} by {samples} draws, {self.likelihood.name}"
        return f"<Predictive of {words}>"

    def __getitem__(self, head: str | int) -> Predictive:
        """The predictive distribution of one of several heads (`hs.Joint`).

        Args:
            head: its name, or its number in a tuple.
        """
        likelihoods = self.likelihood.heads()
        if str(head) not in likelihoods:
            names = [name for name in likelihoods if name is not None]
            raise unknown("head", str(head), names)
        draws, name = of_head(self.draws, str(head)), str(head)
        unlike = self.unlike_training
        return Predictive(draws, likelihoods[name], self.members, self.layout[name], unlike)

    @property
    def mean(self) -> Tensor:
        """`E[y]`, (B, K); for classification the class probabilities."""
        return self._arranged(self.likelihood.mean(self.draws).mean(0))

    @property
    def std(self) -> Tensor:
        """The predictive standard deviation, (B, K)."""
        return self._arranged((self._aleatoric() + self._epistemic()).sqrt())

    @property
    def epistemic_std(self) -> Tensor:
        """The standard deviation of `E[y | weights]`, (B, K): what more data would take away."""
        return self._arranged(self._epistemic().sqrt())

    @property
    def aleatoric_std(self) -> Tensor:
        """The standard deviation of the noise in y, (B, K): what no data takes away."""
        return self._arranged(self._aleatoric().sqrt())

    @property
    def probs(self) -> Tensor:
        """Class probabilities, (B, classes)."""
        return self._arranged(self.likelihood.probs(self.draws).mean(0))

    @property
    def entropy(self) -> Tensor:
        """The entropy of `probs` in nats, (B,): all the uncertainty about the class."""
        return self._per_label(metrics.entropy(self.likelihood.probs(self.draws).mean(0)))

    @property
    def mutual_information(self) -> Tensor:
        """The epistemic part of `entropy`, (B,): less the mean entropy given the weights."""
        return self._per_label(metrics.mutual_information(self.likelihood.probs(self.draws)))

    @property
    def member_mean(self) -> Tensor:
        """`E[y]` by each member of a mixture, (M, B, K)."""
        return self._arranged(self._by_member(self.likelihood.mean).mean(1))

    @property
    def within_members_std(self) -> Tensor:
        """The part of `epistemic_std` within the members, (B, K)."""
        whole = self.epistemic_std.square() - self.between_members_std.square()
        return whole.clamp_min(0.0).sqrt()

    @property
    def between_members_std(self) -> Tensor:
        """The standard deviation of the members' means, (B, K): the rest of `epistemic_std`.

        What the finite number of draws adds to the variance of `member_mean` is taken off.
        """
        means = self._by_member(self.likelihood.mean)
        draws = means.shape[1]
        by_chance = means.var(1, correction=min(1, draws - 1)).mean(0) / draws
        share = (len(means) - 1) / len(means)
        between = (means.mean(1).var(0, correction=0) - share * by_chance).clamp_min(0.0)
        return self._arranged(between.sqrt())

    @property
    def mutual_information_between(self) -> Tensor:
        """The part of `mutual_information` between the members, (B,): less that within them."""
        probs = self._by_member(self.likelihood.probs).mean(1)
        return self._per_label(metrics.mutual_information(probs))

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """An interval of y: the central one, with equal probability on both sides.

        Of counts the upper end may be lower. Where nothing can lie below the interval, because it
        begins at 0, all of 1 − level may lie above it.

        Args:
            level: The probability that y lies in it, between 0 and 1; of counts at least.

        Returns:
            Its lower and its upper end, each (B, K).

        Raises:
            HeadstartError: The level is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise HeadstartError(f"An interval's level lies between 0 and 1, not {level}.")
        lower, upper = self.likelihood.interval(self.draws, level)
        return self._arranged(lower), self._arranged(upper)

    def log_prob(self, y: Any) -> Tensor:
        """The log predictive density of labels, `log E_q p(y)`.

        Args:
            y: A label for each row.

        Returns:
            The density's logarithm for each row, (B,).

        Raises:
            HeadstartError: These are not labels of the likelihood's, or not B of them.
        """
        return self.likelihood.log_predictive(self.draws, self._labels(y))

    def evaluate(self, y: Any) -> dict[str, float]:
        """The likelihood's metrics, and those of one's own (`hs.register_metric`).

        Args:
            y: The true label of each row.

        Returns:
            Metrics by their names in `headstart.metrics.METRICS`.

        Raises:
            HeadstartError: These are not labels of the likelihood's, or not B of them.
        """
        return self._scores(self._labels(y))

    def _scores(self, labels: Any) -> dict[str, float]:
        scores = self.likelihood.evaluate(self.draws, labels)
        if not isinstance(labels, Tensor) and labels.keys == list(self.likelihood.heads()):
            for head in labels.keys:
                found = self[head]._scores(labels.part(head))
                scores |= {f"{head}/{name}": value for name, value in found.items()}
            return scores
        plain = self.likelihood.plain_labels(labels)
        own = {name: of(self, plain) for name, of in metrics.OWN_METRICS.items()}
        return scores | {name: float(value) for name, value in own.items() if value is not None}

    def summarize(self, y: Any) -> dict[str, dict[str, Tensor]] | None:
        """What the metrics need of each row, by head, without the draws (`score_summaries`).

        Args:
            y: The true label of each row.

        Returns:
            None where the draws of all rows are needed at once: by metrics of one's own, or by a
            likelihood that has `evaluate` alone.
        """
        whole = metrics.OWN_METRICS or _evaluates_itself(self.likelihood)
        found = None if whole else self._summaries(self._labels(y))
        missing = found is None or any(part is None for part in found.values())
        return None if missing else found  # type: ignore[return-value]

    def _summaries(self, labels: Any) -> dict[str, dict[str, Tensor] | None]:
        found = {"": _without_draws(self.likelihood.summarize(self.draws, labels))}
        if not isinstance(labels, Tensor) and labels.keys == list(self.likelihood.heads()):
            for head in labels.keys:
                own = self[head]._summaries(labels.part(head))
                found |= {f"{head}/{name}": part for name, part in own.items()}
        return found

    def _labels(self, y: Any) -> Any:
        draws = parts_of(self.draws)[0]
        y = map_each(lambda part: part.to(draws.device), as_tensors(y, "y"))
        if len(y) != draws.shape[1]:
            raise HeadstartError(f"There are {draws.shape[1]} predictions but {len(y)} labels.")
        self.likelihood.check_layout(y, self.layout)
        return self.likelihood.check(y, self.likelihood.outputs_of(self.draws))

    def _arranged(self, values: Tensor) -> Tensor:
        """A number for each output, in the net's own axes."""
        return self.likelihood.arrange(values, self.layout)

    def _per_label(self, values: Tensor) -> Tensor:
        """A number for each label, in the net's own axes."""
        return self.likelihood.arrange(values, self.layout, per_output=False)

    def _by_member(self, of: Callable[[Tensor], Tensor]) -> Tensor:
        """A function of the draws, (M, S / M, B, K)."""
        return of(self.draws).unflatten(0, (self.members, -1))

    def _aleatoric(self) -> Tensor:
        return self.likelihood.variance(self.draws).mean(0)

    def _epistemic(self) -> Tensor:
        return self.likelihood.mean(self.draws).var(0, correction=0)


def _without_draws(summary: dict[str, Tensor] | None) -> dict[str, Tensor] | None:
    """What has a number for each draw, averaged over them."""
    if summary is None or "expected_nll" not in summary:
        return summary
    return {**summary, "expected_nll": summary["expected_nll"].mean(0)}


def has_own_log_scores(likelihood: Likelihood) -> bool:
    """Whether a subclass has a `log_scores` of its own, which metrics then take.

    Args:
        likelihood: any.
    """
    return type(likelihood).log_scores is not Likelihood.log_scores


def _evaluates_itself(likelihood: Likelihood) -> bool:
    """Whether a subclass, here or within, has metrics that the summaries do not know."""
    order = type(likelihood).__mro__
    homes = [
        next(number for number, each in enumerate(order) if name in vars(each))
        for name in ("evaluate", "summarize")
    ]
    own = homes[0] < homes[1] or has_own_log_scores(likelihood)
    return own or any(map(_evaluates_itself, likelihood.parts().values()))


def score_summaries(
    likelihood: Likelihood, parts: Sequence[dict[str, dict[str, Tensor]]]
) -> dict[str, float]:
    """The metrics of rows that were summarized part by part, as `Predictive.evaluate` names them.

    Args:
        likelihood: That of the predictions.
        parts: What `Predictive.summarize` returned of each part.
    """
    scores: dict[str, float] = {}
    for name, first in parts[0].items():
        head = likelihood
        for each in name.split("/")[:-1]:
            head = head.heads()[each]
        joined = {key: torch.cat([part[name][key] for part in parts]) for key in first}
        scores |= {f"{name}{key}": value for key, value in head.score(joined).items()}
    return scores
