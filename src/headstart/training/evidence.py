"""`evidence`: how well a net's features explain labels, before its read-out is trained."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from headstart.batching import Data
from headstart.distributed.collectives import group_of
from headstart.distributed.fabric import Fabric
from headstart.errors import HeadstartError
from headstart.kernels.random_state import kept_random_state
from headstart.likelihoods import Likelihood
from headstart.training.conditional import condition
from headstart.training.read_out import find_read_out


@dataclass(frozen=True)
class Evidence:
    """The log evidence of a read-out at the best noise and prior variance.

    Args:
        log_evidence: in nats, of all rows.
        per_row: the same for each row.
        noise_var: the noise variances at the maximum.
        prior_var: the prior variance at the maximum; None where there is no single one.
    """

    log_evidence: float
    per_row: float
    noise_var: tuple[float, ...]
    prior_var: float | None


@torch.no_grad()
def evidence(
    model: nn.Module,
    likelihood: Likelihood,
    batches: Data,
    *,
    draws: int = 8,
    learn_prior: bool = True,
    num_data: int | None = None,
    seed: int = 0,
    fabric: Fabric | None = None,
) -> Evidence:
    """The closed-form log evidence of the read-out on the net's features, `E_q(h) log p(y | h)`.

    With it one can choose among nets or starts without validation rows: the read-out's weights are
    integrated out, noise and prior variance are at their best. Features that were fitted to the
    same labels inflate it, so pass rows that the layers below have not seen: initialize or train on
    one half, ask for the evidence of the other. Depth counts only through the features: the KL of
    the layers below is not part of it.

    Args:
        model: The Bayesian net; it stays as it is.
        likelihood: The likelihood of the labels; it stays as it is.
        batches: Rows, as in `fit`; better others than the layers below have learned from.
        draws: Draws of the layers below, over which the logarithm is averaged.
        learn_prior: Whether the read-out's prior variance is at its best, or as it is.
        num_data: The number of rows, where a loader's length does not tell.
        seed: Seeds the draws; the caller's random numbers come back afterwards.
        fabric: A launched `lightning.fabric.Fabric`, as in `condition`: the evidence is that of the
            rows of all ranks.

    Returns:
        The evidence, and where its maximum is.

    Raises:
        HeadstartError: The noise is not Gaussian and the same in every row, so that there is no
            closed form; or the net does not end in a linear read-out.

    Example:
        >>> import headstart as hs
        >>> x = torch.linspace(-2, 2, 200).unsqueeze(1)
        >>> model, lik = hs.bayesianize(hs.models.create("mlp-1x50", 1, 1)), hs.Gaussian()
        >>> _ = hs.initialize_(model, "iblm", lik, (x[::2], x[::2].sin()))
        >>> hs.evidence(model, lik, (x[1::2], x[1::2].sin())).per_row > 0
        True
    """
    group = group_of(fabric, model)
    with kept_random_state(model):
        outputs = find_read_out(model, likelihood, batches, num_data, group).outputs
    if likelihood.noise_model(outputs) is None:
        raise HeadstartError(
            f"The evidence of a read-out has no closed form for {type(likelihood).__name__}; "
            "compare nets by hs.evaluate on validation rows instead."
        )
    found = condition(
        model,
        likelihood,
        batches,
        draws=draws,
        widen=False,
        learn_prior=learn_prior,
        num_data=num_data,
        seed=seed,
        progress=False,
        fabric=fabric,
    )
    noise = found.likelihood.noise_model(outputs)
    assert noise is not None
    total, variances = -found.read_out_nelbo, tuple(noise.log_var.exp().tolist())
    return Evidence(total, total / found.num_data, variances, found.prior_var)
