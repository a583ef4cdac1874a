"""Noisy K-FAC: natural gradients for a matrix-normal posterior, by Kronecker-factored curvature."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from headstart.curvature import FISHERS, kronecker_factors
from headstart.errors import HeadstartError, unknown
from headstart.inference.base import PAPER_LR, Inference, OptimizerChoice, likelihood_apart
from headstart.likelihoods import Likelihood
from headstart.linalg.gaussians import factorized, precision_to_scale_tril
from headstart.linalg.kronecker import Factors, damped, split_damping, without_rounding
from headstart.network.layer import Bayesian, bayesian_layers
from headstart.objective import Nelbo
from headstart.posteriors import MatrixNormal, Posterior

MIN_KL_WEIGHT = 1e-9
"""Of the KL in the covariance: at 0 there is no posterior, only a point."""
MIN_PRIOR = 1e-10
"""Of the prior beside F's mean eigenvalue: directions without curvature stay above rounding."""


class NoisyKFAC(Inference):
    """Noisy natural gradient as variational inference (Zhang et al., 2018).

    For nets with `posterior="matrix_normal"`.
    With N rows, a KL of weight λ and a prior of precision Λ, a layer's posterior is
    `MN(M, λ/N · (F + λΛ/N)⁻¹)`, where `F = S ⊗ A` are running averages of its Kronecker factors.
    Its mean moves by `(F + λΛ/N + damping)⁻¹ ∇_M (NELBO/N)` times the learning rate `base`, with
    momentum, which makes steps up to 1/(1 − momentum) times longer.
    The averages start from the posterior the model has, so an initializer's variances are the
    first guess.
    `lr` drives what has no posterior (a noise variance), by Adam; `clip` is not used.
    λ is `fit(temperature=)` times the schedule: 1 is the evidence lower bound; the runs of its
    authors had 0.1 to 0.5.

    Args:
        base: the learning rate of the means.
        momentum: of their steps.
        damping: added to F for the steps.
        kl_clip: an increment whose squared length in F exceeds this is shortened; None: never.
        decay: of the running averages.
        factors_every: steps after which factors are renewed.
        inverses_every: steps after which their inverses are, sooner in the beginning.
        fisher: "sampled" from the model's predictions, or "empirical", with the data's labels.
        sampler: how weights are drawn.

    Raises:
        HeadstartError: where a value makes no sense.

    Example:
        >>> import headstart as hs
        >>> net = nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 1))
        >>> model, lik = hs.bayesianize(net, posterior="matrix_normal"), hs.Gaussian()
        >>> x = torch.randn(100, 3)
        >>> options = {"inference": "noisy-kfac", "progress": False, "seed": 0}
        >>> len(hs.fit(model, lik, (x, x.sum(1)), steps=5, **options).steps)
        5
    """

    name = "noisy-kfac"
    posterior = "matrix_normal"
    pools = True

    def __init__(
        self,
        base: float = 0.01,
        *,
        momentum: float = 0.9,
        damping: float = 1e-3,
        kl_clip: float | None = 1e-4,
        decay: float = 0.99,
        factors_every: int = 10,
        inverses_every: int = 100,
        fisher: str = "sampled",
        sampler: str = "weights",
    ) -> None:
        if fisher not in FISHERS:
            raise unknown("Fisher matrix", fisher, FISHERS)
        if not (base > 0 and damping >= 0 and (kl_clip is None or kl_clip > 0)):
            raise HeadstartError(
                "Noisy K-FAC takes a positive base and kl_clip, and a damping that is not negative."
            )
        if not (0 <= momentum < 1 and 0 <= decay < 1):
            raise HeadstartError(f"momentum and decay lie in [0, 1), not {momentum} and {decay}.")
        if factors_every < 1 or inverses_every < 1:
            raise HeadstartError("factors_every and inverses_every are steps: 1 or more.")
        self.base, self.momentum, self.damping = base, momentum, damping
        self.kl_clip, self.decay = kl_clip, decay
        self.factors_every, self.inverses_every = factors_every, inverses_every
        self.fisher, self.sampler = fisher, sampler

    def supports(self, posterior: Posterior) -> bool:
        """Whether the covariance is a Kronecker product, as the curvature is.

        Args:
            posterior: that of a layer.
        """
        return posterior.is_kronecker

    def bind(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        *,
        num_data: int,
        samples: int,
        lr: float | None,
        clip: float | None,
        optimizer: OptimizerChoice = None,
    ) -> torch.optim.Optimizer:
        """Take a net with matrix-normal posteriors to train.

        Args:
            model: the net.
            likelihood: p(y | f), trained along by Adam.
            num_data: the rows of the data set.
            samples: draws of the net for each step.
            lr: the learning rate of what has no posterior; None: 1e-3.
            clip: not used.
            optimizer: not used.

        Returns:
            The optimizer of the means.
        """
        self.check_posteriors(model)
        self.model, self.likelihood = model, likelihood
        self.num_data, self.samples = num_data, samples
        layers = bayesian_layers(model).items()
        self.layers = {name: layer for name, layer in layers if layer.posterior.mean.requires_grad}
        if not self.layers:
            raise HeadstartError(
                "Noisy K-FAC has nothing to learn: every Bayesian layer of this model is frozen."
            )
        self.means = [layer.posterior.mean for layer in self.layers.values()]
        lr = PAPER_LR if lr is None else lr
        groups = _without_posteriors(model, likelihood, lr)
        self.others = [p for group in groups for p in group["params"]]
        self.adam = torch.optim.Adam(groups, lr=lr) if self.others else None
        self.optimizer = torch.optim.SGD(self.means, lr=self.base, momentum=self.momentum)
        self.curvature: dict[str, RunningFactors] = {}
        self.step = 0
        return self.optimizer

    def update(self, x: Tensor, y: Tensor, kl_weight: float) -> Nelbo:
        """One natural-gradient step on one batch.

        Args:
            x: its inputs.
            y: its labels.
            kl_weight: λ, the weight of the KL.
        """
        if self.step % self.factors_every == 0:
            self._renew_curvature(x, y, max(kl_weight, MIN_KL_WEIGHT))
        self.step += 1
        loss = self.loss(x, y, kl_weight)
        wanted = [*self.means, *self.others]
        given = torch.autograd.grad(loss.value / self.num_data, wanted, allow_unused=True)
        # The same ones on every process.
        used = [gradient for gradient in given if gradient is not None]
        *pooled, value, nll, kl = self.pool([*used, *(part.detach() for part in loss)], len(x))
        # Else the loop will say so; the parameters stay as they were.
        if torch.isfinite(value):
            left = iter(pooled)
            gradients = tuple(None if gradient is None else next(left) for gradient in given)
            self._move_means(gradients[: len(self.means)])
            self._move_others(gradients[len(self.means) :])
        return Nelbo(value, nll, kl)

    def state(self) -> dict[str, Any]:
        adam = None if self.adam is None else self.adam.state_dict()
        return {
            **super().state(),
            "adam": adam,
            "curvature": {name: c.state() for name, c in self.curvature.items()},
        }

    def load_state_(self, state: dict[str, Any]) -> None:
        """Go on from a `state`; the method is bound already.

        Args:
            state: what `state` returned.
        """
        super().load_state_(state)
        if self.adam is not None:
            self.adam.load_state_dict(state["adam"])
        self.curvature = {
            name: RunningFactors.restored(self.layers[name], part)
            for name, part in state["curvature"].items()
        }

    def _renew_curvature(self, x: Tensor, y: Tensor, kl_weight: float) -> None:
        """Measure the factors; invert them after 1, 2, 4, … times, then every `inverses_every`."""
        labels, scale = y if self.fisher == "empirical" else None, kl_weight / self.num_data
        mine = kronecker_factors(self.model, self.likelihood, x, labels, sampler=self.sampler)
        seen = self._pooled(mine, len(x))
        due = self.step % self.inverses_every < self.factors_every
        for name in self.layers.keys() & seen.keys():
            if name not in self.curvature:
                self.curvature[name] = RunningFactors(self.layers[name], seen[name], scale)
            curvature = self.curvature[name]
            curvature.add(seen[name], self.decay)
            if due or curvature.young():
                curvature.invert(scale, self.damping)

    def _pooled(self, seen: dict[str, Factors], rows: int) -> dict[str, Factors]:
        """The factors averaged over the rows of all processes.

        Those of a process that are not finite, and so not in `seen`, do not count.
        """
        if self.group.is_alone:
            return seen
        found = {}
        for name, layer in self.layers.items():
            posterior = layer.posterior
            shapes = (posterior.size, posterior.size), (posterior.units, posterior.units)
            nothing = Factors(*(posterior.mean.new_zeros(shape) for shape in shapes))
            weight = rows if name in seen else 0
            if self.group.any(weight > 0):
                mine = seen.get(name, nothing)
                found[name] = Factors(*self.group.rows.weighted_means(mine, weight))
        return found

    @torch.no_grad()
    def _move_means(self, gradients: tuple[Tensor, ...]) -> None:
        """SGD along `d = (F + γ)⁻¹ g`.

        Shortened where `lr² dᵀ (F + γ) d`, twice the KL between the predictions, exceeds `kl_clip`.
        """
        lengths = []
        for name, mean, gradient in zip(self.layers, self.means, gradients, strict=True):
            mean.grad = (
                self.curvature[name].precondition(gradient) if name in self.curvature else gradient
            )
            lengths.append((mean.grad * gradient).sum())
        if self.kl_clip is not None:
            squared = self.optimizer.param_groups[0]["lr"] ** 2 * torch.stack(lengths).sum()
            shorter = (self.kl_clip / squared.clamp_min(self.kl_clip)).sqrt()
            for mean in self.means:
                cast(Tensor, mean.grad).mul_(shorter)
        self.optimizer.step()

    def _move_others(self, gradients: tuple[Tensor | None, ...]) -> None:
        if self.adam is None:
            return
        for parameter, gradient in zip(self.others, gradients, strict=True):
            parameter.grad = gradient
        # The schedule drives the means; the others follow.
        slower = self.optimizer.param_groups[0]["lr"] / self.base
        for group in self.adam.param_groups:
            group["lr"] = slower * group["base"]
        self.adam.step()


def _without_posteriors(
    model: nn.Module, likelihood: Likelihood, lr: float
) -> list[dict[str, Any]]:
    """Groups for an optimizer of what has no posterior; "base" is the learning rate of each."""
    layers = bayesian_layers(model).values()
    posteriors = {id(p) for layer in layers for p in layer.posterior.parameters()}
    groups = likelihood_apart(model, likelihood, lr)
    for group in groups:
        group["params"] = [p for p in group["params"] if id(p) not in posteriors]
        group["base"] = group.get("lr", lr)
    return groups


class RunningFactors:
    """The running Kronecker factors of a layer, and their damped inverses."""

    def __init__(self, layer: Bayesian, factors: Factors, scale: float) -> None:
        """Begin with what the posterior knows beyond the prior, `scale · (V ⊗ U)⁻¹ − scale · Λ`.

        It takes part in the averages as a measurement does, with the weight of its size beside the
        first measurement's, at most 1.
        The factors of a weak start are as large as those measured, so that averages of factors are
        not averages of sizes.

        Args:
            layer: the layer.
            factors: those measured first.
            scale: the weight of the KL over the number of rows.
        """
        self.prior, self.posterior = layer.prior, cast(MatrixNormal, layer.posterior)
        inputs, outputs = self.posterior.precisions()
        whole = float(inputs.trace() * outputs.trace())
        known = scale * max(0.0, whole - self.prior.mean_precision() * self.posterior.mean.numel())
        # All are zero in a dead layer.
        a, s = (float(factor.trace()) or 1.0 for factor in factors)
        self.weight, self.measured = min(1.0, known / (a * s)), 0
        self.inputs = (inputs * (a / float(inputs.trace()))).to(factors.inputs).contiguous()
        size = known / (a * self.weight) if self.weight > 0 else 0.0
        self.outputs = (outputs * (size / float(outputs.trace()))).to(factors.outputs).contiguous()

    def state(self) -> dict[str, Any]:
        """All that it has learned."""
        return {
            "weight": self.weight,
            "looks": self.measured,
            "factors": [self.inputs, self.outputs],
            "inverse": [self.inverse.inputs, self.inverse.outputs],
        }

    @classmethod
    def restored(cls, layer: Bayesian, state: dict[str, Any]) -> RunningFactors:
        """What `state` told of."""
        self = cls.__new__(cls)
        self.prior, self.posterior = layer.prior, cast(MatrixNormal, layer.posterior)
        self.weight, self.measured = state["weight"], state["looks"]
        self.inputs, self.outputs = state["factors"]
        self.inverse = Factors(*state["inverse"])
        return self

    def add(self, factors: Factors, decay: float) -> None:
        """A measurement more: the mean of all so far, the start among them, later a running one."""
        weight = max(1 - decay, 1 / (self.weight + self.measured + 1))
        self.measured += 1
        self.inputs.lerp_(factors.inputs, weight)
        self.outputs.lerp_(factors.outputs, weight)

    def young(self) -> bool:
        """Whether measurements have doubled since the inverses were last due: 1, 2, 4, …, 64."""
        return self.measured <= 64 and math.log2(max(1, self.measured)).is_integer()

    @torch.no_grad()
    def invert(self, scale: float, damping: float) -> None:
        """Set the posterior's covariance `scale · (F + scale · Λ)⁻¹`, and invert F for the steps.

        In double precision.
        """
        (inputs, a), (outputs, s) = without_rounding(self.inputs), without_rounding(self.outputs)
        smallest = MIN_PRIOR * float(a.mean() * s.mean())
        prior = max(smallest, scale * self.prior.mean_precision())
        of_inputs, of_outputs = damped(Factors(inputs, outputs), split_damping(a, s, prior))
        self.posterior.set_(
            precision_to_scale_tril(of_inputs), precision_to_scale_tril(of_outputs / scale)
        )
        for_steps = damped(Factors(inputs, outputs), split_damping(a, s, prior + damping))
        inverses = (torch.cholesky_inverse(factorized(part)).to(self.inputs) for part in for_steps)
        # As a checkpoint gives them back, to the last bit.
        self.inverse = Factors(*(part.contiguous() for part in inverses))

    def precondition(self, gradient: Tensor) -> Tensor:
        """`(F + γ)⁻¹ g`."""
        return self.inverse.outputs @ gradient @ self.inverse.inputs
