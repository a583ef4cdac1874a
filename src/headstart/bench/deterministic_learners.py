"""Learners with a deterministic body: ensembles, MC dropout, Laplace and variational last layers.

There is no library of the first two: they are plain torch.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from headstart.bench.quality_curve import DrawScores, Learner
from headstart.bench.quality_rows import (
    LabeledRows,
    QualityRows,
    QualityTask,
    label_log_probs,
    plain_net,
)
from headstart.bench.variational_learners import (
    DRAWS_SCORED,
    LearnerSettings,
    descending,
    repeated_scores,
)

ENSEMBLE_MEMBERS, LAPLACE_ROWS, MARGLIK_STEPS = 5, 256, 100
"""Nets of an ensemble; rows of Laplace's batches; steps on its marginal likelihood."""


def _plain_descent(
    net: nn.Module, rows: QualityRows, rate: float, draws: int
) -> tuple[Learner, Tensor]:
    """Adam on the NLL of a plain net, and the logarithm of the noise that it learns."""
    log_noise = nn.Parameter(torch.zeros(rows.outputs))

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return -label_log_probs(net(x), y, log_noise).mean()

    scores = repeated_scores(net, log_noise, draws)
    return descending([*net.parameters(), log_noise], rows, rate, loss, scores), log_noise


def ensemble_learner(task: QualityTask, rows: QualityRows, settings: LearnerSettings) -> Learner:
    """Five plain nets from starts of their own, a step of each in turn."""
    found = [
        _plain_descent(plain_net(task, rows), rows, settings["rate"], 1)[0]
        for _ in range(ENSEMBLE_MEMBERS)
    ]

    def step() -> None:
        for each in found:
            each.step()

    def scores(given: LabeledRows) -> Tensor:
        return torch.cat([each.finish()(given) for each in found])

    return Learner(step, lambda: scores)


def dropout_learner(task: QualityTask, rows: QualityRows, settings: LearnerSettings) -> Learner:
    """Units after every activation are dropped, in predictions too."""
    net = plain_net(task, rows)
    for name, child in list(net.named_children()):
        if isinstance(child, nn.ReLU):
            setattr(net, name, nn.Sequential(child, nn.Dropout(settings["p"])))
    return _plain_descent(net.train(), rows, settings["rate"], DRAWS_SCORED)[0]


def laplace_learner(task: QualityTask, rows: QualityRows, settings: LearnerSettings) -> Learner:
    """Laplace's approximation of the net as it is, where the settings say of which weights.

    The prior, and the noise of real labels, maximize the marginal likelihood, as in its
    documentation; predictions are those of the linearized net.
    """
    from laplace import Laplace

    net = plain_net(task, rows)
    training, log_noise = _plain_descent(net, rows, settings["rate"], 1)
    loader = DataLoader(TensorDataset(*rows.train), LAPLACE_ROWS)
    kind = {"subset_of_weights": settings["weights"], "hessian_structure": "kron"}

    def finish() -> DrawScores:
        task_kind = "classification" if rows.classes else "regression"
        found = Laplace(copy.deepcopy(net), task_kind, **kind)
        found.fit(loader)
        noise = torch.zeros(1)
        if rows.classes:
            found.optimize_prior_precision(method="marglik")
        else:
            noise = _fit_marginal_(found, float(log_noise.detach().mean()))
        return lambda given: laplace_scores(found, given, noise)

    return Learner(training.step, finish)


def _fit_marginal_(found: Any, start: float) -> Tensor:
    """Prior precision and noise by the marginal likelihood; the logarithm of its variance."""
    log_prior = torch.zeros(1, requires_grad=True)
    log_sigma = torch.full((1,), 0.5 * start, requires_grad=True)
    adam = torch.optim.Adam([log_prior, log_sigma], 0.1)
    for _ in range(MARGLIK_STEPS):
        adam.zero_grad()
        (-found.log_marginal_likelihood(log_prior.exp(), log_sigma.exp())).backward()
        adam.step()
    return 2 * log_sigma.detach()


def laplace_scores(found: Any, given: LabeledRows, log_noise: Tensor) -> Tensor:
    """log p(y) of the linearized net, (1, rows), batch by batch."""
    scored = []
    for x, y in zip(*(part.split(LAPLACE_ROWS) for part in given), strict=True):
        if not y.is_floating_point():
            probs = found(x, link_approx="probit").detach()
            scored.append(probs.gather(-1, y.unsqueeze(-1)).clamp_min(1e-30).log().squeeze(-1))
            continue
        mean, cov = (part.detach() for part in found(x))
        var = cov.diagonal(dim1=-2, dim2=-1) + log_noise.exp()
        scored.append(label_log_probs(mean, y, var.log()))
    return torch.cat(scored).unsqueeze(0)


def vbll_learner(task: QualityTask, rows: QualityRows, settings: LearnerSettings) -> Learner:
    """A variational last layer on a deterministic body."""
    import vbll

    net, weight = plain_net(task, rows), 1 / len(rows.train[0])
    name, last = list(net.named_children())[-1]
    kind = vbll.DiscClassification if rows.classes else vbll.Regression
    setattr(net, name, kind(last.in_features, rows.outputs, weight))

    @torch.no_grad()
    def scores(given: LabeledRows) -> Tensor:
        x, y = given
        law = net(x).predictive
        if rows.classes:
            return law.probs.gather(-1, y.unsqueeze(-1)).clamp_min(1e-30).log().T
        return law.log_prob(y).sum(-1).unsqueeze(0)

    parameters = [each for each in net.parameters() if each.requires_grad]
    return descending(
        parameters, rows, settings["rate"], lambda x, y: net(x).train_loss_fn(y), scores
    )


def gaussian_scores(mean: Tensor, var: Tensor, y: Tensor) -> Tensor:
    """log p(y) of normal laws, (1, rows)."""
    squares = (y - mean).square() / var
    return (-0.5 * (squares + var.log() + math.log(2 * math.pi))).unsqueeze(0)
