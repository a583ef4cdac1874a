"""Inference methods by name."""

from __future__ import annotations

from headstart.errors import unknown
from headstart.inference.base import PRECISIONS, Inference, OptimizerChoice
from headstart.inference.mc_dropout import MCDropout
from headstart.inference.noisy_kfac import NoisyKFAC
from headstart.inference.svi import SVI

INFERENCE: dict[str, type[Inference]] = {
    method.name: method for method in (SVI, MCDropout, NoisyKFAC)
}

__all__ = [
    "INFERENCE",
    "PRECISIONS",
    "SVI",
    "MCDropout",
    "Inference",
    "NoisyKFAC",
    "OptimizerChoice",
    "is_own",
    "make_inference",
]


def make_inference(spec: str | Inference) -> Inference:
    """An inference method by name, or the caller's own."""
    if not isinstance(spec, str):
        return spec
    if spec not in INFERENCE:
        raise unknown("inference method", spec, INFERENCE)
    return INFERENCE[spec]()


def is_own(method: Inference) -> bool:
    """Whether a method is the caller's own, whose `update` has labels on the model's device.

    Ours check labels where they lie before they copy them: the host need not wait for the device.

    Args:
        method: any.
    """
    return type(method) not in INFERENCE.values()
