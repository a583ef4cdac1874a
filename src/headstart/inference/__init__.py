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
    "make_inference",
]


def make_inference(spec: str | Inference) -> Inference:
    """An inference method by name, or the caller's own."""
    if not isinstance(spec, str):
        return spec
    if spec not in INFERENCE:
        raise unknown("inference method", spec, INFERENCE)
    return INFERENCE[spec]()
