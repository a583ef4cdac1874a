"""Learners of variational libraries: the same net, their own objective and settings.

Real labels have Gaussian noise, whose variance is learned beside the net, where a library has no
noise of its own. The first settings of each are those of its documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headstart.bench.quality_curve import DrawScores, Learner
from headstart.bench.quality_rows import (
    LabeledRows,
    QualityRows,
    QualityTask,
    label_log_probs,
    plain_net,
)
from headstart.bench.rivals import swapped
from headstart.initializers import initialize_
from headstart.likelihoods import Categorical, Gaussian
from headstart.network.convert import bayesianize
from headstart.predictive import predict
from headstart.training.loop import steps

DRAWS_SCORED = 16
"""Draws of an evaluation, for every library."""
LearnerSettings = Mapping[str, Any]
MakeLearner = Callable[[QualityTask, QualityRows, LearnerSettings], Learner]


def headstart_learner(task: QualityTask, rows: QualityRows, settings: LearnerSettings) -> Learner:
    """I-BLM, then steps of `fit` at its defaults; the settings are further options of `steps`."""
    likelihood = Categorical(rows.classes) if rows.classes else Gaussian()
    model = bayesianize(plain_net(task, rows))
    initialize_(model, "iblm", likelihood, rows.train)
    training = iter(steps(model, likelihood, rows.train, steps=10**9, **settings))

    def score(given: LabeledRows) -> Tensor:
        x, y = given
        draws = predict(model, likelihood, x, DRAWS_SCORED).draws
        if isinstance(likelihood, Categorical):
            return label_log_probs(draws, y, torch.zeros(1))
        f = likelihood.loc + likelihood.scale * draws
        return label_log_probs(f, y, likelihood.noise_var.detach().log())

    return Learner(lambda: next(training), lambda: score)


def repeated_scores(
    forward: Callable[[Tensor], Tensor], log_noise: Tensor, draws: int = DRAWS_SCORED
) -> DrawScores:
    """A forward pass for each draw."""

    @torch.no_grad()
    def score(given: LabeledRows) -> Tensor:
        x, y = given
        return torch.stack([label_log_probs(forward(x), y, log_noise) for _ in range(draws)])

    return score


def descending(
    parameters: list[nn.Parameter],
    rows: QualityRows,
    rate: float,
    loss: Callable[[Tensor, Tensor], Tensor],
    scores: DrawScores,
) -> Learner:
    """Adam on this loss of batches."""
    adam, batches = torch.optim.Adam(parameters, rate), rows.stream()

    def step() -> None:
        x, y = next(batches)
        adam.zero_grad()
        loss(x, y).backward()
        adam.step()

    return Learner(step, lambda: scores)


def _with_kl(
    net: nn.Module, rows: QualityRows, rate: float, weighted_kl: Callable[[], Tensor | float]
) -> Learner:
    """Adam on the NLL of one draw per step, plus the KL as it is weighted."""
    log_noise = nn.Parameter(torch.zeros(rows.outputs))

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return weighted_kl() - label_log_probs(net(x), y, log_noise).mean()

    scores = repeated_scores(net, log_noise)
    return descending([*net.parameters(), log_noise], rows, rate, loss, scores)


def bayesian_torch_learner(
    task: QualityTask, rows: QualityRows, settings: LearnerSettings
) -> Learner:
    """`kl` divides the KL: by the rows of a batch, as in the README, or by all."""
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

    net = plain_net(task, rows)
    start = {"prior_mu": 0.0, "prior_sigma": 1.0, "posterior_mu_init": 0.0}
    kind = {"posterior_rho_init": -3.0, "type": "Reparameterization", "moped_enable": False}
    dnn_to_bnn(net, {**start, **kind})
    over = {"batch": 64, "rows": len(rows.train[0])}[settings["kl"]]
    return _with_kl(net, rows, settings["rate"], lambda: get_kl_loss(net) / over)


def torchbnn_learner(task: QualityTask, rows: QualityRows, settings: LearnerSettings) -> Learner:
    """`kl`: a hundredth of the mean over weights, as in its demos, or the sum over rows."""
    import torchbnn as bnn

    net = swapped(
        plain_net(task, rows),
        lambda old: bnn.BayesLinear(0, 0.1, old.in_features, old.out_features),
        lambda old: bnn.BayesConv2d(
            0, 0.1, old.in_channels, old.out_channels, old.kernel_size, old.stride, old.padding
        ),
    )
    mean = settings["kl"] == "mean"
    kl = bnn.BKLLoss(reduction="mean" if mean else "sum", last_layer_only=False)
    weight = 0.01 if mean else 1 / len(rows.train[0])
    return _with_kl(net, rows, settings["rate"], lambda: weight * kl(net).squeeze())


def blitz_learner(task: QualityTask, rows: QualityRows, settings: LearnerSettings) -> Learner:
    """Its `sample_elbo`, of three draws as in its README, or of `samples`."""
    from blitz.modules import BayesianConv2d, BayesianLinear
    from blitz.utils import variational_estimator

    net = swapped(
        plain_net(task, rows),
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
    log_noise = nn.Parameter(torch.zeros(rows.outputs))

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return estimator.sample_elbo(
            inputs=x,
            labels=y,
            criterion=lambda f, labels: -label_log_probs(f, labels, log_noise).mean(),
            sample_nbr=settings["samples"],
            complexity_cost_weight=1 / len(rows.train[0]),
        )

    scores = repeated_scores(net, log_noise)
    return descending([*net.parameters(), log_noise], rows, settings["rate"], loss, scores)


def torch_blue_learner(task: QualityTask, rows: QualityRows, settings: LearnerSettings) -> Learner:
    """Real labels have the normal law of the samples' mean and spread, as its loss has it."""
    from torch_blue.vi import KullbackLeiblerLoss, convert_to_vimodule
    from torch_blue.vi.distributions import Categorical as Classes
    from torch_blue.vi.distributions import MeanFieldNormal

    net, samples = plain_net(task, rows), settings["samples"]
    convert_to_vimodule(net)
    law = Classes() if rows.classes else MeanFieldNormal()
    objective = KullbackLeiblerLoss(law, dataset_size=len(rows.train[0]))

    @torch.no_grad()
    def score(given: LabeledRows) -> Tensor:
        x, y = given
        draws = torch.as_tensor(net(x, samples=DRAWS_SCORED))
        if rows.classes:
            return label_log_probs(draws, y, torch.zeros(1))
        return label_log_probs(draws.mean(0), y, 2 * draws.std(0).log()).unsqueeze(0)

    parameters = list(net.parameters())
    return descending(
        parameters,
        rows,
        settings["rate"],
        lambda x, y: objective(net(x, samples=samples), y),
        score,
    )


def pyro_learner(task: QualityTask, rows: QualityRows, settings: LearnerSettings) -> Learner:
    """AutoNormal around a net with standard normal weights; `start`: of its means."""
    import pyro as library
    import pyro.distributions as dist
    from pyro.infer import SVI as PyroSVI
    from pyro.infer import Trace_ELBO
    from pyro.infer.autoguide import AutoNormal, init_to_feasible, init_to_sample
    from pyro.nn import PyroModule, PyroSample
    from pyro.nn.module import to_pyro_module_
    from pyro.optim import Adam

    library.clear_param_store()
    net = plain_net(task, rows)
    to_pyro_module_(net)
    for module in net.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            law = dist.Normal(0.0, 1.0).expand(parameter.shape).to_event(parameter.ndim)
            setattr(module, name, PyroSample(law))

    class Model(PyroModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
            f = self.net(x)
            if rows.classes:
                law = dist.Categorical(logits=f)
            else:
                scale = library.param("log_noise", torch.zeros(rows.outputs)).mul(0.5).exp()
                law = dist.Normal(f, scale).to_event(1)
            with library.plate("data", len(rows.train[0]), subsample_size=len(x)):
                library.sample("y", law, obs=y)
            return f

    model, batches = Model(), rows.stream()
    start = {"feasible": init_to_feasible, "sample": init_to_sample}[settings["start"]]
    guide = AutoNormal(model, init_loc_fn=start)
    method = PyroSVI(model, guide, Adam({"lr": settings["rate"]}), Trace_ELBO())
    # Makes the parameters of the guide, which predictions need.
    guide(*next(batches))

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        weights = guide()
        return library.poutine.condition(model, weights)(x)

    def finish() -> DrawScores:
        known = library.get_param_store()
        noise = known["log_noise"].detach() if "log_noise" in known else torch.zeros(rows.outputs)
        return repeated_scores(forward, noise)

    return Learner(lambda: method.step(*next(batches)), finish)


def ivon_learner(task: QualityTask, rows: QualityRows, settings: LearnerSettings) -> Learner:
    """One draw per step; the settings are the optimizer's. The noise is learned by Adam."""
    from ivon import IVON

    net, log_noise = plain_net(task, rows), nn.Parameter(torch.zeros(rows.outputs))
    optimizer = IVON(net.parameters(), ess=len(rows.train[0]), **settings)
    adam, batches = torch.optim.Adam([log_noise], 1e-2), rows.stream()

    def step() -> None:
        x, y = next(batches)
        with optimizer.sampled_params(train=True):
            optimizer.zero_grad()
            adam.zero_grad()
            (-label_log_probs(net(x), y, log_noise).mean()).backward()
        optimizer.step()
        if not rows.classes:
            adam.step()

    def drawn(x: Tensor) -> Tensor:
        with optimizer.sampled_params():
            return net(x)

    return Learner(step, lambda: repeated_scores(drawn, log_noise))
