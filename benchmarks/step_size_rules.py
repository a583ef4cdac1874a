"""Rules for the length of a step that `fit` does not have: what `step_sizes.py` compares it with.

Each is a `torch.optim.Optimizer` that knows the model's posteriors, for `fit(optimizer=...)`:

- `trust`: each layer's Adam step has the length `lr` times that of its weights (LAMB).
- `kl`: Adam steps, shortened together so that KL(q_new || q_old) is at most `bound` nats.
- `natural`: natural-gradient steps of a mean-field posterior (the variational online Newton form).

All warm up linearly over `WARM_UP` steps; the likelihood moves by Adam at 1e-2, and variances by
Adam at 1e-3 unless the rule has a step for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headstart.network.layer import bayesian_layers
from headstart.posteriors import MeanField

WARM_UP = 50
VARIANCE_LR, LIKELIHOOD_LR = 1e-3, 1e-2
LONGEST_LOG = 0.2
"""The most that a natural-gradient step may move a log-variance."""


class Rule(torch.optim.Optimizer):
    """Adam directions, and a length that a rule gives to the steps of the means.

    Args:
        groups: The groups of parameters that `fit` hands over.
        model: The net, all of whose layers are mean-field.
    """

    def __init__(self, groups: Any, model: nn.Module) -> None:
        super().__init__(groups, {"lr": VARIANCE_LR})
        found = [layer.posterior for layer in bayesian_layers(model).values()]
        self.posteriors = [each for each in found if isinstance(each, MeanField)]
        if len(self.posteriors) < len(found):
            raise ValueError("These rules are for mean-field posteriors.")
        self.count = 0

    def direction(self, parameter: Tensor, beta: float = 0.9) -> Tensor:
        """The direction of Adam, bias-corrected."""
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if not state:
            state["mean"], state["square"] = (torch.zeros_like(parameter) for _ in range(2))
        state["mean"].lerp_(gradient, 1 - beta)
        state["square"].lerp_(gradient.square(), 1e-3)
        root = (state["square"] / (1 - 0.999**self.count)).sqrt_().add_(1e-8)
        return (state["mean"] / (1 - beta**self.count)).div_(root)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        self.count += 1
        warm = min(1.0, self.count / WARM_UP)
        self.move_posteriors(warm)
        known = {id(part) for each in self.posteriors for part in (each.mean, each.logvar)}
        for parameter in (each for group in self.param_groups for each in group["params"]):
            if id(parameter) not in known and parameter.grad is not None:
                parameter.sub_(LIKELIHOOD_LR * self.direction(parameter))

    def move_posteriors(self, warm: float) -> None:
        """A step of means and log-variances; `warm` is the share of the rate."""
        raise NotImplementedError


class Trust(Rule):
    """Steps of the means whose length is `lr` times that of the layer's means."""

    def __init__(self, groups: Any, model: nn.Module, lr: float) -> None:
        super().__init__(groups, model)
        self.lr = lr

    def move_posteriors(self, warm: float) -> None:
        for each in self.posteriors:
            step = self.direction(each.mean)
            each.mean.sub_(warm * self.lr * each.mean.norm() / step.norm() * step)
            each.logvar.sub_(VARIANCE_LR * self.direction(each.logvar))


class KLBound(Rule):
    """Adam steps, shortened so that the posterior moves by at most `bound` nats."""

    def __init__(self, groups: Any, model: nn.Module, lr: float, bound: float) -> None:
        super().__init__(groups, model)
        self.lr, self.bound = lr, bound

    def move_posteriors(self, warm: float) -> None:
        steps = [
            (each, self.lr * self.direction(each.mean), VARIANCE_LR * self.direction(each.logvar))
            for each in self.posteriors
        ]
        # KL(q_new || q_old) to second order, which the bound is small enough for.
        moved = sum(
            float((mean.square() / each.logvar.exp()).sum() + logvar.square().sum() / 2) / 2
            for each, mean, logvar in steps
        )
        share = warm * min(1.0, (self.bound / moved) ** 0.5)
        for each, mean, logvar in steps:
            each.mean.sub_(share * mean)
            each.logvar.sub_(share * logvar)


class Natural(Rule):
    """m -= lr s² dL/dm and 1/s² += 2 lr dL/ds², L the NELBO in nats, gradients averaged."""

    def __init__(self, groups: Any, model: nn.Module, lr: float, beta: float = 0.9) -> None:
        super().__init__(groups, model)
        self.lr, self.beta = lr, beta

    def move_posteriors(self, warm: float) -> None:
        for each in self.posteriors:
            slopes = [self.averaged(part) for part in (each.mean, each.logvar)]
            each.mean.sub_(warm * self.lr * each.logvar.exp() * slopes[0])
            grown = (1 + 2 * warm * self.lr * slopes[1]).clamp_min(1e-3).log_()
            each.logvar.sub_(grown.clamp_(-LONGEST_LOG, LONGEST_LOG))

    def averaged(self, parameter: Tensor) -> Tensor:
        """The exponential average of the gradients, bias-corrected."""
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        average = state.setdefault("mean", torch.zeros_like(parameter))
        average.lerp_(gradient, 1 - self.beta)
        return average / (1 - self.beta**self.count)


RULES: dict[str, Callable[..., Rule]] = {"trust": Trust, "kl": KLBound, "natural": Natural}
