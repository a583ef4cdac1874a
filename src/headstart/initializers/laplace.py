"""The Laplace approximation: trained weights as means, and the covariance from the data."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from headstart.batching import Batches
from headstart.errors import HeadstartError
from headstart.initializers.gauss_newton import Curvature, curvature_of, layer_slopes
from headstart.initializers.pretrained import pretrained_
from headstart.initializers.walk import execution_order
from headstart.likelihoods import Likelihood
from headstart.linalg.laplace import best_prior_variance
from headstart.linalg.precision import in_double
from headstart.nested import feed, heads_of
from headstart.network.forward import check_outputs, drawing
from headstart.network.layer import Bayesian, bayesian_layers
from headstart.network.probe import evaluating
from headstart.network.tied import refuse_tied

ROWS_AT_ONCE = 128
"""Rows that go through the net at a time."""
NOISE_ROWS = 16_384
"""Rows by which the noise of the likelihood is set."""


@torch.no_grad()
def laplace_(
    model: nn.Module,
    likelihood: Likelihood,
    batches: Batches,
    *,
    net: nn.Module | None = None,
    rows: int | None = None,
    fit_noise: bool = True,
) -> Iterator[str]:
    """Means are trained weights; covariances `(Σ Jᵀ H J + Λ)⁻¹` at them, layer by layer.

    `H = −∂² log p(y | f)` and J is the Jacobian of the outputs by the weights of a layer. The
    matrix has the form of the posterior: a matrix for each unit (full_covariance, and low_rank
    where that fits into memory), Kronecker factors (matrix_normal), or its diagonal. A learned
    prior gets the variance with the largest evidence; a fixed one stays.

    Args:
        model: the Bayesian net, overwritten; its means are those of the net it was converted from.
        likelihood: the likelihood of its labels.
        batches: the data that the net was trained on.
        net: a trained net whose weights to take first, as "pretrained" does.
        rows: a bound on the rows that are used; they stand for the others. None for all.
        fit_noise: whether what the likelihood learns with the weights, a noise variance, is set
            to its best at the trained weights first.

    Yields:
        The name of each layer as it is done.
    """
    if not likelihood.is_plain:
        raise HeadstartError(
            "The Laplace approximation takes one label for each row and nothing beside it, not "
            f"those of {likelihood.name}: start with 'iblm', or with 'pretrained' from a net."
        )
    if rows is not None and rows < 1:
        raise HeadstartError(f"The rows of the Laplace approximation are at least 1, not {rows}.")
    refuse_tied(bayesian_layers(model), "The Laplace approximation")
    if net is not None:
        list(pretrained_(model, net=net))
    # Refuses a net that mixes rows.
    execution_order(model, next(batches.take(2))[0])
    if fit_noise and any(p.requires_grad for p in likelihood.parameters()):
        _fit_noise_(model, likelihood, batches)
    found = {name: curvature_of(layer) for name, layer in bayesian_layers(model).items()}
    _add_rows(found, model, likelihood, batches, rows)
    for name, curvature in found.items():
        curvature.scale_(batches.rows, batches.num_data)
        _learn_prior_(curvature.layer, curvature)
        curvature.place_()
        yield name


def _fit_noise_(model: nn.Module, likelihood: Likelihood, batches: Batches) -> None:
    """The noise of the mean network's residuals."""
    outputs: list[Tensor] = []
    labels: list[Tensor] = []
    for batch in batches.shards(NOISE_ROWS):
        with evaluating(model), drawing(model, "mean"):
            f = check_outputs(heads_of(feed(model, batch.padded)).unsqueeze(0))[0]
        outputs.append(batch.unpad(f))
        labels.append(likelihood.check(batch.y, f.shape[-1]))
    f, y = batches.rows.gather([torch.cat(outputs), torch.cat(labels)])
    likelihood.fit_(f.unsqueeze(0), y)


def _add_rows(
    found: dict[str, Curvature],
    model: nn.Module,
    likelihood: Likelihood,
    batches: Batches,
    rows: int | None,
) -> None:
    """One pass over the data, or as much of it as the layers use."""
    for batch in batches.shards(rows):
        for part in batch.split(ROWS_AT_ONCE):
            wanted = {name for name, each in found.items() if each.rows < each.max_rows}
            if not wanted:
                return
            for name in wanted:
                found[name].rows += part.shard.total
            # A rank may have no row of a small part.
            if len(part.x):
                for name, slopes in layer_slopes(model, likelihood, part.x, part.y):
                    if name in wanted:
                        found[name].add(slopes)


def _learn_prior_(layer: Bayesian, curvature: Curvature) -> None:
    """A learned variance gets the largest evidence; a fixed or inherited prior stays."""
    prior = layer.prior
    if prior.fixed_var is not None or prior.with_variance(1.0) is None:
        return
    square = float(in_double(layer.posterior.mean.detach()).square().sum())
    best = prior.with_variance(best_prior_variance(curvature.eigenvalues(), square))
    assert best is not None
    # In place: the members of a mixture share it.
    prior.load_state_dict(best.state_dict())
