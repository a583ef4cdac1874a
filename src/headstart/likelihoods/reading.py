"""How a likelihood reads what a net returns: which axis holds the outputs, which head is its."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from headstart.nested import map_each, of_head
from headstart.network.forward import check_outputs


class OutputReader(nn.Module):
    """Outputs of one kind, a vector for each row, unless a subclass says otherwise."""

    is_plain = True
    """Whether labels are one tensor with a label for each row, and nothing beside it."""
    is_of_rows = True
    """Whether a row has one vector of outputs and one label; else it has several of them."""

    def read(self, f: Any) -> Any:
        """Draws of a net's outputs as the other methods take them.

        Args:
            f: draws as the net gave them, (S, B, ...).

        Returns:
            The draws (S, B, K), in float32 where they had half precision.

        Raises:
            HeadstartError: they have other axes.
        """
        return check_outputs(f)

    def read_rows(self, output: Any) -> Any:
        """What one pass of a net gave, read.

        Args:
            output: as the net gave it, (B, ...).
        """
        one = self.read(map_each(lambda part: part.unsqueeze(0), output))
        return map_each(lambda part: part[0], one)

    def outputs_of(self, f: Any) -> Any:
        """What `check` is told of the outputs: their number.

        Args:
            f: outputs that were read.
        """
        return f.shape[-1]

    def plain_labels(self, y: Any) -> Any:
        """The labels without what comes beside them.

        Args:
            y: labels that were checked.
        """
        return y

    def label_weights(self, y: Any) -> Tensor | None:
        """What each label counts for; None: all count for one.

        Args:
            y: labels that were checked.
        """
        return None

    def positions(self, outputs: Any) -> int:
        """How many labels a row has.

        Args:
            outputs: what `outputs_of` returned.
        """
        return 1

    def layout(self, f: Any) -> Any:
        """What `arrange` needs to know of the outputs.

        Args:
            f: draws as the net gave them.
        """
        return ()

    def check_layout(self, y: Any, layout: Any) -> None:
        """Refuse labels whose axes are not those of the outputs.

        Args:
            y: labels as the user gave them.
            layout: what `layout` returned.
        """

    def arrange(self, values: Tensor, layout: Any, per_output: bool = True) -> Tensor:
        """Predictions in the order of the net's own axes.

        Args:
            values: a number for each row and output, or for each row.
            layout: what `layout` returned.
            per_output: whether there is a number for each output.
        """
        return values

    def parts(self) -> dict[str, Any]:
        """The likelihoods that this one is made of, by name."""
        return {}

    def heads(self) -> dict[str | None, Any]:
        """The likelihood of each head of the net by its name; None: the net returns one tensor."""
        return {None: self}

    def reader(self, head: str | None) -> Callable[[Any], Any]:
        """What reads one head in what a pass of the net gave.

        Args:
            head: its name in `heads`.
        """
        likelihood = self.heads()[head]
        return lambda output: likelihood.read_rows(of_head(output, head))

    @classmethod
    def rebuilt(cls, parts: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        """A likelihood from its parts and what `config` returned.

        Args:
            parts: as `parts` gives them.
            options: as `config` gives them.
        """
        return cls(**options)
