"""Adam for steps so short that its bookkeeping shows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import optimizer

ALL_HOOKS = optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks
"""What is called around every optimizer's steps."""


class Adam(torch.optim.Adam):
    """torch's fused Adam, its state and its numbers; on a CPU a step goes straight to the kernel.

    Example:
        >>> p = torch.nn.Parameter(torch.ones(2))
        >>> adam = Adam([p], lr=0.1)
        >>> for _ in range(2):
        ...     p.square().sum().backward()
        ...     adam.step()
        ...     adam.zero_grad()
        >>> p.grad, torch.allclose(p, torch.full((2,), 0.8), atol=1e-3)
        (None, True)
    """

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr=lr, fused=True)

    def zero_grad(self, set_to_none: bool = True) -> None:
        if not set_to_none:
            super().zero_grad(set_to_none)
            return
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def step(self, closure: Any = None) -> Any:
        groups = (
            None if closure is not None or self._is_watched() else [self._plain(group) for group in self.param_groups]
        )
        if groups is None or None in groups:
            return super().step(closure)
        with torch.no_grad():
            for group, plain in zip(self.param_groups, groups, strict=True):
                if plain:
                    self._learn(group, *zip(*plain, strict=True))
        return None

    step.hooked = True  # type: ignore[attr-defined]  # torch would wrap it for its profiler

    def _plain(self, group: dict[str, Any]) -> list[tuple[Tensor, ...]] | None:
        """What a kernel needs of each parameter that has a gradient; None where one is not for it, or not yet: the first step makes the state."""
        found: list[tuple[Tensor, ...]] = []
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            state = self.state.get(parameter)
            if not state or grad.device.type != "cpu" or grad.is_sparse:
                return None
            found.append((parameter, grad, state["exp_avg"], state["exp_avg_sq"], state["step"]))
        return found

    def _learn(
        self,
        group: dict[str, Any],
        parameters: tuple[Tensor, ...],
        grads: tuple[Tensor, ...],
        averages: tuple[Tensor, ...],
        squares: tuple[Tensor, ...],
        counts: tuple[Tensor, ...],
    ) -> None:
        torch._foreach_add_(counts, [torch.ones(())] * len(counts))  # a number would be made a tensor for each
        torch._fused_adam_(
            parameters,
            grads,
            averages,
            squares,
            [],
            counts,
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=group["maximize"],
        )

    def _is_watched(self) -> bool:
        """Whether somebody scales gradients, has hooked themselves in, or wants another Adam."""
        hooks = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks, *ALL_HOOKS
        other = any(group["amsgrad"] or group.get("decoupled_weight_decay") for group in self.param_groups)
        return other or any(hooks) or getattr(self, "found_inf", None) is not None
