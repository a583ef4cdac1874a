"""Noisy K-FAC: natural gradients for a matrix-normal posterior, from Kronecker factors of the Fisher matrix."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from headstart.curvature import (
    FISHERS,
    Factors,
    damped,
    kronecker_factors,
    split_damping,
    without_rounding,
)
from headstart.errors import HeadstartError, unknown
from headstart.inference.base import Inference, likelihood_apart
from headstart.likelihoods import Likelihood
from headstart.linalg.gaussians import factorized, precision_to_scale_tril
from headstart.network.layer import Bayesian, bayesian_layers
from headstart.objective import Nelbo
from headstart.posteriors import MatrixNormal

SMALLEST_WEIGHT = 1e-9
"""Of the KL in the covariance: at 0 there is no posterior, only a point."""
LEAST_PRIOR = 1e-10
"""Of the prior beside F's mean eigenvalue: with a KL of next to no weight, directions without curvature could not be told from rounding."""


class NoisyKFAC(Inference):
    """Noisy natural gradient as variational inference (Zhang et al., 2018), for nets with `posterior="matrix_normal"`.

    With N rows, a KL of weight λ and a prior of precision Λ, a layer's posterior is `MN(M, λ/N · (F + λΛ/N)⁻¹)`, where
    `F = S ⊗ A` are running averages of its Kronecker factors; its mean moves by `(F + λΛ/N + damping)⁻¹ ∇_M (NELBO/N)` times
    the learning rate `base`, with momentum. Each of these increments is shortened where its length in F, squared, exceeds
    `kl_clip`; momentum makes steps up to 1/(1 − momentum) times longer. Factors are renewed every `factors_every` steps and their
    inverses every `inverses_every`, sooner in the beginning. The averages start from the posterior the model has, so an initialiser's
    doubt is the first guess. `lr` drives what has no posterior (a noise variance), by Adam; `clip` is not used. λ is
    `fit(temperature=)` times the schedule: 1 is the evidence lower bound; the runs of its authors had 0.1 to 0.5.

    Example:
        >>> import headstart as hs
        >>> net = nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 1))
        >>> model, lik = hs.bayesianize(net, posterior="matrix_normal"), hs.Gaussian()
        >>> x = torch.randn(100, 3)
        >>> len(hs.fit(model, lik, (x, x.sum(1)), steps=5, inference="noisy-kfac", progress=False, seed=0).steps)
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
            raise HeadstartError(
                "Factors and inverses are renewed every step or less often: at least 1."
            )
        self.base, self.momentum, self.damping = base, momentum, damping
        self.kl_clip, self.decay = kl_clip, decay
        self.factors_every, self.inverses_every = factors_every, inverses_every
        self.fisher, self.sampler = fisher, sampler

    def bind(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        *,
        num_data: int,
        samples: int,
        lr: float,
        clip: float | None,
    ) -> torch.optim.Optimizer:
        layers = bayesian_layers(model)
        self.refuse_other_families(model)
        self.model, self.likelihood, self.num_data, self.samples = (
            model,
            likelihood,
            num_data,
            samples,
        )
        self.layers = {
            name: layer for name, layer in layers.items() if layer.posterior.mean.requires_grad
        }
        if not self.layers:
            raise HeadstartError(
                "Noisy K-FAC has nothing to learn: every Bayesian layer of this model is frozen."
            )
        self.means = [layer.posterior.mean for layer in self.layers.values()]
        posteriors = {id(p) for layer in layers.values() for p in layer.posterior.parameters()}
        groups = likelihood_apart(model, likelihood, lr)
        for group in groups:
            group["params"] = [p for p in group["params"] if id(p) not in posteriors]
            group["base"] = group.get("lr", lr)
        self.others = [p for group in groups for p in group["params"]]
        self.adam = torch.optim.Adam(groups, lr=lr) if self.others else None
        self.optimizer = torch.optim.SGD(self.means, lr=self.base, momentum=self.momentum)
        self.curvature: dict[str, _Curvature] = {}
        self.step = 0
        return self.optimizer

    def update(self, x: Tensor, y: Tensor, kl_weight: float) -> Nelbo:
        if self.step % self.factors_every == 0:
            self._renew_curvature(x, y, max(kl_weight, SMALLEST_WEIGHT))
        self.step += 1
        loss = self.loss(x, y, kl_weight)
        wanted = [*self.means, *self.others]
        given = torch.autograd.grad(loss.value / self.num_data, wanted, allow_unused=True)
        used = [
            gradient for gradient in given if gradient is not None
        ]  # the same ones on every rank
        *pooled, value, nll, kl = self.pool([*used, *(part.detach() for part in loss)], len(x))
        if torch.isfinite(value):  # else the loop will say so; the parameters stay as they were
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
        super().load_state_(state)
        if self.adam is not None:
            self.adam.load_state_dict(state["adam"])
        self.curvature = {
            name: _Curvature.restored(self.layers[name], part)
            for name, part in state["curvature"].items()
        }

    def _renew_curvature(self, x: Tensor, y: Tensor, kl_weight: float) -> None:
        """Look at the factors; and turn them into inverses after 1, 2, 4, … looks, then every `inverses_every` steps."""
        labels, scale = y if self.fisher == "empirical" else None, kl_weight / self.num_data
        seen = self._of_all_ranks(
            kronecker_factors(self.model, self.likelihood, x, labels, sampler=self.sampler), len(x)
        )
        due = self.step % self.inverses_every < self.factors_every
        for name in self.layers.keys() & seen.keys():
            if name not in self.curvature:
                self.curvature[name] = _Curvature(self.layers[name], seen[name], scale)
            curvature = self.curvature[name]
            curvature.add(seen[name], self.decay)
            if due or curvature.young():
                curvature.invert(scale, self.damping)

    def _of_all_ranks(self, seen: dict[str, Factors], rows: int) -> dict[str, Factors]:
        """The factors averaged over the rows of all ranks; one whose own are not finite has no say in them."""
        if self.ranks.world == 1:
            return seen
        found = {}
        for name, layer in self.layers.items():
            posterior = layer.posterior
            shapes = (posterior.size, posterior.size), (posterior.units, posterior.units)
            mine = seen.get(name) or Factors(*(posterior.mean.new_zeros(shape) for shape in shapes))
            weight = rows if name in seen else 0
            *sums, total = (
                self.ranks.sum(weight * part) for part in (*mine, posterior.mean.new_ones(1))
            )
            if total > 0:
                found[name] = Factors(*(part / total for part in sums))
        return found

    @torch.no_grad()
    def _move_means(self, gradients: tuple[Tensor, ...]) -> None:
        """SGD along `d = (F + γ)⁻¹ g`, shortened where `lr² dᵀ (F + γ) d`, twice the KL between the predictions, exceeds `kl_clip`."""
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
        slower = (
            self.optimizer.param_groups[0]["lr"] / self.base
        )  # the schedule drives the means; the others follow
        for group in self.adam.param_groups:
            group["lr"] = slower * group["base"]
        self.adam.step()


class _Curvature:
    """The running factors of a layer, and their damped inverses."""

    def __init__(self, layer: Bayesian, factors: Factors, scale: float) -> None:
        """Begin with what the posterior knows beyond the prior, `scale · (V ⊗ U)⁻¹ − scale · Λ`.

        It takes part in the averages as a look does, with the weight of its size beside the first look's, at most 1; the factors
        of a weak start are as large as those of the look, so that averages of factors are not averages of sizes.
        """
        self.prior, self.posterior = layer.prior, cast(MatrixNormal, layer.posterior)
        inputs, outputs = self.posterior.precisions()
        whole = float(inputs.trace() * outputs.trace())
        known = scale * max(0.0, whole - self.prior.mean_precision() * self.posterior.mean.numel())
        a, s = (float(factor.trace()) or 1.0 for factor in factors)  # all zero: a dead layer
        self.weight, self.looks = min(1.0, known / (a * s)), 0
        self.inputs = (inputs * (a / float(inputs.trace()))).to(factors.inputs).contiguous()
        size = known / (a * self.weight) if self.weight > 0 else 0.0
        self.outputs = (outputs * (size / float(outputs.trace()))).to(factors.outputs).contiguous()

    def state(self) -> dict[str, Any]:
        """All that it has learned."""
        return {
            "weight": self.weight,
            "looks": self.looks,
            "factors": [self.inputs, self.outputs],
            "inverse": [self.inverse.inputs, self.inverse.outputs],
        }

    @classmethod
    def restored(cls, layer: Bayesian, state: dict[str, Any]) -> _Curvature:
        """What `state` told of."""
        self = cls.__new__(cls)
        self.prior, self.posterior = layer.prior, cast(MatrixNormal, layer.posterior)
        self.weight, self.looks = state["weight"], state["looks"]
        self.inputs, self.outputs = state["factors"]
        self.inverse = Factors(*state["inverse"])
        return self

    def add(self, factors: Factors, decay: float) -> None:
        """A look more: the mean of all so far, the start among them, and later a running one."""
        share = max(1 - decay, 1 / (self.weight + self.looks + 1))
        self.looks += 1
        self.inputs.lerp_(factors.inputs, share)
        self.outputs.lerp_(factors.outputs, share)

    def young(self) -> bool:
        """Whether the looks have doubled since the inverses were last due: after 1, 2, 4, …, 64 of them."""
        return self.looks <= 64 and math.log2(max(1, self.looks)).is_integer()

    @torch.no_grad()
    def invert(self, scale: float, damping: float) -> None:
        """The posterior's covariance `scale · (F + scale · Λ)⁻¹`, and the inverse that turns gradients; in double precision."""
        (inputs, a), (outputs, s) = without_rounding(self.inputs), without_rounding(self.outputs)
        least = LEAST_PRIOR * float(a.mean() * s.mean())
        prior = max(least, scale * self.prior.mean_precision())
        of_inputs, of_outputs = damped(Factors(inputs, outputs), split_damping(a, s, prior))
        self.posterior.set_(
            precision_to_scale_tril(of_inputs), precision_to_scale_tril(of_outputs / scale)
        )
        for_steps = damped(Factors(inputs, outputs), split_damping(a, s, prior + damping))
        inverses = (torch.cholesky_inverse(factorized(part)).to(self.inputs) for part in for_steps)
        self.inverse = Factors(
            *(part.contiguous() for part in inverses)
        )  # as a checkpoint gives them back, to the last bit

    def precondition(self, gradient: Tensor) -> Tensor:
        """`(F + γ)⁻¹ g`."""
        return self.inverse.outputs @ gradient @ self.inverse.inputs
