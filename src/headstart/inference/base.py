"""What differs between inference methods: how a batch becomes an update of the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from headstart.convert import bayesianize
from headstart.likelihoods import Likelihood
from headstart.objective import Nelbo


class Inference(ABC):
    """A way to learn a posterior; `bind` it to a model, then `update` it batch by batch."""

    name: str
    test_sampler = "weights"
    """How to draw at test: whole functions, exact everywhere and cheaper than local draws."""

    def convert(self, net: nn.Module, **options: Any) -> nn.Module:
        """A copy of a plain net that this method can train; `options` are those of `bayesianize`."""
        return bayesianize(net, **options)

    @abstractmethod
    def bind(
        self, model: nn.Module, likelihood: Likelihood, *, num_data: int, samples: int, lr: float, clip: float | None
    ) -> Any:
        """The optimizer of this model, which a learning-rate schedule may drive."""

    @abstractmethod
    def update(self, x: Tensor, y: Tensor, kl_weight: float) -> Nelbo:
        """One step on one batch."""


def trainable(*modules: nn.Module) -> list[nn.Parameter]:
    """The parameters to learn, each once."""
    return list({id(p): p for module in modules for p in module.parameters() if p.requires_grad}.values())
