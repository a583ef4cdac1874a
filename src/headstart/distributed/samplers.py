"""Loaders whose rows were sharded before: by torch's DistributedSampler, or the user."""

from __future__ import annotations

from typing import Any


def is_sharded(data: Any) -> bool:
    """Whether each rank reads rows of its own from `data`."""
    by_sampler = getattr(distributed_sampler(data), "num_replicas", 1) > 1
    return getattr(data, "is_sharded", False) or by_sampler


def distributed_sampler(data: Any) -> Any:
    """The DistributedSampler of a loader: its own, or that of its batches; None without one."""
    for sampler in (
        getattr(data, "sampler", None),
        getattr(getattr(data, "batch_sampler", None), "sampler", None),
    ):
        if hasattr(sampler, "num_replicas"):
            return sampler
    return None
