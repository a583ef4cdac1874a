"""A training step of a case in each library: Adam on the negative evidence lower bound.

Other libraries draw once per forward pass, so their step is a loop over samples, as their
documentation has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.bench.cases import CLASSES, NUM_DATA, Case
from headstart.inference import SVI
from headstart.likelihoods import Categorical
from headstart.network.convert import bayesianize

TakeStep = Callable[[], float]
"""Take a step; its loss, each library's own."""
TORCH_ON_BATCH, TORCH_ON_SAMPLES = "torch, B rows", "torch, S·B rows"
"""Deterministic steps of a plain net, on the batch and on as many rows as the samples make."""


Copies = Callable[[Case], int]
"""How many copies of the batch a step is given."""


def one_copy(case: Case) -> int:
    return 1


def copy_for_each_sample(case: Case) -> int:
    return case.samples


@dataclass(frozen=True)
class Rival:
    """How a library takes a step.

    Args:
        name: The library.
        sampler: How it draws: `local`, `weights` or `none`.
        make: From a case to a function that takes a step.
        needs: The module to import.
        copies: How many copies of the batch it is given.
    """

    name: str
    sampler: str
    make: Callable[[Case], TakeStep]
    needs: str = "torch"
    copies: Copies = one_copy

    @property
    def title(self) -> str:
        return f"{self.name} {self.sampler}"

    @property
    def installed(self) -> bool:
        return find_spec(self.needs) is not None


def descend(parameters: list[Any], loss: Callable[[], Tensor]) -> TakeStep:
    """Adam, one step."""
    adam = torch.optim.Adam(parameters, lr=1e-3, fused=True)

    def step() -> float:
        adam.zero_grad()
        value = loss()
        value.backward()
        adam.step()
        return float(value.detach())

    return step


def torch_step(copies: Copies) -> Callable[[Case], TakeStep]:
    """Plain torch on so many copies of the batch."""

    def make(case: Case) -> TakeStep:
        net, (x, y) = case.net(), case.data(copies(case))
        return descend(list(net.parameters()), lambda: F.cross_entropy(net(x), y))

    return make


def headstart_step(sampler: str) -> Callable[[Case], TakeStep]:
    """headstart."""

    def make(case: Case) -> TakeStep:
        method, model, (x, y) = SVI(sampler), bayesianize(case.net()), case.data()
        method.bind(
            model, Categorical(CLASSES), num_data=NUM_DATA, samples=case.samples, lr=1e-3, clip=None
        )
        return lambda: float(method.update(x, y, 1.0).value)

    return make


def looped(net: nn.Module, case: Case, kl: Callable[[], Tensor]) -> TakeStep:
    """A forward pass for each sample, their mean loss and the KL over the rows of the data."""
    x, y = case.data()

    def loss() -> Tensor:
        draws = torch.stack([F.cross_entropy(net(x), y) for _ in range(case.samples)])
        return draws.mean() + kl() / NUM_DATA

    return descend(list(net.parameters()), loss)


def swapped(
    net: nn.Module, linear: Callable[[nn.Linear], nn.Module], conv: Callable[[nn.Conv2d], nn.Module]
) -> nn.Module:
    """The net with another library's layers in place of its own."""
    for name, child in net.named_children():
        if isinstance(child, nn.Linear):
            setattr(net, name, linear(child))
        elif isinstance(child, nn.Conv2d):
            setattr(net, name, conv(child))
        else:
            swapped(child, linear, conv)
    return net


def bayesian_torch_step(case: Case) -> TakeStep:
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

    net = case.net()
    prior = {
        "prior_mu": 0.0,
        "prior_sigma": 1.0,
        "posterior_mu_init": 0.0,
        "posterior_rho_init": -3.0,
    }
    dnn_to_bnn(net, {**prior, "type": "Reparameterization", "moped_enable": False})
    return looped(net, case, lambda: get_kl_loss(net))


def torchbnn_step(case: Case) -> TakeStep:
    import torchbnn as bnn

    net = swapped(
        case.net(),
        lambda old: bnn.BayesLinear(0, 1, old.in_features, old.out_features),
        lambda old: bnn.BayesConv2d(
            0, 1, old.in_channels, old.out_channels, old.kernel_size, old.stride, old.padding
        ),
    )
    kl = bnn.BKLLoss(reduction="sum")
    return looped(net, case, lambda: kl(net).squeeze())


def blitz_step(case: Case) -> TakeStep:
    from blitz.modules import BayesianConv2d, BayesianLinear
    from blitz.utils import variational_estimator

    net = swapped(
        case.net(),
        lambda old: BayesianLinear(old.in_features, old.out_features),
        lambda old: BayesianConv2d(
            old.in_channels,
            old.out_channels,
            old.kernel_size,
            stride=old.stride,
            padding=old.padding,
        ),
    )
    estimator = variational_estimator(type("Net", (nn.Sequential,), {}))(net)
    x, y = case.data()
    return descend(
        list(estimator.parameters()),
        lambda: estimator.sample_elbo(
            inputs=x,
            labels=y,
            criterion=nn.CrossEntropyLoss(),
            sample_nbr=case.samples,
            complexity_cost_weight=1 / NUM_DATA,
        ),
    )


def torch_blue_step(case: Case) -> TakeStep:
    from torch_blue.vi import KullbackLeiblerLoss, convert_to_vimodule
    from torch_blue.vi.distributions import Categorical as Classes

    net, (x, y) = case.net(), case.data()
    convert_to_vimodule(net)
    objective = KullbackLeiblerLoss(Classes(), dataset_size=NUM_DATA)
    return descend(list(net.parameters()), lambda: objective(net(x, samples=case.samples), y))


def pyro_step(case: Case) -> TakeStep:
    import pyro as library
    import pyro.distributions as dist
    from pyro.infer import SVI as PyroSVI
    from pyro.infer import Trace_ELBO
    from pyro.infer.autoguide import AutoNormal
    from pyro.nn import PyroModule, PyroSample
    from pyro.nn.module import to_pyro_module_
    from pyro.optim import Adam

    library.clear_param_store()
    net, (x, y) = case.net(), case.data()
    to_pyro_module_(net)
    for module in net.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(
                module,
                name,
                PyroSample(dist.Normal(0.0, 1.0).expand(parameter.shape).to_event(parameter.ndim)),
            )

    class Model(PyroModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor, y: Tensor) -> None:
            logits = self.net(x)
            with library.plate("data", NUM_DATA, subsample_size=len(x)):
                library.sample("y", dist.Categorical(logits=logits), obs=y)

    model = Model()
    method = PyroSVI(
        model, AutoNormal(model), Adam({"lr": 1e-3}), Trace_ELBO(num_particles=case.samples)
    )
    return lambda: float(method.step(x, y))


def ivon_step(case: Case) -> TakeStep:
    from ivon import IVON

    net, (x, y) = case.net(), case.data()
    optimizer = IVON(net.parameters(), lr=0.1, ess=NUM_DATA, mc_samples=case.samples)

    def step() -> float:
        for _ in range(case.samples):
            with optimizer.sampled_params(train=True):
                optimizer.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


RIVALS = (
    Rival(TORCH_ON_BATCH, "none", torch_step(one_copy)),
    Rival(TORCH_ON_SAMPLES, "none", torch_step(copy_for_each_sample), copies=copy_for_each_sample),
    Rival("headstart", "local", headstart_step("local")),
    Rival("headstart", "weights", headstart_step("weights")),
    Rival("bayesian-torch", "weights", bayesian_torch_step, "bayesian_torch"),
    Rival("torchbnn", "weights", torchbnn_step, "torchbnn"),
    Rival("torch-blue", "weights", torch_blue_step, "torch_blue"),
    Rival("blitz", "weights", blitz_step, "blitz"),
    Rival("pyro", "weights", pyro_step, "pyro"),
    Rival("ivon", "weights", ivon_step, "ivon"),
)
