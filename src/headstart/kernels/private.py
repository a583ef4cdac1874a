"""The private functions of torch that make short steps shorter: no other file names any.

Each is tried once, when this file is imported. Where this torch does not have it, or takes other
arguments, the `public_` function of the same name stands in: the same numbers, more slowly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer, optimizer

Chosen = TypeVar("Chosen", bound=Callable[..., Any])
Tensors = tuple[Tensor, ...] | list[Tensor]


def _choose(private: Chosen, public: Chosen, works: Callable[[Chosen], bool]) -> Chosen:
    try:
        return private if works(private) else public
    except Exception:
        # A torch that we have not seen may raise anything.
        return public


def _trial_zeros(size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.float32, device="cpu")


def _answers(ask: Callable[[], bool]) -> bool:
    return isinstance(ask(), bool)


# Whether autocast may be at work on some device: whoever hears yes asks for the device at hand.


def _autocast_anywhere() -> bool:
    return torch._C._is_any_autocast_enabled()


def public_autocast_anywhere() -> bool:
    return True


autocast_anywhere = _choose(_autocast_anywhere, public_autocast_anywhere, _answers)


# Whether one of torch.func's transforms may be at work: whoever hears yes takes plain expressions,
# which are right either way.


def _transforming() -> bool:
    return torch._C._are_functorch_transforms_active()


def public_transforming() -> bool:
    return True


transforming = _choose(_transforming, public_transforming, _answers)


# Whether somebody may have hooked themselves into the passes of a module, or of all modules.


def _has_hooks(module: nn.Module) -> bool:
    own = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    back = module._backward_hooks or module._backward_pre_hooks
    return bool(own or back or nn.modules.module._has_any_global_hook())


def public_has_hooks(module: nn.Module) -> bool:
    names = {**vars(nn.modules.module), **vars(module)}
    return any((k.endswith("hooks") and v) or k == "forward" for k, v in names.items())


has_hooks = _choose(_has_hooks, public_has_hooks, lambda ask: _answers(lambda: ask(nn.Module())))


# An autograd function's `apply`; the private one does not search for torch.func's transforms, and
# is for where none is at work.


class _Negative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return -x


def _apply(function: type[torch.autograd.Function], *inputs: Any) -> Any:
    return super(torch.autograd.Function, function).apply(*inputs)  # type: ignore[misc]


def public_apply(function: type[torch.autograd.Function], *inputs: Any) -> Any:
    return function.apply(*inputs)


apply = _choose(_apply, public_apply, lambda run: float(run(_Negative, _trial_zeros(1) + 1)) == -1)


# Whether a tensor that was made of `whole`, and has all its numbers, lies in the same memory.


def _is_view(part: Tensor, whole: Tensor) -> bool:
    return part._is_view()


def public_is_view(part: Tensor, whole: Tensor) -> bool:
    return part.data_ptr() == whole.data_ptr()


def _tells_views(ask: Callable[[Tensor, Tensor], bool]) -> bool:
    whole = _trial_zeros(2)
    return ask(whole.view(2, 1), whole) and not ask(whole.clone(), whole)


is_view = _choose(_is_view, public_is_view, _tells_views)


# The modules that a module holds itself, by name, and its own parameters.


def _children(module: nn.Module) -> Iterable[tuple[str, nn.Module | None]]:
    return module._modules.items()


def public_children(module: nn.Module) -> Iterable[tuple[str, nn.Module | None]]:
    return module.named_children()


def _own_parameters(module: nn.Module) -> Sequence[Tensor | None]:
    return list(module._parameters.values())


def public_own_parameters(module: nn.Module) -> Sequence[Tensor | None]:
    return list(module.parameters(recurse=False))


def _finds_the_child(children: Callable[[nn.Module], Iterable[tuple[str, Any]]]) -> bool:
    holder, child = nn.Module(), nn.Module()
    holder.add_module("child", child)
    return list(children(holder)) == [("child", child)]


def _finds_the_parameter(own: Callable[[nn.Module], Sequence[Tensor | None]]) -> bool:
    holder, parameter = nn.Module(), nn.Parameter(_trial_zeros(1))
    holder.register_parameter("parameter", parameter)
    (found,) = own(holder)
    return found is parameter


children = _choose(_children, public_children, _finds_the_child)
own_parameters = _choose(_own_parameters, public_own_parameters, _finds_the_parameter)


# Adam's kernel, and whether a step may go straight to it: not where somebody has hooked themselves
# into the optimizer's steps, and not where there is no such kernel. Torch's own step is public.


def adam_kernel(
    group: Mapping[str, Any],
    parameters: Tensors,
    grads: Tensors,
    averages: Tensors,
    squares: Tensors,
    counts: Tensors,
) -> None:
    """One step of Adam on a CPU, where `adam_is_direct`; the settings are those of a group."""
    # A number in place of the tensors of ones would be made a tensor for each.
    torch._foreach_add_(counts, [torch.ones((), device="cpu")] * len(counts))
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


def _adam_is_direct(adam: Optimizer) -> bool:
    # Where torch keeps hooks elsewhere there may be one: that can be asked of a living optimizer
    # only, and to make one at import takes more than a second.
    return not (
        getattr(adam, "_optimizer_step_pre_hooks", True)
        or getattr(adam, "_optimizer_step_post_hooks", True)
        or getattr(optimizer, "_global_optimizer_pre_hooks", True)
        or getattr(optimizer, "_global_optimizer_post_hooks", True)
    )


def public_adam_is_direct(adam: Optimizer) -> bool:
    return False


TRIAL_SETTINGS = {
    "lr": 0.5,
    "betas": (0.5, 0.5),
    "weight_decay": 0.0,
    "eps": 0.0,
    "maximize": False,
}
"""With these a first step along a gradient of 1 is by a half."""


def _has_the_kernel(is_direct: Callable[[Optimizer], bool]) -> bool:
    parameter, count = _trial_zeros(1), _trial_zeros(1).squeeze()
    adam_kernel(
        TRIAL_SETTINGS,
        [parameter],
        [_trial_zeros(1) + 1],
        [_trial_zeros(1)],
        [_trial_zeros(1)],
        [count],
    )
    return float(parameter) == -0.5 and float(count) == 1


adam_is_direct = _choose(_adam_is_direct, public_adam_is_direct, _has_the_kernel)


# A step along gradients over the root mean square of gradients so far: Adam without momentum.


def _rms_step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    squares: Sequence[Tensor],
    counts: Sequence[Tensor],
    rate: float,
    decay: float,
    eps: float,
) -> None:
    # The kernel is for a CPU, and walks raw memory.
    if any(
        p.device.type != "cpu" or not p.stride() == g.stride() == v.stride()
        for p, g, v in zip(parameters, gradients, squares, strict=True)
    ):
        public_rms_step(parameters, gradients, squares, counts, rate, decay, eps)
        return
    settings = {"lr": rate, "betas": (0.0, decay), "eps": eps, "weight_decay": 0.0}
    gradients = list(gradients)
    # Without momentum the average of gradients is the gradient: the kernel writes it over itself.
    adam_kernel(
        {**settings, "maximize": False},
        list(parameters),
        gradients,
        gradients,
        list(squares),
        list(counts),
    )


def public_rms_step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    squares: Sequence[Tensor],
    counts: Sequence[Tensor],
    rate: float,
    decay: float,
    eps: float,
) -> None:
    """`v ← decay v + (1 − decay) g²`, `p ← p − rate g / (√(v / (1 − decayᵗ)) + eps)`, in place.

    Args:
        parameters: p.
        gradients: g, which stay as they are.
        squares: v.
        counts: t, which are counted up before.
        rate: the length of the step.
        decay: of the squares.
        eps: what keeps the step finite.
    """
    for p, g, v, count in zip(parameters, gradients, squares, counts, strict=True):
        count += 1
        v.mul_(decay).addcmul_(g, g, value=1 - decay)
        p.addcdiv_(g, (v / (1 - decay ** float(count))).sqrt_().add_(eps), value=-rate)


def _steps_by_a_half(step: Callable[..., None]) -> bool:
    parameter, gradient, squares = _trial_zeros(1), _trial_zeros(1) + 3, _trial_zeros(1)
    count = _trial_zeros(1).squeeze()
    step([parameter], [gradient], [squares], [count], 0.5, 0.75, 0.0)
    found = [float(part) for part in (parameter, gradient, squares, count)]
    return found == [-0.5, 3.0, 2.25, 1.0]


rms_step = _choose(_rms_step, public_rms_step, _steps_by_a_half)


# All of some tensors a part of the way to others.


def _lerp_all(tensors: list[Tensor], ends: list[Tensor], fraction: float) -> None:
    if tensors:
        torch._foreach_lerp_(tensors, ends, fraction)


def public_lerp_all(tensors: list[Tensor], ends: list[Tensor], fraction: float) -> None:
    """`t ← t + fraction (e − t)` for each pair, in place."""
    for tensor, end in zip(tensors, ends, strict=True):
        tensor.lerp_(end, fraction)


def _goes_half_way(lerp: Callable[..., None]) -> bool:
    tensor = _trial_zeros(1)
    lerp([tensor], [_trial_zeros(1) + 1], 0.5)
    return float(tensor) == 0.5


lerp_all = _choose(_lerp_all, public_lerp_all, _goes_half_way)


# Optimizers keep out of the way of torch's compiler, which they import for that: more than a
# second, in a process that compiles nothing.
_KEPT_OUT = "__dynamo_disable"


@contextmanager
def sparing_compiler() -> Iterator[None]:
    """Within, optimizers of ours do not import torch's compiler; where torch has changed, they do.

    A step in it must not be compiled.
    """
    spared = []
    for method in vars(Optimizer).values() if "torch._dynamo" not in sys.modules else ():
        plain = getattr(method, "__wrapped__", None)
        from_compile = getattr(method, "__globals__", {}).get("__name__") == "torch._compile"
        if plain is not None and from_compile and not hasattr(plain, _KEPT_OUT):
            setattr(plain, _KEPT_OUT, plain)
            spared.append(plain)
    try:
        yield
    finally:
        for plain in spared:
            delattr(plain, _KEPT_OUT)
