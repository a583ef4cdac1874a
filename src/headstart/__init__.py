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

from importlib import import_module
from typing import TYPE_CHECKING

from headstart import models
from headstart.convert import bayesianize
from headstart.errors import HeadstartError
from headstart.fitting import History, fit
from headstart.inference import SVI, Inference, MCDropout, NoisyKFAC
from headstart.initializers import INITIALIZERS, InitReport, initialize_
from headstart.layers import Bayesian, bayesian_layers, inherit_, kl
from headstart.likelihoods import Bernoulli, Categorical, Gaussian, Heteroscedastic, Likelihood, Poisson
from headstart.objective import Nelbo, nelbo
from headstart.passes import draw, drawing
from headstart.persistence import load, save
from headstart.posteriors import POSTERIORS, Dropout, FullCovariance, LowRank, MatrixNormal, MeanField
from headstart.predictive import Predictive, evaluate, predict
from headstart.training import Step, steps

if TYPE_CHECKING:
    from headstart import estimators as estimators
else:

    def __getattr__(name: str) -> object:  # scikit-learn is imported by those who use it: it takes a second
        if name == "estimators":
            return import_module("headstart.estimators")
        raise AttributeError(f"module 'headstart' has no attribute {name!r}")


__all__ = [
    "INITIALIZERS",
    "POSTERIORS",
    "SVI",
    "Bayesian",
    "Bernoulli",
    "Categorical",
    "Dropout",
    "FullCovariance",
    "Gaussian",
    "HeadstartError",
    "Heteroscedastic",
    "History",
    "Inference",
    "InitReport",
    "Likelihood",
    "LowRank",
    "MCDropout",
    "NoisyKFAC",
    "MatrixNormal",
    "MeanField",
    "Nelbo",
    "Poisson",
    "Predictive",
    "Step",
    "bayesian_layers",
    "bayesianize",
    "draw",
    "drawing",
    "evaluate",
    "fit",
    "inherit_",
    "initialize_",
    "kl",
    "load",
    "models",
    "nelbo",
    "predict",
    "save",
    "steps",
]
