"""Noisy K-FAC: natural gradients for a matrix-normal posterior, from Kronecker factors of the Fisher matrix."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from headstart.curvature import FISHERS, Factors, damped, kronecker_factors, split_damping
from headstart.errors import HeadstartError, unknown
from headstart.gaussians import factorized, precision_to_scale_tril
from headstart.inference.base import Inference, likelihood_apart
from headstart.layers import Bayesian, bayesian_layers
from headstart.likelihoods import Likelihood
from headstart.objective import Nelbo, nelbo
from headstart.posteriors import MatrixNormal

SMALLEST_WEIGHT = 1e-9
"""Of the KL in the covariance: at 0 there is no posterior, only a point."""


class NoisyKFAC(Inference):
    """Noisy natural gradient as variational inference (Zhang et al., 2018), for nets with `posterior="matrix_normal"`.

    With N rows, a KL of weight λ and a prior of precision Λ, a layer's posterior is `MN(M, λ/N · (F + γ)⁻¹)`, where
    `F = S ⊗ A` are running averages of its Kronecker factors and `γ = λΛ/N + damping`; its mean takes the steps
    `M ← M − base · (F + γ)⁻¹ ∇_M (nll + λ/N · KL)`, with momentum, no longer than `kl_clip` allows. Factors are renewed
    every `factors_every` steps and their inverses every `inverses_every`, sooner in the beginning. The averages start from the
    posterior the model has, so an initialiser's doubt is the first guess. `base` is the learning rate; `lr` drives what has no
    posterior (a noise variance), by Adam. λ is `fit(temperature=)` times the schedule: 1 is the evidence lower bound; the runs
    of its authors had 0.1 to 0.5.

    Example:
        >>> import headstart as hs
        >>> net = nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 1))
        >>> model, lik = hs.bayesianize(net, posterior="matrix_normal"), hs.Gaussian()
        >>> x = torch.randn(100, 3)
        >>> len(hs.fit(model, lik, (x, x.sum(1)), steps=5, inference="noisy-kfac", progress=False, seed=0).steps)
        5
    """

    name = "noisy-kfac"

    def __init__(
        self,
        base: float = 0.01,
        *,
        momentum: float = 0.9,
        damping: float = 1e-3,
        posterior_damping: float = 0.0,
        kl_clip: float | None = 1e-4,
        decay: float = 0.99,
        factors_every: int = 10,
        inverses_every: int = 100,
        fisher: str = "sampled",
        sampler: str = "weights",
    ) -> None:
        if fisher not in FISHERS:
            raise unknown("Fisher matrix", fisher, FISHERS)
        self.base, self.momentum, self.kl_clip, self.decay = base, momentum, kl_clip, decay
        self.damping, self.posterior_damping = damping, posterior_damping
        self.factors_every, self.inverses_every = factors_every, inverses_every
        self.fisher, self.sampler = fisher, sampler

    def convert(self, net: nn.Module, **options: Any) -> nn.Module:
        """Matrix-normal posteriors in every layer."""
        return super().convert(net, **{**options, "posterior": "matrix_normal"})

    def bind(
        self, model: nn.Module, likelihood: Likelihood, *, num_data: int, samples: int, lr: float, clip: float | None
    ) -> torch.optim.Optimizer:
        layers = bayesian_layers(model)
        for name, layer in layers.items():
            family = layer.posterior.name
            if family != "matrix_normal":
                raise HeadstartError(
                    f"Noisy K-FAC trains nets with posterior='matrix_normal', but layer {name!r} has {family!r}: "
                    "convert the net with bayesianize(net, posterior='matrix_normal')."
                )
        self.model, self.likelihood, self.num_data, self.samples, self.clip = model, likelihood, num_data, samples, clip
        self.layers = {name: layer for name, layer in layers.items() if layer.posterior.mean.requires_grad}
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
        self.step, self.seen = 0, 0
        return self.optimizer

    def update(self, x: Tensor, y: Tensor, kl_weight: float) -> Nelbo:
        if self.step % self.factors_every == 0:
            self._renew_curvature(x, y, max(kl_weight, SMALLEST_WEIGHT))
        self.step += 1
        with self.computing(x):
            loss = nelbo(
                self.model,
                self.likelihood,
                x,
                y,
                num_data=self.num_data,
                samples=self.samples,
                kl_weight=kl_weight,
                sampler=self.sampler,
            )
        if torch.isfinite(loss.value):  # else the loop will say so; the parameters stay as they were
            wanted = [*self.means, *self.others]
            gradients = torch.autograd.grad(loss.value / self.num_data, wanted, allow_unused=True)
            self._move_means(gradients[: len(self.means)])
            self._move_others(gradients[len(self.means) :])
        return Nelbo(*(part.detach() for part in loss))

    def _renew_curvature(self, x: Tensor, y: Tensor, kl_weight: float) -> None:
        """Look at the factors; and turn them into inverses after 1, 2, 4, … looks, then every `inverses_every` steps."""
        labels = y if self.fisher == "empirical" else None
        weight, scale = max(1 - self.decay, 1 / (self.seen + 2)), kl_weight / self.num_data
        seen = kronecker_factors(self.model, self.likelihood, x, labels, sampler=self.sampler)
        for name in self.layers.keys() & seen.keys():
            if name not in self.curvature:
                self.curvature[name] = _Curvature(self.layers[name], seen[name], scale)
            self.curvature[name].add(seen[name], weight)
        self.seen += 1
        doubled = self.seen & (self.seen - 1) == 0 and self.step < self.inverses_every
        if doubled or self.step % self.inverses_every < self.factors_every:
            for curvature in self.curvature.values():
                curvature.invert(scale, self.damping, self.posterior_damping)

    @torch.no_grad()
    def _move_means(self, gradients: tuple[Tensor, ...]) -> None:
        """SGD along `(F + γ)⁻¹ g`, shortened where `lr² gᵀ (F + γ)⁻¹ g`, twice the KL between the predictions, exceeds `kl_clip`."""
        moved = torch.zeros((), device=gradients[0].device)
        for name, mean, gradient in zip(self.layers, self.means, gradients, strict=True):
            direction = self.curvature[name].precondition(gradient) if name in self.curvature else gradient
            moved = moved + (direction * gradient).sum()
            mean.grad = direction
        if self.kl_clip is not None:
            length = self.optimizer.param_groups[0]["lr"] ** 2 * moved
            factor = (self.kl_clip / length.clamp_min(self.kl_clip)).sqrt()
            for mean in self.means:
                mean.grad.mul_(factor)  # type: ignore[union-attr]
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.means, self.clip)
        self.optimizer.step()

    def _move_others(self, gradients: tuple[Tensor, ...]) -> None:
        if self.adam is None:
            return
        for parameter, gradient in zip(self.others, gradients, strict=True):
            parameter.grad = gradient
        slower = self.optimizer.param_groups[0]["lr"] / self.base  # the schedule drives the means; the others follow
        for group in self.adam.param_groups:
            group["lr"] = slower * group["base"]
        self.adam.step()


class _Curvature:
    """The running factors of a layer, and their damped inverses."""

    def __init__(self, layer: Bayesian, factors: Factors, scale: float) -> None:
        """Begin with what the posterior says, `scale · (V ⊗ U)⁻¹`: a weak start is little of either factor, not of one alone."""
        self.prior, self.posterior = layer.prior, cast(MatrixNormal, layer.posterior)
        inputs, outputs = self.posterior.precisions()
        before, now = scale * inputs.trace() * outputs.trace(), factors.inputs.trace() * factors.outputs.trace()
        share = (before / now).sqrt().clamp(max=1.0) if now > 0 else torch.ones_like(now)
        size = share * factors.inputs.trace() / inputs.trace()
        self.inputs, self.outputs = inputs * size, outputs * (scale / size)

    def add(self, factors: Factors, weight: float) -> None:
        self.inputs.lerp_(factors.inputs, weight)
        self.outputs.lerp_(factors.outputs, weight)

    @torch.no_grad()
    def invert(self, scale: float, damping: float, posterior_damping: float) -> None:
        """The posterior's covariance `scale · (F + γ)⁻¹`, and the inverse that turns gradients; in double precision."""
        prior = scale * self.prior.mean_precision()
        running = Factors(self.inputs.double(), self.outputs.double())
        eigenvalues = (torch.linalg.eigvalsh(running.inputs), torch.linalg.eigvalsh(running.outputs))
        inputs, outputs = damped(running, split_damping(*eigenvalues, prior + posterior_damping))
        self.posterior.set_(precision_to_scale_tril(inputs), precision_to_scale_tril(outputs / scale))
        for_steps = damped(running, split_damping(*eigenvalues, prior + damping))
        self.inverse = Factors(*(torch.cholesky_inverse(factorized(part)).to(self.inputs) for part in for_steps))

    def precondition(self, gradient: Tensor) -> Tensor:
        return self.inverse.outputs @ gradient @ self.inverse.inputs
