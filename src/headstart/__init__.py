"""headstart: deep networks that know what they do not know.

Example:
    >>> import torch, headstart as hs
    >>> x = torch.linspace(-2, 2, 200).unsqueeze(1)
    >>> model, lik = hs.bayesianize(hs.models.create("mlp-1x50", 1, 1)), hs.Gaussian()
    >>> report = hs.initialize_(model, "iblm", lik, (x, x.sin()))
    >>> history = hs.fit(model, lik, (x, x.sin()), steps=20, progress=False, seed=0)
    >>> hs.predict(model, lik, x[:3], seed=0).std.shape
    torch.Size([3, 1])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headstart import deprecated

if TYPE_CHECKING:
    from headstart import estimators as estimators
    from headstart import models
    from headstart.batching import Collated
    from headstart.errors import HeadstartError
    from headstart.inference import SVI, Inference, MCDropout, NoisyKFAC
    from headstart.initializers import INITIALIZERS, InitReport, initialize_
    from headstart.likelihoods import (
        Bernoulli,
        Categorical,
        CensoredGaussian,
        Gaussian,
        Heteroscedastic,
        Joint,
        Likelihood,
        MixtureDensity,
        MultiLabel,
        NegativeBinomial,
        Ordinal,
        PerPosition,
        Poisson,
        Power,
        StudentT,
        Weighted,
        register_likelihood,
    )
    from headstart.metrics import register_metric
    from headstart.nested import whole
    from headstart.network.convert import bayesianize
    from headstart.network.forward import draw, drawing
    from headstart.network.frozen import freeze, mean_network
    from headstart.network.layer import Bayesian, bayesian_layers, inherit_, kl
    from headstart.network.members import member
    from headstart.network.moment_network import moment_network
    from headstart.objective import Nelbo, nelbo
    from headstart.posteriors import (
        POSTERIORS,
        Dropout,
        FullCovariance,
        LowRank,
        MatrixNormal,
        MeanField,
        Posterior,
        register_posterior,
    )
    from headstart.predictive import Predictive, evaluate, predict
    from headstart.storage.model import load, save
    from headstart.training.conditional import Conditioned, condition
    from headstart.training.evidence import Evidence, evidence
    from headstart.training.fit import fit
    from headstart.training.history import History, Step
    from headstart.training.leverage import LeverageFlag, leverage
    from headstart.training.loop import steps
    from headstart.training.refine import RefineReport, refine_

__all__ = [
    "INITIALIZERS",
    "POSTERIORS",
    "SVI",
    "Bayesian",
    "Bernoulli",
    "Categorical",
    "CensoredGaussian",
    "Collated",
    "Conditioned",
    "Dropout",
    "Evidence",
    "FullCovariance",
    "Gaussian",
    "HeadstartError",
    "Heteroscedastic",
    "History",
    "Inference",
    "InitReport",
    "Joint",
    "LeverageFlag",
    "Likelihood",
    "LowRank",
    "MCDropout",
    "NoisyKFAC",
    "MatrixNormal",
    "MeanField",
    "MixtureDensity",
    "MultiLabel",
    "NegativeBinomial",
    "Nelbo",
    "Ordinal",
    "PerPosition",
    "Poisson",
    "Power",
    "Posterior",
    "Predictive",
    "RefineReport",
    "Step",
    "StudentT",
    "Weighted",
    "bayesian_layers",
    "bayesianize",
    "condition",
    "draw",
    "drawing",
    "evaluate",
    "evidence",
    "fit",
    "freeze",
    "inherit_",
    "initialize_",
    "kl",
    "leverage",
    "load",
    "mean_network",
    "member",
    "models",
    "moment_network",
    "nelbo",
    "predict",
    "refine_",
    "register_likelihood",
    "register_metric",
    "register_posterior",
    "save",
    "steps",
    "whole",
]

_HOMES = {
    "nested": ("whole",),
    "batching": ("Collated",),
    "network.convert": ("bayesianize",),
    "errors": ("HeadstartError",),
    "training.conditional": ("Conditioned", "condition"),
    "training.evidence": ("Evidence", "evidence"),
    "training.fit": ("fit",),
    "training.history": ("History", "Step"),
    "inference": ("SVI", "Inference", "MCDropout", "NoisyKFAC"),
    "initializers": ("INITIALIZERS", "InitReport", "initialize_"),
    "network.layer": ("Bayesian", "bayesian_layers", "inherit_", "kl"),
    "likelihoods": (
        "Bernoulli",
        "Categorical",
        "CensoredGaussian",
        "Gaussian",
        "Heteroscedastic",
        "Joint",
        "Likelihood",
        "MixtureDensity",
        "MultiLabel",
        "NegativeBinomial",
        "Ordinal",
        "PerPosition",
        "Poisson",
        "Power",
        "StudentT",
        "Weighted",
        "register_likelihood",
    ),
    "metrics": ("register_metric",),
    "objective": ("Nelbo", "nelbo"),
    "network.forward": ("draw", "drawing"),
    "network.frozen": ("freeze", "mean_network"),
    "network.members": ("member",),
    "network.moment_network": ("moment_network",),
    "storage.model": ("load", "save"),
    "posteriors": (
        "POSTERIORS",
        "Dropout",
        "FullCovariance",
        "LowRank",
        "MatrixNormal",
        "MeanField",
        "Posterior",
        "register_posterior",
    ),
    "predictive": ("Predictive", "evaluate", "predict"),
    "training.leverage": ("LeverageFlag", "leverage"),
    "training.loop": ("steps",),
    "training.refine": ("RefineReport", "refine_"),
}
"""Which module defines which public names: the imports above, for the interpreter."""
__version__: str
"""Read from the metadata of the installed package, when it is first asked for."""
_HOME = {name: module for module, names in _HOMES.items() for name in names}

deprecated.install()

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """A public name or a submodule, imported when it is first used.

        Torch takes seconds to import, and `headstart --help` must not wait for it.
        """
        from importlib import import_module, metadata
        from importlib.util import find_spec

        if name == "__version__":
            return metadata.version("headstart")
        if name in _HOME:
            value = getattr(import_module(f"headstart.{_HOME[name]}"), name)
            globals()[name] = value
            return value
        if find_spec(f"headstart.{name}"):
            return import_module(f"headstart.{name}")
        raise AttributeError(f"module 'headstart' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
