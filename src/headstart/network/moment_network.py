"""The mean and the variance of a Bayesian net's outputs in one pass, without draws."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from headstart.errors import HeadstartError
from headstart.kernels.random_state import seeded
from headstart.linalg.affine import affine_each, is_dense
from headstart.network.branching import LayerTracer
from headstart.network.layer import Bayesian, bayesian_layers, count_members
from headstart.network.moment_layers import pooled_first, stage_of
from headstart.network.moment_stages import ElementMoments, Stage
from headstart.network.tied import refuse_tied

GROUP_ROWS = 8
"""Rows that share draws in `moment_network`.

Few do: what a draw gets wrong averages out over the groups.
"""
LAYERS_OF_CALLS: dict[Any, Callable[..., nn.Module]] = {
    F.relu: nn.ReLU,
    torch.relu: nn.ReLU,
    "relu": nn.ReLU,
    F.leaky_relu: nn.LeakyReLU,
    torch.tanh: nn.Tanh,
    F.tanh: nn.Tanh,
    "tanh": nn.Tanh,
    torch.sigmoid: nn.Sigmoid,
    "sigmoid": nn.Sigmoid,
    F.gelu: nn.GELU,
    F.silu: nn.SiLU,
    F.max_pool2d: nn.MaxPool2d,
    F.avg_pool2d: nn.AvgPool2d,
    torch.flatten: lambda start_dim=0, end_dim=-1: nn.Flatten(start_dim, end_dim),
    "flatten": lambda start_dim=0, end_dim=-1: nn.Flatten(start_dim, end_dim),
}
"""Functions and methods that a `forward` may call, and the layers that they are."""


def moment_network(
    model: nn.Module, inputs: Tensor | None = None, *, samples: int = 256, seed: int = 0
) -> MomentNetwork:
    """A plain module that gives mean and variance of the outputs, in one pass and without noise.

    Means and variances of all elements go through the net layer by layer, as if elements were
    Gaussian. Elements have correlations, which would cost too much to follow: a factor per unit
    stands for them, set once by draws of the net on `inputs`. For one layer the result is exact.

    Args:
        model: A converted net whose layers form a chain: linear layers, convolutions, activations,
            pooling, flattening, dropout, batch normalization. It stays as it is, and its present
            posterior is the one that counts.
        inputs: Rows like those to come, a hundred or more of the training data; None: elements are
            taken as uncorrelated, and deep nets or convolutions may be wrong by far.
        samples: Draws of each row of `inputs`.
        seed: Seeds the draws; the caller's random numbers come back afterwards.

    Returns:
        A module that gives `(mean, variance)` of each output, the noise of labels not included.

    Raises:
        HeadstartError: The net is no such chain, or the posterior a mixture.

    Example:
        >>> import headstart as hs
        >>> model = hs.bayesianize(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)))
        >>> served = moment_network(model, torch.randn(64, 3), samples=64)
        >>> mean, variance = served(torch.ones(5, 3))
        >>> mean.shape, bool((variance > 0).all())
        (torch.Size([5, 2]), True)
    """
    if count_members(model) > 1:
        raise HeadstartError(
            "A mixture has no moments of its own here: take those of a member, as in "
            "with hs.member(model, index): hs.moment_network(model, inputs)."
        )
    refuse_tied(bayesian_layers(model), "hs.moment_network")
    if samples < 2:
        raise HeadstartError(f"A variance needs at least two draws, not {samples}.")
    with torch.no_grad():
        modules = pooled_first(list(_chain(copy.deepcopy(model).eval())))
        network = MomentNetwork([stage_of(module) for module in modules])
        if inputs is not None:
            with seeded(seed, inputs, network):
                _fit_stages(modules, network.stages, inputs, samples)
    return network


class MomentNetwork(nn.Module):
    """Mean and variance of a net's outputs (`moment_network`).

    It stays in evaluation mode, and nothing of it is trained.

    Args:
        stages: The layers of the chain, from moments to moments.
    """

    def __init__(self, stages: Sequence[Stage]) -> None:
        super().__init__()
        self.stages: Any = nn.ModuleList(stages)
        self.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> MomentNetwork:
        """Stay in evaluation mode.

        Args:
            mode: Not used.
        """
        return super().train(False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the outputs.

        Args:
            x: The inputs, a batch on axis 0.
        """
        moments = ElementMoments(x, None)
        for stage in self.stages:
            moments = stage(moments)
        mean, var = moments
        return mean, torch.zeros_like(mean) if var is None else var


def _chain(model: nn.Module) -> Iterator[nn.Module]:
    """The layers of a net, in order, where each takes what the one before gives."""
    if isinstance(model, Bayesian):
        yield model
        return
    layers: set[nn.Module] = set(bayesian_layers(model).values())
    try:
        graph = LayerTracer(layers).trace(model)
    except Exception as error:
        raise _no_chain("its forward cannot be traced") from error
    before: fx.Node | None = None
    for node in graph.nodes:
        if node.op == "placeholder" and before is None:
            before = node
        elif before is None or node.all_input_nodes != [before] or node.args[0] is not before:
            raise _no_chain(f"{node} takes more than what the layer before gives")
        elif node.op != "output":
            yield from _layers_of(model, node)
            before = node


def _layers_of(model: nn.Module, node: fx.Node) -> Iterator[nn.Module]:
    """The layers that a node of a traced net stands for."""
    if node.op == "call_module":
        module = model.get_submodule(str(node.target))
        yield from module if type(module) is nn.Sequential else [module]
    elif node.target in LAYERS_OF_CALLS:
        yield LAYERS_OF_CALLS[node.target](*node.args[1:], **node.kwargs)
    else:
        raise _no_chain(f"it calls {node.target}, whose moments are not known")


def _no_chain(why: str) -> HeadstartError:
    return HeadstartError(
        f"hs.moment_network takes nets whose layers form a chain, and in this one {why}: "
        "serve draws with hs.freeze(model) instead."
    )


def _fit_stages(
    modules: Sequence[nn.Module], stages: Sequence[Stage], inputs: Tensor, samples: int
) -> None:
    """Set the factors of the stages, from the first layer to the last, by draws on these rows."""
    # Copies, since what comes first may work in place.
    parts = [rows.clone() for rows in inputs.split(GROUP_ROWS)]
    groups = [_drawn_moments(modules, stages, rows, samples) for rows in parts]
    joined = iter([_all_rows(parts) for parts in zip(*groups, strict=True)])
    given = ElementMoments(inputs, None)
    for stage in stages:
        if stage.is_fitted:
            stage.fit_(given, next(joined))
        given = stage(given)


def _all_rows(parts: Sequence[ElementMoments]) -> ElementMoments:
    """The moments of all groups of rows."""
    known = [part.var for part in parts if part.var is not None]
    return ElementMoments(torch.cat([part.mean for part in parts]), torch.cat(known))


def _drawn_moments(
    modules: Sequence[nn.Module], stages: Sequence[Stage], x: Tensor, samples: int
) -> list[ElementMoments]:
    """The moments over draws of what comes out of every stage that they set."""
    weights: dict[nn.Module, Tensor] = {}
    found: list[ElementMoments] = []
    shared, rows = True, len(x)
    for module, stage in zip(modules, stages, strict=True):
        if not isinstance(module, Bayesian):
            x = module(x)
        elif is_dense(module.op) and x.ndim == 2 and modules.count(module) == 1:
            # Weights that meet a row once may be drawn for each row: the law is the same.
            x = module.posterior.local(module.op, x, samples if shared else 1)
            shared = False
        else:
            drawn = weights.setdefault(module, module.posterior.sample(samples))
            x, shared = affine_each(module.op, x, drawn, shared), False
        if stage.is_fitted:
            draws = x.unsqueeze(0) if shared else x.unflatten(0, (samples, rows))
            found.append(ElementMoments(draws.mean(0), draws.var(0, correction=int(not shared))))
    return found
