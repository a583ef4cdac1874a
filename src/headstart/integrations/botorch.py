"""Draws of a Bayesian net as a model of BoTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from botorch.models.ensemble import EnsembleModel
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.kernels.random_state import seeded
from headstart.likelihoods import Likelihood
from headstart.network.frozen import freeze

__all__ = ["BotorchModel"]


@final
class BotorchModel(EnsembleModel):  # type: ignore[misc]
    """Functions drawn from the posterior, as a model for BoTorch's acquisition functions.

    The functions are drawn once: an acquisition function is then smooth in its inputs, and its
    optimizer has gradients. They are those of the label's mean, in the units of the labels and
    without their noise.

    Args:
        model: The Bayesian net, or several with equal parts: `hs.condition(...).nets`.
        likelihood: The likelihood of its labels.
        samples: How many functions, at least one of each net.
        seed: Seeds the draws; None: the caller's random numbers.
        outputs: How many labels a point has.

    Raises:
        HeadstartError: There is no net, or no function, or the labels are not as many.

    Example:
        >>> import headstart as hs
        >>> from headstart.integrations import BotorchModel
        >>> x = torch.rand(20, 2)
        >>> model, lik = hs.bayesianize(hs.models.create("mlp-1x50", 2, 1)), hs.Gaussian()
        >>> report = hs.initialize_(model, "iblm", lik, (x, x.sum(1)), seed=0)
        >>> found = BotorchModel(model, lik, samples=16, seed=0).posterior(torch.rand(5, 3, 2))
        >>> found.mean.shape, found.variance.shape
        (torch.Size([5, 3, 1]), torch.Size([5, 3, 1]))
    """

    def __init__(
        self,
        model: nn.Module | Sequence[nn.Module],
        likelihood: Likelihood,
        samples: int = 64,
        seed: int | None = None,
        outputs: int = 1,
    ) -> None:
        super().__init__()
        nets = [model] if isinstance(model, nn.Module) else list(model)
        if not nets:
            raise HeadstartError("BotorchModel needs at least one Bayesian net; it was given none.")
        if samples < 1:
            raise HeadstartError(f"At least one function must be drawn, not {samples}.")
        with seeded(seed, *nets):
            drawn = [freeze(net, -(-samples // len(nets))) for net in nets]
        self.functions = nn.ModuleList(drawn).requires_grad_(False).eval()
        self.likelihood = likelihood.for_prediction()
        self._num_outputs = outputs
        self.dtype = next(nets[0].parameters()).dtype

    def forward(self, X: Tensor) -> Tensor:
        """What each function says of each point.

        Args:
            X: Points, (..., q, features).

        Returns:
            Means of the labels, (..., S, q, outputs).
        """
        rows = X.reshape(-1, X.shape[-1]).to(self.dtype)
        outputs = torch.cat([function(rows) for function in self.functions])
        means = self.likelihood.mean(outputs).to(X.dtype)
        if means.shape[-1] != self.num_outputs:
            raise HeadstartError(
                f"A point has {means.shape[-1]} labels, and BotorchModel was told of "
                f"{self.num_outputs}; give it outputs={means.shape[-1]}."
            )
        return means.reshape(len(means), *X.shape[:-1], -1).movedim(0, -3)

    @property
    def batch_shape(self) -> torch.Size:
        """Models are not batched: the functions are one axis of the posterior's."""
        return torch.Size([])
