"""What differs between inference methods: how a batch becomes an update of the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from headstart.distributed.collectives import SINGLE_PROCESS, ProcessGroup
from headstart.errors import HeadstartError
from headstart.likelihoods import Likelihood
from headstart.network.convert import Where, bayesianize
from headstart.network.layer import bayesian_layers
from headstart.objective import Nelbo, nelbo
from headstart.posteriors import Posterior

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""What a net may compute in; parameters, KL, likelihood and optimizer stay in their own type."""
PAPER_LR = 1e-3
"""Adam's learning rate in the I-BLM paper, constant throughout."""
LIKELIHOOD_LR = 10.0
"""How much faster the likelihood's few parameters (a log noise variance) move than the weights.

At 1e-3 a step, a noise ten times too small takes 2300 steps to mend, and until then every interval
is wrong.
"""


MakeOptimizer = Callable[..., torch.optim.Optimizer]
"""What makes an optimizer of groups of parameters, as torch's classes do."""
OptimizerChoice = str | MakeOptimizer | None
"""An optimizer by name, or what makes one; None: the method's own choice."""


class Inference(ABC):
    """A way to learn a posterior; `bind` it to a model, then `update` it batch by batch."""

    name: str
    posterior: str | None = None
    """The family that `convert` gives a net by default; None: mean-field."""
    test_sampler = "weights"
    """How to draw at test: whole functions, exact everywhere and cheaper than local draws."""
    precision = "float32"
    """What the net computes in."""
    sampler = "local"
    """How to draw in training."""
    optimizers: tuple[str, ...] = ()
    """The optimizers that the method can be told to use; none: it has its own."""
    pools = False
    """Whether `update` learns from the rows of all processes: it calls `pool` or `pool_`."""
    trains_members = False
    """Whether this method trains mixtures."""
    group: ProcessGroup = SINGLE_PROCESS
    """The processes that train together."""

    model: nn.Module
    likelihood: Likelihood
    num_data: int
    samples: int
    optimizer: torch.optim.Optimizer
    step = 0
    """Updates so far, where a method counts them."""

    def convert(
        self,
        net: nn.Module,
        *,
        posterior: Any = None,
        prior: Any = 1.0,
        where: Where = None,
        members: int = 1,
    ) -> nn.Module:
        """A copy of a plain net that this method can train.

        Args:
            net: the net.
            posterior: as in `bayesianize`; None is the method's own family.
            prior: as in `bayesianize`.
            where: as in `bayesianize`.
            members: as in `bayesianize`.

        Raises:
            HeadstartError: where this method cannot train such a posterior, or no mixtures.
        """
        self.refuse_members(members)
        family = posterior or self.posterior or "mean_field"
        model = bayesianize(net, posterior=family, prior=prior, where=where, members=members)
        self.check_posteriors(model)
        return model

    def supports(self, posterior: Posterior) -> bool:
        """Whether this method can train a layer with such a posterior.

        Args:
            posterior: that of the layer.
        """
        return True

    def computing(self, x: Tensor) -> AbstractContextManager[Any]:
        """Autocast for the forward pass, Fabric's or ours.

        In full precision nothing, so that an autocast of the caller's stays.

        Args:
            x: the inputs, for their device.
        """
        if self.precision == "float32":
            return self.group.autocast()
        return torch.autocast(x.device.type, PRECISIONS[self.precision])

    def pool(self, parts: Sequence[Tensor], rows: int) -> list[Tensor]:
        """Means over the rows of all processes, from means over the rows of each.

        The moving averages of BatchNorm go along in the same message.

        Args:
            parts: means over the rows of this process.
            rows: how many rows these are.
        """
        if self.group.is_alone:
            return list(parts)
        moving = [part for module in self.model.modules() for part in _moving_averages(module)]
        means = self.group.rows.weighted_means([*parts, *moving], rows)
        for part, mean in zip(moving, means[len(parts) :], strict=True):
            part.copy_(mean)
        return means[: len(parts)]

    def pool_(self, loss: Nelbo, rows: int) -> Nelbo:
        """The loss on the rows of all processes; the parameters' gradients become those of it.

        The KL, everywhere the same, is counted once.

        Args:
            loss: that on the rows of this process, after `backward`.
            rows: how many rows these are.
        """
        loss = Nelbo(*(part.detach() for part in loss))
        if self.group.is_alone:
            return loss
        learned = trainable(self.model, self.likelihood)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in learned]
        *parts, value, nll, kl = self.pool([*gradients, *loss], rows)
        for parameter, gradient in zip(learned, parts, strict=True):
            # In the parameter's own layout: a fused step walks raw memory.
            parameter.grad = torch.empty_like(parameter).copy_(gradient)
        return Nelbo(value, nll, kl)

    def refuse_members(self, members: int) -> None:
        """Refuse a mixture, where this method does not train any.

        Args:
            members: the number of its members.

        Raises:
            HeadstartError: which says what to do.
        """
        if members > 1 and not self.trains_members:
            raise HeadstartError(
                f"{self.name} trains single posteriors, not the {members} members of a mixture: "
                "fit with inference='svi', or one member at a time within hs.member(model, index)."
            )

    def check_posteriors(self, model: nn.Module) -> None:
        """Refuse a model with a posterior that this method does not support.

        Args:
            model: a net from `bayesianize`.

        Raises:
            HeadstartError: which names the layer.
        """
        for name, layer in bayesian_layers(model).items():
            if not self.supports(layer.posterior):
                place = f"layer {name!r}" if name else f"this {type(layer.op).__name__}"
                raise HeadstartError(
                    f"{self.name} trains nets with posterior={self.posterior!r}, "
                    f"but {place} has {layer.posterior.name!r}: convert the net with "
                    f"{type(self).__name__}().convert(net), "
                    "and leave out with where= what that cannot hold."
                )

    @abstractmethod
    def bind(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        *,
        num_data: int,
        samples: int,
        lr: float | None,
        clip: float | None,
        optimizer: OptimizerChoice = None,
    ) -> Any:
        """Take a model to train; called once, before the first `update`.

        Args:
            model: a net from `bayesianize`.
            likelihood: p(y | f), trained along.
            num_data: the rows of the data set.
            samples: draws of the net for each step.
            lr: the learning rate; None: the method's own.
            clip: the largest norm of a gradient; None: no bound.
            optimizer: one of `optimizers`, or what makes one; None: the method's own choice.

        Returns:
            The optimizer, which a learning-rate schedule may drive.
        """

    def identity(self) -> dict[str, Any]:
        """What, beside the options of training, must be the same for a run to go on."""
        return {}

    def loss(self, x: Tensor, y: Tensor, kl_weight: float) -> Nelbo:
        """The NELBO of what was bound.

        Args:
            x: the inputs of a batch.
            y: its labels.
            kl_weight: the weight of the KL.
        """
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
        """One step on one batch.

        Args:
            x: its inputs.
            y: its labels.
            kl_weight: the weight of the KL.

        Returns:
            The loss before the step.
        """

    def state(self) -> dict[str, Any]:
        """What, beside the parameters, the next steps depend on."""
        return {"optimizer": self.optimizer.state_dict(), "step": self.step}

    def load_state_(self, state: dict[str, Any]) -> None:
        """Go on from a `state`; the method is bound already.

        Args:
            state: what `state` returned.

        Raises:
            HeadstartError: where it is that of another model.
        """
        settings = [set(group) for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state["optimizer"])
        _check_settings(settings, self.optimizer.param_groups)
        for parameter, found in self.optimizer.state.items():
            for name, part in found.items():
                # Counts of steps have no axes, whatever the parameter has.
                if not isinstance(part, Tensor) or part.ndim == 0:
                    continue
                if part.numel() == 1 != parameter.numel():
                    continue
                # What is for all units of a layer; the optimizer checks these shapes itself.
                if name in getattr(self.optimizer, "own_shapes", ()):
                    found[name] = part.clone()
                    continue
                # A fused step walks raw memory.
                if part.shape != parameter.shape:
                    raise HeadstartError(
                        f"The optimizer's {name!r} has shape {tuple(part.shape)} "
                        f"for a parameter of shape {tuple(parameter.shape)}."
                    )
                # In the parameter's own layout.
                found[name] = torch.empty_like(parameter, dtype=part.dtype).copy_(part)
        self.step = int(state["step"])


def _check_settings(known: Sequence[set[str]], groups: Sequence[dict[str, Any]]) -> None:
    """Refuse groups of an optimizer that have lost a setting, or whose rates are no numbers."""
    for names, group in zip(known, groups, strict=True):
        rates = [group[name] for name in ("lr", "initial_lr") if name in group]
        if names - set(group) or not all(isinstance(rate, (int, float)) for rate in rates):
            raise HeadstartError("The optimizer's state lacks a setting, or has it wrong.")


def _moving_averages(module: nn.Module) -> list[Tensor]:
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
    """Two groups for an optimizer: the model's parameters, and the likelihood's, which move faster.

    Args:
        model: the net.
        likelihood: its likelihood.
        lr: the learning rate of the first.
    """
    weights = {"params": trainable(model)}
    others = {"params": trainable(likelihood), "lr": LIKELIHOOD_LR * lr}
    return [group for group in (weights, others) if group["params"]]
