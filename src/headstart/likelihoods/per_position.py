"""A label for each position of a row: the words of a sentence, the pixels of an image."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.likelihoods.base import Likelihood
from headstart.likelihoods.noise import NoiseModel
from headstart.likelihoods.wrapped import WrappedLikelihood
from headstart.nested import map_each, parts_of


class PerPosition(WrappedLikelihood):
    """p(y | f) = Π_p p(y_p | f_p): each position of a row has outputs and a label of its own.

    A row is an example, and `num_data` counts examples: the log-likelihood of one is the sum over
    its positions. Positions without a label count for nothing, by `ignore_index` of `Categorical`
    or a weight of 0 (`hs.Weighted`). Metrics are means over positions, I-BLM's read-out regresses
    on positions, and predictions have the net's own axes.

    Args:
        likelihood: that of one position.
        axis: which axis of the net's output, (rows, ...), holds the outputs of a position: −1 for
            sequences (rows, T, K), 1 for images (rows, K, H, W).

    Example:
        >>> import headstart as hs
        >>> lik = PerPosition(hs.Categorical(3, ignore_index=-100))
        >>> f, y = torch.zeros(1, 2, 4, 3), torch.tensor([[0, 2, 1, -100], [1, 1, -100, -100]])
        >>> lik.log_prob(f, lik.check(y, (4, 3)))  # three positions, and two
        tensor([[-3.2958, -2.1972]])
    """

    name = "per_position"
    is_plain, is_of_rows = False, False

    def __init__(self, likelihood: Likelihood, axis: int = -1) -> None:
        super().__init__(likelihood)
        if not likelihood.is_of_rows:
            raise HeadstartError(
                f"The likelihood of a position must be one of single labels, not {likelihood.name}."
            )
        if axis == 0:
            raise HeadstartError("Axis 0 holds the rows; the outputs of a position are on another.")
        self.axis = axis

    # Outputs: (S, B, P, K) here, and the net's own axes outside.
    def read(self, f: Any) -> Tensor:
        """Draws (S, B, P, K), the positions of an example one after another.

        Args:
            f: draws as the net gave them.

        Raises:
            HeadstartError: there are no positions.
        """
        given = tuple(f.shape[1:]) if isinstance(f, Tensor) else ()
        if len(given) < 3 or not -len(given) < self.axis < len(given):
            shape = f"(rows, {', '.join(map(str, given[1:]))})" if given else "several tensors"
            raise HeadstartError(
                f"PerPosition(axis={self.axis}) reads outputs of shape (rows, positions, outputs) "
                f"with the outputs on that axis; the net gives {shape}."
            )
        outputs = f.movedim(self._from_end(f.ndim - 1), -1).flatten(2, -2)
        return outputs.float() if f.dtype in (torch.float16, torch.bfloat16) else outputs

    def _from_end(self, axes: int) -> int:
        """The axis of the outputs, counted from the last, of so many."""
        return self.axis if self.axis < 0 else self.axis - axes

    def outputs_of(self, f: Tensor) -> tuple[int, int]:
        """The positions of an example and the outputs of a position.

        Args:
            f: outputs that were read.
        """
        return f.shape[-2], f.shape[-1]

    def positions(self, outputs: tuple[int, int]) -> int:
        """The positions of an example.

        Args:
            outputs: what `outputs_of` returned.
        """
        return outputs[0]

    def layout(self, f: Tensor) -> tuple[int, ...]:
        """The axes that hold positions.

        Args:
            f: draws as the net gave them.
        """
        return tuple(f.movedim(self._from_end(f.ndim - 1), -1).shape[2:-1])

    def check_layout(self, y: Any, layout: tuple[int, ...]) -> None:
        """Refuse labels whose axes of positions are in another order than those of the net.

        Args:
            y: labels as the user gave them.
            layout: the axes of positions.

        Raises:
            HeadstartError: they are (rows, W, H) where the net has (rows, K, H, W), say.
        """
        wanted = [size for size in layout if size > 1]
        for part in parts_of(y):
            own = list(part.shape[1:])
            if len(own) > len(layout):
                del own[self._label_axis(part.ndim)]
            own = [size for size in own if size > 1]
            if own != wanted and sorted(own) == sorted(wanted):
                raise HeadstartError(
                    f"The positions of a row are {tuple(layout)} in the net's output and "
                    f"{tuple(own)} in labels of shape {tuple(part.shape)}: transpose the labels."
                )

    def arrange(self, values: Tensor, layout: tuple[int, ...], per_output: bool = True) -> Tensor:
        """Predictions in the order of the net's own axes.

        Args:
            values: (..., B, P, K), or (..., B, P).
            layout: the axes of positions.
            per_output: whether there is a number for each output.
        """
        if not per_output:
            return values.unflatten(-1, layout)
        return values.unflatten(-2, layout).movedim(-1, self._from_end(len(layout) + 2))

    def _outputs(self, f: Tensor) -> Tensor:
        """The positions of all rows as rows, (..., B · P, K)."""
        return f.flatten(-3, -2)

    def _answer(self, values: Tensor, f: Tensor) -> Tensor:
        return values.unflatten(-2, f.shape[-3:-1])

    # Labels: (B, P), or with the outputs where the net has them, (B, P, K) or (B, K, P); and
    # tensors of weights beside them where there are any.
    def check(self, y: Any, outputs: Any) -> Any:
        """Labels (B, P), or (B, P, K) where a position has several numbers.

        Where the net's outputs are on the axis before the last, so are those of labels, (B, K, P):
        of a square of numbers nobody could else tell what it was.

        Args:
            y: labels with the net's own axes, (rows, positions) or with the axis of outputs too.
            outputs: the positions of an example and the outputs of a position.

        Raises:
            HeadstartError: they do not fit.
        """
        positions, width = outputs
        flat = map_each(lambda part: self._flat_labels(part, positions, width), y)
        checked = self.likelihood.check(flat, width)
        return map_each(lambda part: self._in_place(part.unflatten(0, (-1, positions))), checked)

    def _flat_labels(self, y: Tensor, positions: int, width: int) -> Tensor:
        """The labels of all positions, (B · P,) or (B · P, K)."""
        count = math.prod(y.shape[1:])
        if y.ndim > 1 and count == positions:
            return y.reshape(-1)
        axis = self._label_axis(y.ndim)
        if y.ndim < 3 or count != positions * y.shape[axis]:
            raise HeadstartError(
                f"On axis {self.axis} the net gives {width} outputs at each of {positions} "
                "positions of a row, so PerPosition wants labels of shape (rows, positions), or "
                f"with an axis for the outputs where the net has it, not {tuple(y.shape)}; where "
                "another axis holds the outputs of a position, say so: PerPosition(..., axis=1) "
                "for (rows, K, H, W), axis=-1 for (rows, T, K)."
            )
        return y.movedim(axis, -1).reshape(-1, y.shape[axis])

    def _label_axis(self, axes: int) -> int:
        """The axis of several numbers at a position, counted from the last, of labels."""
        axis = self._from_end(axes)
        # Labels whose positions are one axis have fewer than the net: there they are the last.
        return axis if -axes < axis < 0 else -1

    def _in_place(self, y: Tensor) -> Tensor:
        """Labels (B, P, K) with the outputs where those of checked labels are."""
        return y if y.ndim < 3 else y.movedim(-1, self._label_axis(3))

    def _labels(self, y: Any) -> Any:
        """The labels of all positions."""

        def flat(part: Tensor) -> Tensor:
            last = part if part.ndim < 3 else part.movedim(self._label_axis(3), -1)
            return last.flatten(0, 1)

        return map_each(flat, y)

    def log_prob(self, f: Tensor, y: Any) -> Tensor:
        """`Σ_p log p(y_p | f_p)` of each row, (..., B).

        Args:
            f: outputs, (..., B, P, K).
            y: labels as `check` returns them.
        """
        each = self.likelihood.log_prob(self._outputs(f), self._labels(y))
        return each.unflatten(-1, f.shape[-3:-1]).sum(-1)

    def curvature(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """The gradient of log p(y | f) and the diagonal of its negative Hessian, (..., B, P, K).

        Args:
            f: outputs, (..., B, P, K).
            y: labels as `check` returns them.
        """
        slope, curvature = self.likelihood.curvature(self._outputs(f), self._labels(y))
        return slope.view_as(f), curvature.reshape(f.shape)

    def sample(self, f: Tensor) -> Tensor:
        """Labels, (..., B, P), or with several numbers at a position as `check` has them.

        Args:
            f: outputs, (..., B, P, K).
        """
        drawn = super().sample(f).unflatten(f.ndim - 3, f.shape[-3:-1])
        return drawn if drawn.ndim < f.ndim else drawn.movedim(-1, self._label_axis(3))

    def noise_model(self, outputs: Any) -> NoiseModel | None:
        """That of a position.

        Args:
            outputs: the positions of an example and the outputs of a position.
        """
        return self.likelihood.noise_model(outputs[1])

    def set_noise_(self, log_var: Tensor, log_predictive: Tensor) -> None:
        """Take these noise variances.

        Args:
            log_var: the logarithm of the variances of the bound.
            log_predictive: those of predictions.
        """
        self.likelihood.set_noise_(log_var, log_predictive)

    def config(self) -> dict[str, Any]:
        return {"axis": self.axis}

    def extra_repr(self) -> str:
        return f"axis={self.axis}"
