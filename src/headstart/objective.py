"""The negative evidence lower bound: the likelihood scaled to the data set, the KL counted once."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.likelihoods import Likelihood
from headstart.nested import TensorTree, map_each, parts_of
from headstart.network.dense_chain import draw_dense_chain
from headstart.network.forward import check_sampler, forward
from headstart.network.inputs import as_tensors, fitted, read_batch
from headstart.network.layer import bayesian_layers, kl_and_moments


class Nelbo(NamedTuple):
    """The objective and its two terms, `value = nll + kl_weight · kl`.

    The three share a graph: going backward through two of them, one after the other, takes
    `retain_graph=True`.

    Args:
        value: The negative evidence lower bound.
        nll: The expected negative log-likelihood, scaled to the whole data set.
        kl: `KL(q‖p)`, summed over all weights and not multiplied by `kl_weight`.
    """

    value: Tensor
    nll: Tensor
    kl: Tensor

    def on_host(self) -> Nelbo:
        """The three numbers without their graph, fetched from the device at once."""
        kind = self.value.dtype
        return Nelbo(*torch.stack([part.detach().to(kind) for part in self]).cpu().unbind())


def nelbo(
    model: nn.Module,
    likelihood: Likelihood,
    x: Any,
    y: Any = None,
    *,
    num_data: int,
    samples: int = 8,
    kl_weight: float = 1.0,
    sampler: str = "local",
) -> Nelbo:
    """The negative evidence lower bound of one batch, `nll + kl_weight · KL(q‖p)`.

    With n training rows and a batch of m, `nll = (n/m) Σ_batch E_q[−log p(y|x, W)]`, the
    expectation by draws of the weights: an unbiased estimate of the whole data set's.

    Of a mixture `q = 1/K Σ_k q_k` it is the mean of the members' own, by the same number of draws
    of each. The expectation is that of the mixture, and the mean of the KLs is an upper bound of
    its KL: `KL(q‖p) ≤ 1/K Σ_k KL(q_k‖p)`, by at most log K (members that do not overlap). So what
    is returned is a bound of the evidence still.

    Args:
        model: The Bayesian net.
        likelihood: The likelihood of its labels.
        x: A batch of inputs: a tensor, or a dictionary or tuple of tensors that `forward` takes.
            Without `y` a batch with its labels: a pair `(x, y)`, or a dictionary with labels.
        y: Their labels.
        num_data: The number of rows of the whole training set, n; not of this batch.
        samples: Draws of the weights; the members of a mixture have as many each, so that the
            number is rounded up to a multiple of theirs.
        kl_weight: The temperature: 1 is the evidence lower bound, less a colder posterior.
        sampler: `local` draws pre-activations row by row, `weights` draws whole functions.

    Returns:
        The objective and its two terms, as scalars with gradients.

    Raises:
        HeadstartError: `num_data` is no number of rows, or labels and outputs do not match.

    Example:
        >>> import torch, headstart as hs
        >>> model, lik = hs.bayesianize(nn.Linear(3, 1)), hs.Gaussian()
        >>> loss = hs.nelbo(model, lik, torch.randn(8, 3), torch.randn(8), num_data=100)
        >>> loss.value.backward()
    """
    x, labels = _checked_batch(model, x, y, num_data)
    check_sampler(sampler, samples)
    layers = bayesian_layers(model)
    found = draw_dense_chain(model, layers, x, samples) if sampler == "local" else None
    if found is None:
        divergence, moments = kl_and_moments(model, layers)
        given = forward(model, x, samples, sampler, averaged=True, moments=moments, layers=layers)
    else:
        given, divergence = found
    nll = _nll_of_draws(likelihood, given, labels, num_data)
    # Multiplied by 1 it would only be another node of the graph.
    weighted = divergence if kl_weight == 1 else kl_weight * divergence
    return Nelbo(nll + weighted, nll, divergence)


def labels_like(likelihood: Likelihood, y: Any, f: TensorTree) -> Any:
    """Labels as the likelihood takes them, on the device of the outputs.

    They are checked where they lie: the host need not wait for a device to know that labels of its
    own are valid.

    Args:
        likelihood: The likelihood of the labels.
        y: Labels.
        f: Outputs of the net as the likelihood reads them.
    """
    device = parts_of(f)[0].device
    checked = likelihood.check(y, likelihood.outputs_of(f))
    return map_each(lambda part: part.to(device, non_blocking=device.type != "cpu"), checked)


def expected_nll(
    model: nn.Module,
    likelihood: Likelihood,
    x: Any,
    y: Any = None,
    *,
    num_data: int,
    samples: int = 8,
    sampler: str = "local",
) -> Tensor:
    """The likelihood's term of the NELBO, `(n/m) Σ_batch E_q[−log p(y|x, W)]`.

    Args:
        model: The Bayesian net.
        likelihood: The likelihood of its labels.
        x: A batch of m inputs, or without `y` a batch with its labels, as in `nelbo`.
        y: Their labels.
        num_data: The number of rows of the whole training set, n.
        samples: Draws of the weights.
        sampler: `local` draws pre-activations row by row, `weights` draws whole functions.

    Returns:
        A scalar with gradients.
    """
    x, labels = _checked_batch(model, x, y, num_data)
    given = forward(model, x, samples, sampler, averaged=True)
    return _nll_of_draws(likelihood, given, labels, num_data)


def _checked_batch(model: nn.Module, x: Any, y: Any, num_data: int) -> tuple[TensorTree, Any]:
    """Inputs as the net takes them, and labels as they are."""
    if num_data < 1:
        raise HeadstartError(f"num_data is the number of training rows; it cannot be {num_data}.")
    x, labels = read_batch(x) if y is None else (as_tensors(x), as_tensors(y, "y"))
    return fitted(x, model), labels


def _nll_of_draws(likelihood: Likelihood, given: Any, labels: Any, num_data: int) -> Tensor:
    """The likelihood's term of the NELBO, from draws of a net's outputs."""
    f = likelihood.read(given)
    likelihood.check_layout(labels, likelihood.layout(given))
    draws, y = parts_of(f)[0], labels_like(likelihood, labels, f)
    if len(y) != draws.shape[1]:
        raise HeadstartError(f"The net gave {draws.shape[1]} rows for {len(y)} labels.")
    return likelihood.log_prob(f, y).sum() * (-num_data / (draws.shape[0] * len(y)))
