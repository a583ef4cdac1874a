"""Several heads with a likelihood for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NoReturn, cast

import torch
from torch import Tensor, nn

from headstart.distributed.rows import LOCAL_ROWS, AllRows
from headstart.errors import HeadstartError
from headstart.likelihoods.base import Likelihood
from headstart.likelihoods.targets import mean_of_labels
from headstart.linalg.precision import in_double
from headstart.nested import Nested, TensorTree


class Joint(Likelihood):
    """p(y | f) = Π_h p_h(y_h | f_h): the heads of a net, independent given its weights.

    The net returns a dictionary or a tuple, and so are the labels. `pred[name]` is the prediction
    of a head; metrics have the names of heads before them, as `"depth/rmse"`, beside `mnll` and
    `expected_nll` of all labels of a row together.

    Args:
        likelihoods: That of each head by its name, or in the order of a tuple. Other heads of the
            net are left aside.

    Example:
        >>> import headstart as hs
        >>> lik = Joint({"class": hs.Categorical(3), "size": hs.Gaussian(1.0, learn_noise=False)})
        >>> f = Nested(named={"class": torch.zeros(1, 2, 3), "size": torch.zeros(1, 2, 1)})
        >>> y = {"class": torch.tensor([0, 2]), "size": torch.zeros(2)}
        >>> lik.log_prob(f, lik.check(Nested(named=y), lik.outputs_of(f)))  # −log 3 − ½ log 2π
        tensor([[-2.0176, -2.0176]])
    """

    name = "joint"
    is_plain, is_of_rows = False, False

    def __init__(self, likelihoods: Mapping[str, Likelihood] | Sequence[Likelihood]) -> None:
        super().__init__()
        if not isinstance(likelihoods, Mapping):
            likelihoods = {str(number): each for number, each in enumerate(likelihoods)}
        if len(likelihoods) == 0 or any("." in name for name in likelihoods):
            raise HeadstartError(
                "Joint takes a likelihood for each head, {name: likelihood}, at least one, with "
                f"names without a dot; not {list(likelihoods)}."
            )
        taken = sorted(name for name in likelihoods if hasattr(nn.ModuleDict, name))
        if taken:
            raise HeadstartError(
                f"A head cannot be called {taken[0]!r}, which torch uses itself: let the net "
                f"return it by another name, as '{taken[0]}_head'."
            )
        self.likelihoods = nn.ModuleDict(dict(likelihoods))

    def parts(self) -> dict[str, Likelihood]:
        """The likelihood of each head."""
        return {name: cast(Likelihood, each) for name, each in self.likelihoods.items()}

    def heads(self) -> dict[str | None, Likelihood]:
        """The likelihood of each head."""
        return dict[str | None, Likelihood](self.parts().items())

    @classmethod
    def rebuilt(cls, parts: Mapping[str, Any], options: Mapping[str, Any]) -> Joint:
        """A likelihood from its parts.

        Args:
            parts: as `parts` gives them.
            options: none.
        """
        return cls(parts)

    # Outputs and labels: one tensor for each head, by its name.
    def read(self, f: Any) -> Nested:
        """Draws of each head as its likelihood reads them.

        Args:
            f: draws as the net gave them.

        Raises:
            HeadstartError: a head is not among them.
        """
        if isinstance(f, Tensor):
            raise HeadstartError(
                f"Joint reads the heads {', '.join(self.parts())} of a net, which gives a single "
                "tensor: let it return a dictionary or a tuple of them."
            )
        return self._for_each(f, "The net gives no head", lambda lik, part: lik.read(part))

    def _for_each(self, given: Nested, lacking: str, of: Any) -> Nested:
        """What the likelihoods make of their parts of a collection."""
        found: dict[str, Tensor] = {}
        for name, likelihood in self.parts().items():
            if name not in given.keys:
                raise HeadstartError(f"{lacking} {name!r}; there are: {', '.join(given.keys)}.")
            found[name] = of(likelihood, given.part(name))
        return Nested(named=found)

    def outputs_of(self, f: Nested) -> dict[str, Any]:
        """What the likelihood of each head wants to know.

        Args:
            f: outputs that were read.
        """
        return {name: each.outputs_of(f.named[name]) for name, each in self.parts().items()}

    def positions(self, outputs: dict[str, Any]) -> int:
        """How many labels a row has, where all heads with several agree; else 1.

        Args:
            outputs: what `outputs_of` returned.
        """
        several = {each.positions(outputs[name]) for name, each in self.parts().items()} - {1}
        return several.pop() if len(several) == 1 else 1

    def layout(self, f: Nested) -> dict[str, Any]:
        """That of each head.

        Args:
            f: draws as the net gave them.
        """
        return {name: each.layout(f.part(name)) for name, each in self.parts().items()}

    def check_layout(self, y: Any, layout: dict[str, Any]) -> None:
        """Refuse labels of a head whose axes are not those of its outputs.

        Args:
            y: labels by the names of heads; what is missing is refused by `check`.
            layout: what `layout` returned.
        """
        for name, each in self.parts().items():
            if not isinstance(y, Tensor) and name in y.keys:
                each.check_layout(y.part(name), layout[name])

    def check(self, y: Any, outputs: Any) -> Any:
        """The labels of each head as its likelihood wants them.

        Args:
            y: labels by the names of heads; a tuple where the heads are a tuple.
            outputs: what `outputs_of` returned.

        Raises:
            HeadstartError: a head has none, or they do not fit.
        """
        if isinstance(y, Tensor):
            raise HeadstartError(
                f"Joint wants a dictionary of labels for the heads {', '.join(self.parts())}, "
                "not a single tensor."
            )
        widths = iter(outputs[name] for name in self.parts())
        lacking = "There are no labels for the head"
        return self._for_each(y, lacking, lambda lik, part: lik.check(part, next(widths)))

    def log_prob(self, f: Any, y: Any) -> Tensor:
        """`Σ_h log p_h(y_h | f_h)` of each row, (..., B).

        Args:
            f: outputs of each head.
            y: labels as `check` returns them.
        """
        each = [
            likelihood.log_prob(f.named[name], y.named[name])
            for name, likelihood in self.parts().items()
        ]
        return sum(each[1:], each[0])

    # I-BLM: hidden units share the labels of all heads, read-outs have those of their own.
    def regression_targets(self, y: Any, center: bool = True) -> tuple[Tensor, Tensor]:
        """The targets of all heads, side by side.

        Args:
            y: labels as `check` returns them.
            center: whether to take off what the likelihoods do not see.
        """
        parts = self.parts().items()
        return _beside(
            [each.regression_targets(y.named[name], center) for name, each in parts], len(y)
        )

    def label_features(
        self, y: Any, count: int, rows: AllRows = LOCAL_ROWS
    ) -> tuple[Tensor, Tensor]:
        """Random functions of the labels, as many of each head.

        Args:
            y: labels as `check` returns them.
            count: how many functions of all heads together.
            rows: means over all rows, of which `y` may be a shard.
        """
        share = -(-count // len(self.parts()))
        parts = self.parts().items()
        t, v = _beside(
            [each.label_features(y.named[name], share, rows) for name, each in parts], len(y)
        )
        chosen = torch.randperm(t.shape[1])[:count]
        return t[:, chosen], v[:, chosen]

    def fit_(self, f: Any, y: Any) -> None:
        """Set the parameters that are learned with the weights to their best.

        Args:
            f: draws of each head.
            y: labels as `check` returns them.
        """
        for name, likelihood in self.parts().items():
            likelihood.fit_(f.named[name], y.named[name])

    def bound_(self, f: Any) -> None:
        """Keep the noise of each head within the range of these rows.

        Args:
            f: draws of each head at the training rows.
        """
        for name, likelihood in self.parts().items():
            likelihood.bound_(f.named[name])

    def label_weights(self, y: Any) -> Tensor | None:
        """The mean of what the labels of a row, or a position, count for in all heads.

        Args:
            y: labels as `check` returns them.
        """
        found = [each.label_weights(y.named[name]) for name, each in self.parts().items()]
        given = [in_double(weights) for weights in found if weights is not None]
        if not given or len({len(weights) for weights in given}) > 1:
            return None
        return (sum(given[1:], given[0]) + (len(found) - len(given))) / len(found)

    def forget_predictive_noise_(self) -> None:
        """Predict with the noise of the bound."""
        for likelihood in self.parts().values():
            likelihood.forget_predictive_noise_()

    def scale_predictive_noise_(self, factor: float | Tensor) -> None:
        """Multiply the standard deviation of every head's noise in predictions.

        Args:
            factor: a positive number, or one per label.
        """
        for likelihood in self.parts().values():
            likelihood.scale_predictive_noise_(factor)

    @property
    def has_predictive_noise(self) -> bool:
        return any(likelihood.has_predictive_noise for likelihood in self.parts().values())

    # Predictions are those of a head.
    def mean(self, f: TensorTree) -> Tensor:
        """Refused: heads have different ones.

        Args:
            f: outputs of each head.
        """
        self._refuse("mean")

    def variance(self, f: TensorTree) -> Tensor:
        """Refused: heads have different ones.

        Args:
            f: outputs of each head.
        """
        self._refuse("variance")

    def probs(self, f: TensorTree) -> Tensor:
        """Refused: heads have different ones.

        Args:
            f: outputs of each head.
        """
        self._refuse("probs")

    def quantile(self, f: TensorTree, level: float) -> Tensor:
        """Refused: heads have different ones.

        Args:
            f: draws of each head.
            level: between 0 and 1.
        """
        self._refuse("interval")

    def _refuse(self, what: str) -> NoReturn:
        names = ", ".join(f"pred[{name!r}]" for name in self.parts())
        raise HeadstartError(f"Each head has its own {what}: ask one of {names} for it.")

    def sample(self, f: Any) -> Any:
        """Labels of each head.

        Args:
            f: outputs of each head.
        """
        return Nested(named={n: each.sample(f.named[n]) for n, each in self.parts().items()})

    def evaluate(self, f: Any, y: Any) -> dict[str, float]:
        """MNLL and expected NLL of all labels of a row together.

        Args:
            f: draws of each head.
            y: labels as `check` returns them.
        """
        return self.log_scores(f, y)

    def summarize(self, f: Any, y: Any) -> dict[str, Tensor]:
        """MNLL and expected NLL of all labels of each row.

        Args:
            f: draws of each head.
            y: labels as `check` returns them.
        """
        return self.log_rows(f, y)

    def for_prediction(self) -> Joint:
        """A copy that predictions keep."""
        return Joint({name: each.for_prediction() for name, each in self.parts().items()})


def _beside(targets: Sequence[tuple[Tensor, Tensor]], rows: int) -> tuple[Tensor, Tensor]:
    """Targets of several heads side by side, of each row, or of each position where that fits.

    Heads with a label for a row have it at all positions of those with more. Where the numbers of
    positions differ, the labels of a row count as one.
    """
    labels = {len(t) // max(1, rows) for t, _ in targets}
    positions = max(labels) if len(labels - {1}) == 1 else 1
    each = []
    for t, v in targets:
        if len(t) not in (rows, rows * positions):
            t, v = mean_of_labels(t, v, rows)
        if len(t) == rows:
            t, v = t.repeat_interleave(positions, 0), v.repeat_interleave(positions, 0)
        each.append((t, v))
    dtype = reduce(torch.promote_types, [t.dtype for t, _ in each])
    t = torch.cat([t.to(dtype) for t, _ in each], 1)
    return t, torch.cat([v.to(dtype).expand_as(t) for t, v in each], 1)
