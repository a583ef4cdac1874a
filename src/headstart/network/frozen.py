"""Plain nets from a Bayesian one: its mean, or a fixed set of functions drawn from it."""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.kernels.fused import transformed
from headstart.kernels.random_state import seeded
from headstart.linalg.affine import split
from headstart.nested import TensorTree, is_whole, row_count
from headstart.network.chunks import draw_functions
from headstart.network.decompose import recompose_, replaced
from headstart.network.forward import run_plans
from headstart.network.inputs import as_tensors, fitted
from headstart.network.layer import Bayesian, bayesian_layers, count_members
from headstart.network.plan import ForwardRequest
from headstart.network.samplers import PlanMisfit, Sampler
from headstart.network.tied import refuse_tied, tied_to
from headstart.posteriors import Posterior


def freeze(
    model: nn.Module, samples: int = 128, seed: int | None = None, fold: bool = True
) -> Frozen:
    """A fixed set of functions drawn from the posterior, as a plain module that gives draws.

    It holds weights and no noise: the same input gives the same draws, on every machine that runs
    what `torch.export` or `torch.onnx.export(..., dynamo=True)` made of it. A seed gives the
    functions that `predict(..., sampler="weights", seed=seed)` averages over.

    Args:
        model: A converted net; it stays as it is.
        samples: The number of functions S, rounded up to a multiple of the members'.
        seed: Seeds the draws, and the caller's random numbers come back afterwards; None: the
            caller's.
        fold: Whether an export folds the samples into the batch. False: it runs one function after
            another, a graph S times as long, which suits nets that stack batches on axis 0.

    Returns:
        A module that gives (S, rows, ...), those of a member together.

    Raises:
        HeadstartError: S is below 1.

    Example:
        >>> import headstart as hs
        >>> model = hs.bayesianize(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)))
        >>> served = hs.freeze(model, samples=16, seed=0)
        >>> served(torch.ones(5, 3)).shape
        torch.Size([16, 5, 2])
    """
    if samples < 1:
        raise HeadstartError(f"At least one function must be drawn, not {samples}.")
    members = count_members(model)
    with seeded(seed, model), torch.no_grad():
        draws = draw_functions(model, -(-samples // members), members)
    refuse_tied(bayesian_layers(model), "hs.freeze")
    net = copy.deepcopy(model)
    for layer, weights in zip(list(bayesian_layers(net).values()), draws, strict=True):
        net = _replaced_everywhere(net, layer, DrawnLayer(layer.op, weights, layer.chain))
    return Frozen(net, fold)


class DrawnLayer(nn.Module):
    """An affine layer with the weights of S draws.

    Args:
        op: The stock layer's settings.
        weights: The draws, (S, units, size).
        chain: As that of `Bayesian`.
    """

    weights: Tensor

    def __init__(self, op: nn.Module, weights: Tensor, chain: tuple[str, ...]) -> None:
        super().__init__()
        self.op, self.chain = op, chain
        self.register_buffer("weights", weights)
        self.sampler: Sampler = _refuse_alone

    @property
    def entry(self) -> bool:
        """Whether the input reaches the rest of the net through this layer alone."""
        return len(self.chain) > 0

    def forward(self, input: Tensor) -> Tensor:
        """What the draws make of an input, as the plan of the pass says.

        Args:
            input: What the stock layer takes.
        """
        return self.sampler(self.op, cast(Posterior, None), input)

    def use(self, sampler: Sampler) -> None:
        """Follow this from now on.

        Args:
            sampler: What to do with an input.
        """
        self.__dict__["sampler"] = sampler

    def extra_repr(self) -> str:
        return f"samples={self.weights.shape[0]}"


def _refuse_alone(op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
    raise HeadstartError("A layer of frozen draws is called by hs.freeze's module alone.")


class Frozen(nn.Module):
    """Drawn functions of a net, one after another along axis 0 (`freeze`).

    It stays in evaluation mode, and nothing of it is trained.

    Args:
        net: The net, with a `DrawnLayer` in the place of every Bayesian one.
        fold: Whether samples are folded into the batch, where the net allows it.
    """

    def __init__(self, net: nn.Module, fold: bool = True) -> None:
        super().__init__()
        self.net, self.fold = net, fold
        self.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> Frozen:
        """Stay in evaluation mode.

        Args:
            mode: Not used.
        """
        return super().train(False)

    def forward(self, x: Any) -> Any:
        """The draws, (S, rows, ...), in a dictionary or tuple where the net has several heads.

        The samples are folded into the batch; where the net stacks several batches, one function
        runs after another.

        Args:
            x: The inputs of the net: a tensor, or a dictionary or tuple of tensors that the net
                takes.

        Raises:
            HeadstartError: The legacy ONNX exporter calls it, or the net does not keep the batch
                on axis 0.
        """
        if torch.jit.is_tracing():  # type: ignore[attr-defined]
            raise HeadstartError(
                "Frozen draws cannot be traced: export them with torch.export, or with "
                "torch.onnx.export(..., dynamo=True)."
            )
        x = fitted(as_tensors(x), self.net)
        layers = {
            name: cast(Bayesian, module)
            for name, module in self.net.named_modules()
            if isinstance(module, DrawnLayer)
        }
        weights = [cast(DrawnLayer, layer).weights for layer in layers.values()]
        samples = weights[0].shape[0]
        request = ForwardRequest(
            layers, "weights", samples, row_count(x), False, weights, None, moments={}
        )
        folded = (request.folded, request.repeated)
        # An exporter cannot go on after a pass that was broken off.
        kinds = [*folded] if transformed() else [*folded, request.one_by_one]
        if is_whole(x) or (transformed() and not self.fold):
            kinds = [request.one_by_one, *folded]
        try:
            return _as_plain(run_plans(self.net, layers, x, kinds))
        except PlanMisfit as misfit:
            raise HeadstartError(
                "This net does not see one batch of rows on axis 0 in every layer, so samples "
                "cannot be folded into it: export hs.freeze(model, fold=False), which runs one "
                "function after another."
            ) from misfit


def _as_plain(draws: TensorTree) -> Any:
    """Several heads as a dictionary or a tuple, which exporters know."""
    if isinstance(draws, Tensor):
        return draws
    return dict(draws.named) if draws.named else draws.args


def mean_network(model: nn.Module) -> nn.Module:
    """The net with the posterior's mean as its weights: a plain module of stock layers.

    Args:
        model: A converted net with one posterior; it stays as it is.

    Returns:
        A module with the names and shapes of the net that was converted, whose `state_dict` that
        net can load.

    Raises:
        HeadstartError: The posterior is a mixture.

    Example:
        >>> import headstart as hs
        >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> plain = hs.mean_network(hs.bayesianize(net))
        >>> torch.equal(plain[0].weight, net[0].weight)
        True
    """
    if count_members(model) > 1:
        raise HeadstartError(
            "The mean of a mixture is no net of its own: take that of a member, as in "
            "with hs.member(model, index): hs.mean_network(model)."
        )
    net = copy.deepcopy(model)
    for layer in list(bayesian_layers(net).values()):
        plain: Any = _mean_layer(layer)
        net = _replaced_everywhere(net, layer, plain)
        for reader in tied_to(net, layer):
            net = _replaced_everywhere(net, reader, reader.stock(plain.weight))
    return recompose_(net)


def _mean_layer(layer: Bayesian) -> nn.Module:
    """The stock layer with the mean as its weights."""
    op, mean = layer.op, layer.posterior.mean
    weight, bias = split(op, mean.detach().clone())
    padding = getattr(op, "padding_idx", None)
    if padding is not None:
        weight[padding] = 0.0
    op.weight = nn.Parameter(weight.contiguous(), mean.requires_grad)
    if bias is not None:
        op.bias = nn.Parameter(bias.clone(), mean.requires_grad)
    return op.train(layer.training)


def _replaced_everywhere(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """The model with `new` wherever `old` is: a module may have several names."""
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if module is old:
            model = replaced(model, name, new)
    return model
