"""Bayesian, the one layer; and what one asks of a net of them: its layers and its KL."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.kernels import private as torch_private
from headstart.kernels.fused import whole_precision
from headstart.linalg.affine import fan_in, flatten, split, units
from headstart.network.recomputation import replayed, replaying_alone
from headstart.network.samplers import Local, OutsidePlan, Sampler
from headstart.network.shown import ShownMean
from headstart.posteriors import KnownMoments, Posterior
from headstart.priors import Inherited, Prior


class Bayesian(nn.Module):
    """A stock affine layer whose weights are a posterior.

    `forward` draws the weights, or what they give: one draw, unless `hs.drawing` says otherwise.

    Args:
        op: The stock layer's settings (stride, padding, ...), without its weights.
        posterior: The posterior of the weights, a matrix (units, size) with the bias last. With
            (K · units, size) it is K posteriors, the members of a mixture, one after another.
        prior: Their prior.

    Example:
        >>> import torch, headstart as hs
        >>> layer = hs.bayesianize(nn.Linear(3, 2))
        >>> layer(torch.randn(5, 3)).shape, layer.kl().ndim
        (torch.Size([5, 2]), 0)
    """

    holds_posterior = True
    """What the search for the Bayesian layers of a net asks of a module's type."""

    def __init__(self, op: nn.Module, posterior: Posterior, prior: Prior) -> None:
        super().__init__()
        self.op, self.posterior, self.prior = op, posterior, prior
        self.chain: tuple[str, ...] = ()
        """The names of the layers that every path crosses, where the input enters the net here."""
        self.tied = False
        """Whether another module computes with the same weights (`headstart.network.tied`)."""
        self.members = posterior.units // units(op)
        """The number K of posteriors."""
        self.sampler: Sampler = Local() if self.members == 1 else OutsidePlan(self.members)

    @property
    def entry(self) -> bool:
        """Whether the input reaches the rest of the net through this layer alone.

        The layer may then see each row once, and draw from it S times.
        """
        return len(self.chain) > 0

    def forward(self, input: Tensor) -> Tensor:
        """A draw of the layer's output.

        Args:
            input: What the stock layer takes.
        """
        again = None if torch.compiler.is_compiling() else replayed(self)
        sampler = self.sampler if again is None else again
        return sampler(self.op, self.posterior, input)

    def use(self, sampler: Sampler) -> None:
        """Draw by this from now on.

        Args:
            sampler: What to do with the posterior and an input (`headstart.network.samplers`).
        """
        # A Module's own assignment searches its parameters first, and every step does this twice.
        self.__dict__["sampler"] = sampler

    def kl(self) -> Tensor:
        """KL(posterior ‖ prior), summed over the layer's weights; of members the mean."""
        total = self.posterior.kl(self.prior)
        return total if self.members == 1 else total / self.members

    @property
    def weight(self) -> Tensor:
        """The posterior's mean in the stock layer's own shape, to look at; of members the average.

        Code of others asks layers for their `weight.dtype`, `.device` and `.shape`. It is no
        parameter, and cannot be set: `posterior.mean` is what training moves. A `forward` that
        computes with it instead of calling the layer is refused.
        """
        return split(self.op, self._mean_weights())[0].as_subclass(ShownMean)

    @property
    def bias(self) -> Tensor | None:
        """The mean of the bias, as `weight`; None for a layer without."""
        found = split(self.op, self._mean_weights())[1]
        return None if found is None else found.as_subclass(ShownMean)

    def _mean_weights(self) -> Tensor:
        mean = self.posterior.mean.detach()
        return mean if self.members == 1 else mean.unflatten(0, (self.members, -1)).mean(0)

    def __repr__(self) -> str:
        # The skeleton has no bias of its own.
        op = f"{self.op}".replace(", bias=False", "") if self.has_bias else f"{self.op}"
        several = "" if self.members == 1 else f", members={self.members}"
        return f"Bayesian({op}, {self.posterior}, {self.prior}{several})"

    def may_give(self, outputs: int) -> bool:
        """Whether its units can be the outputs of a net, so many: not if it has another use too.

        Args:
            outputs: The number of outputs.
        """
        return self.posterior.units == outputs and not self.tied

    @property
    def fan_in(self) -> int:
        """Inputs a unit sees, bias not counted."""
        return fan_in(self.op)

    @property
    def has_bias(self) -> bool:
        """Whether the last column of the posterior is a bias."""
        return self.posterior.size > self.fan_in


@contextmanager
def one_draw(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Within this scope Bayesian layers that draw outputs draw weights, the same at every call.

    Args:
        modules: Layers, Bayesian or not.

    Example:
        >>> import torch, headstart as hs
        >>> layer, x = hs.bayesianize(nn.Linear(3, 2)), torch.ones(1, 3)
        >>> with one_draw([layer]):
        ...     torch.equal(layer(x), layer(x))
        True
    """
    layers = [cast(Bayesian, each) for each in modules if _is_bayesian(each)]
    before = [layer.sampler for layer in layers]
    try:
        with replaying_alone(layers) as again:
            for layer in layers:
                # Whatever else draws has the same weights at every call already.
                sampler = again.get(layer, layer.sampler)
                draw_weights = getattr(sampler, "by_weights", None)
                layer.use(sampler if draw_weights is None else draw_weights())
            yield
    finally:
        for layer, sampler in zip(layers, before, strict=True):
            layer.use(sampler)


def bayesian_layers(model: nn.Module) -> dict[str, Bayesian]:
    """The Bayesian layers of a module by name, each once.

    Args:
        model: A converted net, or a module that holds one.

    Returns:
        The layers, in the order of `named_modules`.

    Raises:
        HeadstartError: There is none.

    Example:
        >>> import headstart as hs
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        >>> list(bayesian_layers(hs.bayesianize(net)))
        ['0', '2']
    """
    layers = find_layers(model)
    if not layers:
        raise HeadstartError(
            f"This {type(model).__name__} has no Bayesian layer; "
            "pass it through headstart.bayesianize first."
        )
    return layers


def find_layers(model: nn.Module) -> dict[str, Bayesian]:
    """As `bayesian_layers`, for a module that may have none."""
    layers: dict[str, Bayesian] = {}
    _collect(model, "", layers, set())
    return layers


def _is_bayesian(module: nn.Module) -> bool:
    return getattr(type(module), "holds_posterior", False)


def _collect(
    module: nn.Module, name: str, layers: dict[str, Bayesian], seen: set[nn.Module]
) -> None:
    """`named_modules` that does not go into the layers: every step asks, more than once."""
    if module in seen:
        return
    seen.add(module)
    if _is_bayesian(module):
        layers[name] = cast(Bayesian, module)
        return
    for child, part in torch_private.children(module):
        if part is not None:
            _collect(part, f"{name}.{child}" if name else child, layers, seen)


def count_members(model: nn.Module) -> int:
    """The number K of members of a mixture; 1 for a net with a single posterior.

    Args:
        model: A converted net.

    Raises:
        HeadstartError: Parts of the net have different numbers of members.
    """
    return common_members(bayesian_layers(model))


def common_members(layers: Mapping[str, Bayesian]) -> int:
    """`count_members` of the net that has these layers."""
    counts = {layer.members for layer in layers.values()}
    if len(counts) > 1:
        raise HeadstartError(
            f"The layers of this net have {' and '.join(map(str, sorted(counts)))} members; "
            "convert the whole net with one bayesianize(..., members=)."
        )
    return counts.pop()


def kl(model: nn.Module) -> Tensor:
    """KL(q‖p) of the whole net: the sum over its layers.

    Of a mixture it is the mean of the members' KLs, an upper bound of the mixture's own.

    Args:
        model: A converted net.

    Returns:
        The KL in nats, a tensor without axes that gradients flow through.
    """
    return kl_and_moments(model)[0]


def kl_and_moments(
    model: nn.Module, layers: Mapping[str, Bayesian] | None = None
) -> tuple[Tensor, dict[Posterior, KnownMoments]]:
    """`kl(model)`, and the moments of weights that it has computed on the way.

    Draws that use the moments (`headstart.network.forward.forward`) share them with the KL: the
    gradient of both reaches the parameters in one pass.

    Args:
        model: A converted net.
        layers: Its `bayesian_layers`, where they are known already.

    Returns:
        The KL, and what to draw with in place of a posterior, where its moments are known.

    Example:
        >>> import torch, headstart as hs
        >>> from headstart.network.forward import forward
        >>> model = hs.bayesianize(nn.Linear(3, 2))
        >>> divergence, moments = kl_and_moments(model)
        >>> outputs = forward(model, torch.ones(1, 3), 4, "local", moments=moments)
        >>> (outputs.sum() + divergence).backward()
    """
    families: dict[type[Posterior], list[tuple[Posterior, Prior]]] = {}
    named = bayesian_layers(model) if layers is None else layers
    members, first = common_members(named), next(iter(named.values()))
    for layer in named.values():
        families.setdefault(type(layer.posterior), []).append((layer.posterior, layer.prior))
    # Determinants lose too much in half precision.
    with whole_precision(first.posterior.mean):
        (total, known), *others = [family.total_kl(pairs) for family, pairs in families.items()]
        for part, more in others:
            total, known = total + part, known | more
    return total if members == 1 else total / members, known


def inherit_(model: nn.Module) -> None:
    """Make the posterior of every layer its prior.

    Fit the model to new data next, and it remembers the old. Each member of a mixture gets its own
    posterior as its prior: the mean of the KLs bounds the KL of the two mixtures.

    Args:
        model: A converted net; its priors are replaced.

    Raises:
        HeadstartError: A posterior has no density with independent units.

    Example:
        >>> import headstart as hs
        >>> model = hs.bayesianize(nn.Linear(3, 2))
        >>> inherit_(model)
        >>> round(float(hs.kl(model).detach()), 6)
        0.0
    """
    for layer in bayesian_layers(model).values():
        layer.prior = Inherited.of(layer.posterior)


def skeleton(op: nn.Module) -> nn.Module:
    """A copy of a stock layer without its weights."""
    bare = copy.deepcopy(op)
    for name, _ in list(bare.named_parameters(recurse=False)):
        bare.register_parameter(name, None)
    return bare


def stock_weights(op: nn.Module) -> Tensor:
    """The stock layer's own weights as a matrix (units, size)."""
    weight: Any = op.weight
    bias: Any = getattr(op, "bias", None)
    return flatten(op, weight.detach(), None if bias is None else bias.detach())


def layer_size(op: nn.Module) -> tuple[int, int]:
    """(units, size): the shape of the layer's weight matrix."""
    return units(op), fan_in(op) + (getattr(op, "bias", None) is not None)
