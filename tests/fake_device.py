"""A device that this machine does not have, for tests: other memory, its own numbers, and costs.

Tensors on it hold their numbers in a tensor of the CPU and say that they are elsewhere. Within
`FakeDevice` torch refuses what such a device would refuse, tensors of two devices in one operation
and, if asked, numbers in double precision, and counts what makes the host wait for the device.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from headstart.kernels import random_state
from headstart.kernels.random_state import CPU

DEVICE = torch.device("lazy", 0)
"""A kind of device that torch knows and no machine of ours has."""
aten = torch.ops.aten
WAITING = {
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.equal.default,
    aten.is_nonzero.default,
    aten.masked_select.default,
    aten.unique_dim.default,
    aten._unique2.default,
}
"""Operations whose result the host must see."""


class FakeTensor(Tensor):
    """A tensor that says it lies on the device."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> FakeTensor:
        made = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
            requires_grad=False,
        )
        made.inner = inner
        return made

    def __repr__(self) -> str:
        return f"FakeTensor({self.inner})"

    def tolist(self) -> Any:
        """The numbers, which the host must wait for."""
        return self.cpu().tolist()

    def as_strided_(self, size: Any, stride: Any) -> Tensor:
        """Another tensor in place of this one, whose shape cannot change."""
        return FakeTensor(self.inner.as_strided_(size, stride))

    def new_tensor(self, data: Any, **options: Any) -> Tensor:
        """Numbers that come from the host."""
        return torch.tensor(data, dtype=options.get("dtype", self.dtype)).to(DEVICE)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} of the device's tensors outside of FakeDevice")

    __torch_function__ = torch._C._disabled_torch_function_impl


def _is_lazy(device: Any) -> bool:
    return device is not None and torch.device(device).type == DEVICE.type


class FakeDevice(TorchDispatchMode):
    """Within, the device exists.

    Args:
        float64: Whether it has double precision.
    """

    def __init__(self, float64: bool = True) -> None:
        super().__init__()
        self.float64, self.waits = float64, Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        given = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        fakes = [each for each in given if isinstance(each, FakeTensor)]
        target = kwargs.get("device")
        copies = func in (aten._to_copy.default, aten.copy_.default)
        if fakes and not copies:
            others = [each for each in given if not isinstance(each, FakeTensor) and each.ndim]
            indexes = func in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)
            if others and not indexes:
                raise RuntimeError(f"Expected all tensors to be on the same device: {func}")
        self._count(func, args, fakes, target)
        on_device = _is_lazy(target) if target is not None else bool(fakes)
        if func is aten.copy_.default:
            on_device = isinstance(args[0], FakeTensor)
        if target is not None and _is_lazy(target):
            kwargs["device"] = torch.device("cpu")
        inner_args, inner_kwargs = pytree.tree_map_only(
            FakeTensor, lambda each: each.inner, (args, kwargs)
        )
        found = func(*inner_args, **inner_kwargs)
        if not on_device:
            return found
        return self._placed(func, args, inner_args, found)

    def _count(self, func: Any, args: Any, fakes: list[FakeTensor], target: Any) -> None:
        away = func is aten._to_copy.default and target is not None and not _is_lazy(target)
        away = away or (func is aten.copy_.default and not isinstance(args[0], FakeTensor))
        masks = func is aten.index.Tensor and any(
            each is not None and each.dtype in (torch.bool, torch.uint8) for each in args[1]
        )
        if fakes and (func in WAITING or away or masks):
            self.waits[str(func)] += 1

    def _placed(self, func: Any, args: Any, inner_args: Any, found: Any) -> Any:
        known = {
            id(mine): outer
            for outer, mine in zip(
                pytree.tree_leaves(args), pytree.tree_leaves(inner_args), strict=True
            )
            if isinstance(outer, FakeTensor)
        }

        def place(each: Tensor) -> Tensor:
            # In place: the same tensor comes back.
            if id(each) in known:
                return known[id(each)]
            if each.dtype == torch.float64 and not self.float64:
                raise TypeError(f"The device has no float64: {func}")
            return FakeTensor(each)

        return pytree.tree_map_only(Tensor, place, found)


def _made_then_copied(make: Any, data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    if device is None or isinstance(data, FakeTensor):
        return make(data, dtype=dtype)  # type: ignore[no-any-return]
    return make(data, dtype=dtype).to(device)  # type: ignore[no-any-return]


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random numbers of the device are those of the CPU; what torch makes of lists is copied."""
    for name in ("tensor", "as_tensor"):
        monkeypatch.setattr(torch, name, partial(_made_then_copied, getattr(torch, name)))
    plain = torch.autocast
    monkeypatch.setattr(
        torch,
        "autocast",
        lambda kind, **options: nullcontext() if kind == DEVICE.type else plain(kind, **options),
    )
    module = SimpleNamespace(
        get_rng_state=lambda device: torch.get_rng_state(),
        set_rng_state=lambda state, device: torch.set_rng_state(state),
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    seeded = random_state.first_state
    monkeypatch.setattr(random_state, "first_state", lambda device, seed: seeded(CPU, seed))
