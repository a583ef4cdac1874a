"""What differs between inference methods: how a batch becomes an update of the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from headstart.distributed.collectives import ONE, Ranks
from headstart.errors import HeadstartError
from headstart.likelihoods import Likelihood
from headstart.network.convert import bayesianize
from headstart.network.layer import bayesian_layers
from headstart.objective import Nelbo, nelbo

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""What a net may compute in; parameters, KL, likelihood and optimiser stay in their own type."""
LIKELIHOOD_LR = 10.0
"""How much faster the likelihood's few parameters (a log noise variance) move than the weights: at 1e-3 a step, a noise
ten times too small takes 2300 steps to mend, and until then every interval is wrong."""


class Inference(ABC):
    """A way to learn a posterior; `bind` it to a model, then `update` it batch by batch."""

    name: str
    posterior: str | None = None
    """The family of posteriors that this method is for; None: any."""
    test_sampler = "weights"
    """How to draw at test: whole functions, exact everywhere and cheaper than local draws."""

    def convert(self, net: nn.Module, **options: Any) -> nn.Module:
        """A copy of a plain net that this method can train; `options` are those of `bayesianize`."""
        given = options.get("posterior", self.posterior)
        if self.posterior is not None and given != self.posterior:
            raise HeadstartError(
                f"{self.name} trains nets with posterior={self.posterior!r}, not {given!r}."
            )
        return bayesianize(
            net, **{**options, **({"posterior": self.posterior} if self.posterior else {})}
        )

    precision = "float32"
    """What the net computes in."""
    sampler = "local"
    """How to draw in training."""
    pools = False
    """Whether `update` learns from the rows of all ranks: it passes loss and gradients through `pool` or `pool_`."""
    ranks: Ranks = ONE
    """The processes that train together."""

    model: nn.Module
    likelihood: Likelihood
    num_data: int
    samples: int
    optimizer: torch.optim.Optimizer
    step = 0
    """Updates so far, where a method counts them."""

    def computing(self, x: Tensor) -> AbstractContextManager[Any]:
        """Autocast for the forward pass, Fabric's or ours; in full precision nothing, so that an autocast of the caller's stays."""
        full = self.precision == "float32"
        return (
            self.ranks.autocast()
            if full
            else torch.autocast(x.device.type, PRECISIONS[self.precision])
        )

    def pool(self, parts: Sequence[Tensor], rows: int) -> list[Tensor]:
        """Means over the rows of all ranks, from means over the `rows` of each: one message, in which BatchNorm's averages go along."""
        if self.ranks.world == 1:
            return list(parts)
        moving = [part for module in self.model.modules() for part in _moving(module)]
        every = [*parts, *moving]
        kind = torch.promote_types(
            parts[0].dtype, torch.float32
        )  # a sum over rows is too large for half precision
        flat = torch.cat([part.detach().flatten().to(kind) for part in every])
        found = self.ranks.sum(torch.cat([rows * flat, flat.new_tensor([rows])]))
        means = (found[:-1] / found[-1]).split([part.numel() for part in every])
        shaped = [
            mean.view_as(part).to(part.dtype) for mean, part in zip(means, every, strict=True)
        ]
        for part, mean in zip(moving, shaped[len(parts) :], strict=True):
            part.copy_(mean)
        return shaped[: len(parts)]

    def pool_(self, loss: Nelbo, rows: int) -> Nelbo:
        """The loss on the rows of all ranks; the parameters' gradients become those of it. The KL, everywhere the same, is counted once."""
        loss = Nelbo(*(part.detach() for part in loss))
        if self.ranks.world == 1:
            return loss
        learned = trainable(self.model, self.likelihood)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in learned]
        *parts, value, nll, kl = self.pool([*gradients, *loss], rows)
        for parameter, gradient in zip(learned, parts, strict=True):
            parameter.grad = gradient
        return Nelbo(value, nll, kl)

    def refuse_other_families(self, model: nn.Module) -> None:
        """Say which layer has a posterior that this method does not know."""
        for name, layer in bayesian_layers(model).items():
            family = layer.posterior.name
            if family != self.posterior:
                raise HeadstartError(
                    f"{self.name} trains nets with posterior={self.posterior!r}, but layer {name!r} has {family!r}: convert the net "
                    f"with {type(self).__name__}().convert(net), and leave out with where= what that cannot hold."
                )

    @abstractmethod
    def bind(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        *,
        num_data: int,
        samples: int,
        lr: float,
        clip: float | None,
    ) -> Any:
        """The optimizer of this model, which a learning-rate schedule may drive."""

    def loss(self, x: Tensor, y: Tensor, kl_weight: float) -> Nelbo:
        """The NELBO of what was bound."""
        with self.computing(x):
            return nelbo(
                self.model,
                self.likelihood,
                x,
                y,
                num_data=self.num_data,
                samples=self.samples,
                kl_weight=kl_weight,
                sampler=self.sampler,
            )

    @abstractmethod
    def update(self, x: Tensor, y: Tensor, kl_weight: float) -> Nelbo:
        """One step on one batch."""

    def state(self) -> dict[str, Any]:
        """What, beside the parameters, the next steps depend on."""
        return {"optimizer": self.optimizer.state_dict(), "step": self.step}

    def load_state_(self, state: dict[str, Any]) -> None:
        """Go on from there; the method is bound already."""
        self.optimizer.load_state_dict(state["optimizer"])
        for parameter, found in self.optimizer.state.items():
            for name, part in found.items():
                if not isinstance(part, Tensor) or part.numel() == 1 != parameter.numel():
                    continue
                if part.shape != parameter.shape:  # a fused step walks raw memory
                    raise HeadstartError(
                        f"The optimizer's {name!r} has shape {tuple(part.shape)} for a parameter of shape {tuple(parameter.shape)}."
                    )
                found[name] = torch.empty_like(parameter, dtype=part.dtype).copy_(
                    part
                )  # in the parameter's own layout
        self.step = int(state["step"])


def _moving(module: nn.Module) -> list[Tensor]:
    """The averages that a module keeps of what it has seen, while it trains."""
    if not (module.training and getattr(module, "track_running_stats", False)):
        return []
    kept = (getattr(module, name, None) for name in ("running_mean", "running_var"))
    return [part for part in kept if isinstance(part, Tensor)]


def trainable(*modules: nn.Module) -> list[nn.Parameter]:
    """The parameters to learn, each once."""
    return list(
        {id(p): p for module in modules for p in module.parameters() if p.requires_grad}.values()
    )


def likelihood_apart(model: nn.Module, likelihood: Likelihood, lr: float) -> list[dict[str, Any]]:
    """Two groups for an optimizer: the model's parameters, and the likelihood's, which move faster."""
    weights = {"params": trainable(model)}
    others = {"params": trainable(likelihood), "lr": LIKELIHOOD_LR * lr}
    return [group for group in (weights, others) if group["params"]]
