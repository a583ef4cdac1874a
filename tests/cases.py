"""The table of cases: layers × posteriors × likelihoods × initializers.

Every test that must hold for all of a kind reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import headstart as hs
from headstart.linalg.gaussians import Primal, UnitGaussian


class LayerCase(NamedTuple):
    """A stock layer and the shape of an input for it (batch apart)."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]


LAYERS: dict[str, LayerCase] = {
    "linear": LayerCase(lambda: nn.Linear(5, 3), (5,)),
    "linear-no-bias": LayerCase(lambda: nn.Linear(4, 2, bias=False), (4,)),
    "conv1d": LayerCase(lambda: nn.Conv1d(2, 3, 3, stride=2, padding=1), (2, 9)),
    "conv1d-same": LayerCase(lambda: nn.Conv1d(2, 3, 3, padding="same", dilation=2), (2, 7)),
    "conv2d": LayerCase(lambda: nn.Conv2d(2, 4, (3, 2), stride=(1, 2), padding=(1, 0)), (2, 5, 6)),
    "conv2d-groups": LayerCase(lambda: nn.Conv2d(4, 6, (2, 3), groups=2, bias=False), (4, 4, 5)),
    "conv2d-depthwise": LayerCase(lambda: nn.Conv2d(3, 6, 3, groups=3), (3, 5, 5)),
    "conv2d-dilated": LayerCase(lambda: nn.Conv2d(1, 2, (2, 3), dilation=(2, 1)), (1, 6, 6)),
    "conv2d-circular": LayerCase(
        lambda: nn.Conv2d(2, 2, 3, padding=(1, 2), padding_mode="circular"), (2, 4, 5)
    ),
    "conv2d-reflect": LayerCase(
        lambda: nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"), (2, 4, 5)
    ),
    "conv2d-replicate": LayerCase(
        lambda: nn.Conv2d(1, 2, 3, padding=(2, 1), padding_mode="replicate"), (1, 4, 4)
    ),
    "conv3d": LayerCase(lambda: nn.Conv3d(1, 2, (1, 2, 2), stride=(1, 1, 2)), (1, 2, 3, 4)),
    "conv_transpose1d": LayerCase(
        lambda: nn.ConvTranspose1d(2, 3, 3, stride=2, output_padding=1), (2, 4)
    ),
    "conv_transpose2d": LayerCase(
        lambda: nn.ConvTranspose2d(4, 6, (2, 3), stride=2, padding=(0, 1), groups=2), (4, 3, 3)
    ),
    "conv_transpose3d": LayerCase(
        lambda: nn.ConvTranspose3d(1, 2, 2, dilation=(1, 2, 1), bias=False), (1, 2, 2, 2)
    ),
}

POSTERIORS: dict[str, Any] = {
    "mean_field": "mean_field",
    "low_rank": "low_rank",
    "full_covariance": "full_covariance",
    "matrix_normal": "matrix_normal",
    "dropout": "dropout",
}
GAUSSIANS = [name for name in POSTERIORS if name != "dropout"]
"""The families that have a density."""

PRIORS: dict[str, Any] = {
    "fixed": 0.7,
    "fan-in": "fan-in",
    "learned": "learned",
    "learned-gradient": "learned-gradient",
}


class LikelihoodCase(NamedTuple):
    """A likelihood, the number of net outputs it wants, and labels for n rows."""

    make: Callable[[], hs.Likelihood]
    outputs: int
    labels: Callable[[int], Tensor]


LIKELIHOODS: dict[str, LikelihoodCase] = {
    "gaussian": LikelihoodCase(
        lambda: hs.Gaussian([0.3, 0.2], loc=[1.0, -2.0], scale=[2.0, 0.5]),
        2,
        lambda n: torch.randn(n, 2),
    ),
    "heteroscedastic": LikelihoodCase(
        lambda: hs.Heteroscedastic(0.3, loc=[1.0, -2.0], scale=[2.0, 0.5]),
        4,
        lambda n: torch.randn(n, 2),
    ),
    "bernoulli": LikelihoodCase(hs.Bernoulli, 1, lambda n: torch.randint(2, (n,))),
    "multi_label": LikelihoodCase(hs.MultiLabel, 3, lambda n: torch.randint(2, (n, 3))),
    "ordinal": LikelihoodCase(
        lambda: hs.Ordinal(4, cut_points=[-1.0, 0.5, 1.0]), 1, lambda n: torch.randint(4, (n,))
    ),
    "poisson": LikelihoodCase(hs.Poisson, 2, lambda n: torch.poisson(torch.rand(n, 2) * 4)),
    "negative_binomial": LikelihoodCase(
        lambda: hs.NegativeBinomial([0.5, 0.1]), 2, lambda n: torch.poisson(torch.rand(n, 2) * 4)
    ),
    "student_t": LikelihoodCase(
        lambda: hs.StudentT([0.3, 0.2], df=9.0, loc=[1.0, -2.0], scale=[2.0, 0.5]),
        2,
        lambda n: torch.randn(n, 2),
    ),
    "mixture_density": LikelihoodCase(
        lambda: hs.MixtureDensity(2, 0.3, loc=[1.0, -2.0], scale=[2.0, 0.5]),
        12,
        lambda n: torch.randn(n, 2),
    ),
    "power": LikelihoodCase(
        lambda: hs.Power(0.5, "heteroscedastic", {"noise_var": 0.3, "scale": [2.0, 0.5]}),
        4,
        lambda n: torch.rand(n, 2) + 0.1,
    ),
    "censored_gaussian": LikelihoodCase(
        lambda: hs.CensoredGaussian(-0.5, 1.0, [0.3, 0.2], loc=[0.5, -0.2], scale=[2.0, 0.5]),
        2,
        lambda n: torch.randn(n, 2).clamp(-0.5, 1.0),
    ),
    "categorical": LikelihoodCase(lambda: hs.Categorical(3), 3, lambda n: torch.randint(3, (n,))),
}

INITIALIZERS: dict[str, dict[str, Any]] = {
    "uninformative": {},
    "heuristic": {},
    "xavier": {},
    "orthogonal": {},
    "stock": {},
    "lsuv": {"rows": 64},
    "iblm": {"rows": 64},
    "iblm-paper": {"rows": 16},
    "pretrained": {"net": None},
    "laplace": {"rows": 32},
}


def layer(name: str, posterior: Any = "mean_field", prior: Any = 0.7) -> tuple[nn.Module, Tensor]:
    """A Bayesian layer of the table with a random posterior, and a batch of three inputs for it."""
    case = LAYERS[name]
    model = hs.bayesianize(
        case.make().to(torch.get_default_dtype()), posterior=posterior, prior=prior
    )
    scramble_(model)
    return model, torch.randn(3, *case.shape)


def scramble_(model: nn.Module, spread: float = 0.3) -> None:
    """Random values for every parameter of every posterior: nothing is zero or equal by chance."""
    with torch.no_grad():
        for bayesian in hs.bayesian_layers(model).values():
            for parameter in bayesian.posterior.parameters():
                parameter.add_(spread * torch.randn_like(parameter))


def random_gaussian(units: int, size: int) -> UnitGaussian:
    """A Gaussian with strong correlations, different for every unit."""
    rows = torch.randn(units, 2 * size, size) * torch.linspace(0.3, 2.0, size)
    return Primal(rows.mT @ rows + torch.eye(size) / 0.7, torch.randn(units, size))


def grouped(name: str) -> bool:
    """Whether a layer of the table has groups, which the matrix normal refuses."""
    return getattr(LAYERS[name].make(), "groups", 1) > 1


LAYER_POSTERIOR = [
    (layer, posterior)
    for layer in LAYERS
    for posterior in POSTERIORS
    if not (posterior == "matrix_normal" and grouped(layer))
]


class Residual(nn.Module):
    """A net whose input also goes around the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(x + self.first(x).relu())


def chain() -> nn.Sequential:
    """A small MLP."""
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


NETS: dict[str, Callable[[], nn.Module]] = {"chain": chain, "residual": Residual}
