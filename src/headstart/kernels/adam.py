"""Adam for steps so short that its bookkeeping shows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headstart.kernels import private as torch_private


class DropsGradients(torch.optim.Optimizer):
    """An optimizer that forgets gradients without what torch does around that."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients.

        Args:
            set_to_none: Whether they are dropped, not filled with zeros.
        """
        if not set_to_none:
            super().zero_grad(set_to_none)
            return
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None


class Adam(DropsGradients, torch.optim.Adam):
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

    def step(self, closure: Any = None) -> Any:
        groups = (
            None
            if closure is not None or self._needs_torch()
            else [self._plain(group) for group in self.param_groups]
        )
        if groups is None or None in groups:
            return self._torchs_step(closure)
        with torch.no_grad():
            for group, plain in zip(self.param_groups, groups, strict=True):
                if plain:
                    torch_private.adam_kernel(group, *zip(*plain, strict=True))
        return None

    step.hooked = True  # type: ignore[attr-defined]  # torch would wrap it for its profiler

    def _plain(self, group: dict[str, Any]) -> list[tuple[Tensor, ...]] | None:
        """What a kernel needs of each parameter that has a gradient.

        None where one is not for the kernel, or not yet: the first step makes the state.
        """
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

    def _torchs_step(self, closure: Any) -> Any:
        """The step of torch, with the hooks that are called around it."""
        step = torch.optim.Adam.step
        # Torch adds them to a class when it makes the first of it, which is not this one.
        if not hasattr(step, "hooked"):
            step = self.profile_hook_step(step)
        return step(self, closure)

    def _needs_torch(self) -> bool:
        """Whether somebody scales gradients, has hooked themselves in, or wants another Adam."""
        other = any(
            group["amsgrad"] or group.get("decoupled_weight_decay") for group in self.param_groups
        )
        scaled = getattr(self, "found_inf", None) is not None
        return other or scaled or not torch_private.adam_is_direct(self)
