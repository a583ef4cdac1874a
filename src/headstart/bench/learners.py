"""The table of libraries of time to quality: how each learns, and the settings that are tried."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from headstart.bench.deterministic_learners import (
    dropout_learner,
    ensemble_learner,
    laplace_learner,
    vbll_learner,
)
from headstart.bench.tree_learners import catboost_learner, ngboost_learner, quantile_learner
from headstart.bench.variational_learners import (
    LearnerSettings,
    MakeLearner,
    bayesian_torch_learner,
    blitz_learner,
    headstart_learner,
    ivon_learner,
    pyro_learner,
    torch_blue_learner,
    torchbnn_learner,
)

OURS = "headstart"
_LAPLACE = (
    "laplace-torch",
    "asdfghjkl==0.1a4",
    "curvlinops-for-pytorch",
    "backpack-for-pytorch",
    "torchmetrics",
    "lightning-utilities",
    "unfoldNd",
    "einconv",
    "linear_operator",
    "jaxtyping",
    "wadler-lindig",
    "einops",
    "opt_einsum",
    "tqdm",
)
_NGBOOST = (
    "ngboost",
    "lifelines",
    "autograd",
    "autograd-gamma",
    "formulaic",
    "interface-meta",
    "wrapt",
    "narwhals",
    "tqdm",
)
"""With what they import of their dependencies, and without torchvision."""
_ADAM_RATES: tuple[LearnerSettings, ...] = ({"rate": 1e-3}, {"rate": 3e-3}, {"rate": 1e-2})


@dataclass(frozen=True)
class QualityMethod:
    """A library in the comparison.

    Args:
        make: From a task, its rows and settings to a learner.
        settings: Three settings to try, those of its documentation first.
        module: The module to import; the clock does not run meanwhile.
        packages: What pip installs, without dependencies.
        kind: `variational`, `deterministic` (a net whose body is) or `trees`, which learn tables.
    """

    make: MakeLearner
    settings: tuple[LearnerSettings, ...]
    module: str = "torch"
    packages: tuple[str, ...] = ()
    kind: str = "variational"

    @property
    def installed(self) -> bool:
        return find_spec(self.module.partition(".")[0]) is not None


QUALITY_METHODS = {
    OURS: QualityMethod(headstart_learner, ({}, {"samples": 4}, {"samples": 16})),
    "bayesian-torch": QualityMethod(
        bayesian_torch_learner,
        (
            {"rate": 1e-3, "kl": "batch"},
            {"rate": 1e-3, "kl": "rows"},
            {"rate": 1e-2, "kl": "rows"},
        ),
        "bayesian_torch.models.dnn_to_bnn",
        ("bayesian-torch",),
    ),
    "torchbnn": QualityMethod(
        torchbnn_learner,
        ({"rate": 1e-2, "kl": "mean"}, {"rate": 1e-3, "kl": "mean"}, {"rate": 1e-3, "kl": "rows"}),
        "torchbnn",
        ("torchbnn",),
    ),
    "torch-blue": QualityMethod(
        torch_blue_learner,
        (
            {"rate": 1e-3, "samples": 10},
            {"rate": 1e-2, "samples": 10},
            {"rate": 1e-2, "samples": 2},
        ),
        "torch_blue.vi",
        ("torch-blue",),
    ),
    "blitz": QualityMethod(
        blitz_learner,
        (
            {"rate": 1e-2, "samples": 3},
            {"rate": 1e-3, "samples": 3},
            {"rate": 1e-2, "samples": 1},
        ),
        "blitz.modules",
        ("blitz-bayesian-pytorch",),
    ),
    "pyro": QualityMethod(
        pyro_learner,
        (
            {"rate": 3e-2, "start": "feasible"},
            {"rate": 1e-2, "start": "sample"},
            {"rate": 3e-3, "start": "sample"},
        ),
        "pyro.infer.autoguide",
        ("pyro-ppl", "pyro-api", "opt_einsum", "tqdm"),
    ),
    "ivon": QualityMethod(
        ivon_learner,
        ({"lr": 0.1}, {"lr": 0.03}, {"lr": 0.1, "hess_init": 0.1}),
        "ivon",
        ("ivon-opt",),
    ),
    "MC dropout": QualityMethod(
        dropout_learner,
        ({"rate": 1e-3, "p": 0.1}, {"rate": 3e-3, "p": 0.1}, {"rate": 1e-3, "p": 0.3}),
        kind="deterministic",
    ),
    "deep ensemble": QualityMethod(ensemble_learner, _ADAM_RATES, kind="deterministic"),
    "laplace-torch, last layer": QualityMethod(
        laplace_learner,
        tuple({**each, "weights": "last_layer"} for each in _ADAM_RATES),
        "laplace",
        _LAPLACE,
        kind="deterministic",
    ),
    "laplace-torch, Kronecker": QualityMethod(
        laplace_learner,
        tuple({**each, "weights": "all"} for each in _ADAM_RATES),
        "laplace",
        _LAPLACE,
        kind="deterministic",
    ),
    "vbll": QualityMethod(vbll_learner, _ADAM_RATES, "vbll", ("vbll",), kind="deterministic"),
    "NGBoost": QualityMethod(
        ngboost_learner,
        ({}, {"learning_rate": 0.03}, {"learning_rate": 0.1}),
        "ngboost",
        _NGBOOST,
        kind="trees",
    ),
    "CatBoost": QualityMethod(
        catboost_learner,
        ({}, {"learning_rate": 0.1}, {"learning_rate": 0.1, "depth": 8}),
        "catboost",
        ("catboost", "graphviz", "plotly"),
        kind="trees",
    ),
    "HistGradientBoosting": QualityMethod(
        quantile_learner,
        ({}, {"learning_rate": 0.05}, {"learning_rate": 0.2}),
        "sklearn.ensemble",
        kind="trees",
    ),
}
