"""Adam for steps so short that its bookkeeping shows."""

from __future__ import annotations

from typing import Any

import torch


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
        for parameter in self._parameters():
            parameter.grad = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        if closure is not None or not all(map(self._is_plain, self._parameters())) or self._is_watched():
            return super().step(closure)  # the first step makes the state
        for group in self.param_groups:
            learned = [p for p in group["params"] if p.grad is not None]
            if not learned:
                continue
            states = [self.state[p] for p in learned]
            counts = [state["step"] for state in states]
            torch._foreach_add_(counts, 1)
            torch._fused_adam_(
                learned,
                [p.grad for p in learned],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
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
        return None

    step.hooked = True  # type: ignore[attr-defined]  # torch would wrap it for its profiler

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [p for group in self.param_groups for p in group["params"]]

    def _is_plain(self, parameter: torch.nn.Parameter) -> bool:
        grad = parameter.grad
        return grad is None or (grad.device.type == "cpu" and not grad.is_sparse and bool(self.state[parameter]))

    def _is_watched(self) -> bool:
        """Whether somebody scales gradients, has hooked themselves in, or wants another Adam."""
        hooks = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks
        other = any(group["amsgrad"] for group in self.param_groups)
        return other or any(hooks) or getattr(self, "found_inf", None) is not None
