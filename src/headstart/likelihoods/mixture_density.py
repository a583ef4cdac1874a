"""Real-valued labels with several modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headstart.distributed.rows import LOCAL_ROWS, AllRows
from headstart.errors import HeadstartError
from headstart.likelihoods.base import check_columns, gaussian_log_density
from headstart.likelihoods.heteroscedastic import LIMIT, LOG_CHI2_VAR
from headstart.likelihoods.quantiles import NORMAL, mixture_quantile
from headstart.likelihoods.standardized_labels import StandardizedLabels, positive_option
from headstart.likelihoods.targets import CONCENTRATION, fourier_features, lognormal_match

SPREAD = 0.5
"""The standard deviation of the components' means around the first fit, of scaled labels."""
MIN_RESPONSIBILITY = 1e-3
"""What a row counts for at least in the regression of a component."""


class MixtureDensity(StandardizedLabels):
    """y ~ Σ_k π_k N(loc + scale · m_k, scale² · noise_var · exp(s_k)), a mixture of Gaussians.

    The outputs of a target are K logits of π, K means m and K log-variances s, relative to
    `noise_var`; those of several targets stand one after another.
    I-BLM regresses in two rounds, as EM does.
    First all means on the labels, each with an offset of its own.
    Then each component on the rows that it is responsible for in that fit, and the logits on the
    responsibilities.
    The log-variances begin at 0, and `noise_var` at its most likely value.

    Args:
        components: K, at least 2.
        noise_var: the variance of components with s = 0, of the scaled labels.
        learn_noise: whether it is learned with the weights.
        loc: what is added to the means, one number or one per target.
        scale: what they are multiplied by first, one number or one per target.

    Example:
        >>> lik = MixtureDensity(components=2, noise_var=1.0, learn_noise=False)
        >>> lik.log_prob(torch.zeros(1, 6), torch.ones(1, 1))  # log N(1 | 0, 1), twice the same
        tensor([-1.4189])
    """

    name = "mixture_density"

    def __init__(
        self,
        components: int,
        noise_var: float = 0.1,
        *,
        learn_noise: bool = True,
        loc: float | Sequence[float] | Tensor = 0.0,
        scale: float | Sequence[float] | Tensor = 1.0,
    ) -> None:
        super().__init__(loc, scale)
        if components < 2:
            raise HeadstartError(
                f"MixtureDensity needs at least two components, not {components}; "
                "hs.Heteroscedastic has one."
            )
        self.components = components
        log_var = positive_option(noise_var, "noise_var").log()
        self.log_noise_var = nn.Parameter(log_var, requires_grad=learn_noise)

    @property
    def noise_var(self) -> Tensor:
        """The variance of components with s = 0, of the scaled labels."""
        return self.log_noise_var.exp()

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels in the one shape and dtype that the other methods take.

        Args:
            y: real numbers, (rows, D), or (rows,) where D = 1.
            outputs: the outputs of the net, 3KD.

        Raises:
            HeadstartError: where they do not fit.
        """
        each = 3 * self.components
        if outputs % each:
            raise HeadstartError(
                f"MixtureDensity(components={self.components}) reads {each} outputs per target, "
                f"so the net needs a multiple of {each} outputs, not {outputs}."
            )
        return check_columns(y, outputs // each, "MixtureDensity")

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y | f) of each row, (..., B).

        Args:
            f: outputs of the net, (..., B, 3KD).
            y: labels as `check` returns them.
        """
        each = self._joint(f, y).logsumexp(-1) - self.scale.to(f).log()
        return each.sum(-1)

    def regression_targets(self, y: Tensor, center: bool = True) -> tuple[Tensor, Tensor]:
        """Labels with an offset for each mean, 0 for logits and log-variances.

        Args:
            y: labels as `check` returns them.
            center: makes no difference.

        Returns:
            Targets (N, 3KD) and noise variances.
        """
        t = self._standard(y).unsqueeze(-1)
        order = torch.arange(self.components, dtype=t.dtype, device=t.device)
        means = t + SPREAD * torch.special.ndtri((order + 0.5) / self.components)
        targets = [torch.zeros_like(means), means, torch.zeros_like(means)]
        noise = torch.stack([t.new_ones(()), self._noise(t), t.new_tensor(LOG_CHI2_VAR)])
        v = noise.repeat_interleave(self.components).repeat(y.shape[1]).expand(len(y), -1)
        return torch.stack(targets, -2).flatten(1), v

    def refined_targets(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """Targets of the second round, a row's precision times each responsibility.

        Args:
            y: labels as `check` returns them.
            f: outputs of the mean network after the first round, (N, 3KD).
        """
        _, means, _ = self._parts(f)
        # One width for all in the first round: components differ by their means alone.
        distance = (self._standard(y).unsqueeze(-1) - means).square()
        counts = (-0.5 * distance / SPREAD**2).softmax(-1).clamp_min(MIN_RESPONSIBILITY)
        logits, v_logits = lognormal_match(counts + CONCENTRATION)
        labels = self._standard(y).unsqueeze(-1).expand_as(means)
        # The means of the second round are not known yet, so neither are their residuals.
        zero = torch.zeros_like(means)
        t = torch.stack([logits - logits.mean(-1, keepdim=True), labels, zero], -2)
        v = torch.stack([v_logits, self._noise(f) / counts, LOG_CHI2_VAR / counts], -2)
        return t.flatten(1), v.flatten(1)

    def label_features(
        self, y: Tensor, count: int, rows: AllRows = LOCAL_ROWS
    ) -> tuple[Tensor, Tensor]:
        """Random Fourier features of the labels.

        Args:
            y: labels as `check` returns them.
            count: how many.
            rows: means over all rows, of which `y` may be a shard.
        """
        t = self._standard(y)
        return fourier_features(t, self._noise(t), count, rows)

    def mean(self, f: Tensor) -> Tensor:
        """`loc + scale · Σ π m`.

        Args:
            f: outputs of the net, (..., B, 3KD).
        """
        logits, means, _ = self._parts(f)
        return self._in_units((logits.softmax(-1) * means).sum(-1))

    def variance(self, f: Tensor) -> Tensor:
        """`scale² · Σ π (noise_var · exp(s) + (m − Σ π m)²)`.

        Args:
            f: outputs of the net, (..., B, 3KD).
        """
        logits, means, log_var = self._parts(f)
        weights = logits.softmax(-1)
        center = (weights * means).sum(-1, keepdim=True)
        within = (weights * (log_var.exp() + (means - center).square())).sum(-1)
        return self.scale.to(f).square() * within

    def sample(self, f: Tensor) -> Tensor:
        """Labels, (..., B, D).

        Args:
            f: outputs of the net, (..., B, 3KD).
        """
        logits, means, log_var = self._parts(f)
        # log p − log e is a Gumbel race for the largest.
        chosen = (logits - torch.empty_like(logits).exponential_().log_()).argmax(-1, keepdim=True)
        drawn = means + (0.5 * log_var).exp() * torch.randn_like(means)
        return self._in_units(drawn.gather(-1, chosen).squeeze(-1))

    def quantile(self, f: Tensor, level: float) -> Tensor:
        """A quantile of the predictive mixture over draws and components.

        Args:
            f: draws of the outputs, (S, B, 3KD).
            level: between 0 and 1.
        """
        parts = (part.movedim(-1, 0).flatten(0, 1) for part in self._parts(f))
        logits, means, log_var = parts
        weights = logits.unflatten(0, (self.components, -1)).softmax(0).flatten(0, 1) / len(f)
        sd = (0.5 * log_var).exp().detach()
        found = mixture_quantile(means, sd, level, NORMAL, weights=weights)
        return self._in_units(found)

    def config(self) -> dict[str, Any]:
        return {"components": self.components, "learn_noise": self.log_noise_var.requires_grad}

    def extra_repr(self) -> str:
        return f"components={self.components}, noise_var={self.noise_var.tolist()}"

    def _noise(self, like: Tensor) -> Tensor:
        return self.noise_var.detach().to(like)

    def _parts(self, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, means and logarithms of variances of scaled labels, each (..., B, D, K)."""
        logits, means, relative = f.unflatten(-1, (-1, 3, self.components)).unbind(-2)
        log_var = relative + self.log_noise_var.to(f)
        return logits, means, log_var.clamp(-LIMIT, LIMIT)

    def _joint(self, f: Tensor, y: Tensor) -> Tensor:
        """log π_k N(y | k) of scaled labels, (..., B, D, K)."""
        logits, means, log_var = self._parts(f)
        density = gaussian_log_density(self._standard(y).unsqueeze(-1), means, log_var.exp())
        return logits.log_softmax(-1) + density
