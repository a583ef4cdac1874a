"""From any module to a Bayesian one: which layers, with which posterior and prior."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from headstart.errors import HeadstartError, in_error, unknown
from headstart.linalg.affine import is_affine
from headstart.linalg.gaussians import Diagonal
from headstart.network.branching import mark_chain_
from headstart.network.decompose import can_decompose, decompose_, is_within, replaced, restore_
from headstart.network.layer import Bayesian, find_layers, layer_size, skeleton, stock_weights
from headstart.network.tied import choose_owner, shared_weights, tie_
from headstart.posteriors import POSTERIORS, Posterior
from headstart.posteriors.base import default_logvar
from headstart.posteriors.mixture import stack
from headstart.priors import make_prior

Where = str | Sequence[str] | Callable[[str, nn.Module], bool] | None
_BATCH_NORMS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d),
)
_UNREMARKED = (nn.Dropout, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, *_BATCH_NORMS, nn.PReLU)


def bayesianize(
    net: nn.Module,
    posterior: str | Callable[..., Posterior] | Mapping[str, Any] = "mean_field",
    prior: float | str | Callable[[nn.Module], Any] | Mapping[str, Any] = 1.0,
    where: Where = None,
    members: int = 1,
) -> nn.Module:
    """A Bayesian copy of a net: every affine layer becomes a `Bayesian` one.

    A layer starts at its own weights as the mean, with variance 1/size: call `initialize_` next.

    With `members=K` the posterior is a mixture of K posteriors of the family, `1/K Σ_k q_k`, over
    all converted layers at once: it can hold several modes. Every member has an equal part of the
    samples. What is not converted, the prior and the likelihood are the same for all.

    Args:
        net: Any module with Linear, Conv, ConvTranspose, Embedding, Bilinear, attention or
            recurrent layers; it is left untouched.
        posterior: The variational family of all layers, by name (`headstart.posteriors`) or as a
            function of (units, size); or a mapping from pattern to choice, of which the first
            pattern that fits counts ("*" for the rest).
        prior: The prior of all layers: a variance, a name (`headstart.priors`) or a function of
            the layer; or a mapping from pattern to choice.
        where: The layers to convert: a name or pattern ("head", "features.*"), "last", either with
            a leading "!" for all but these, a list of them, or a function of (name, module).
            None: every affine layer.
        members: The number K of posteriors; `initialize_` gives each a start of its own.

    Returns:
        The converted copy, of the same class as `net`.

    Raises:
        HeadstartError: There is nothing to convert, an option fits no layer, or a family cannot
            have members.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        >>> families = {"2": "full_covariance", "*": "mean_field"}
        >>> model = bayesianize(net, posterior=families, prior="fan-in")
        >>> model[0].posterior.name, model[2].posterior.name
        ('mean_field', 'full_covariance')
    """
    if not (isinstance(members, int) and members >= 1):
        raise HeadstartError(f"members is a whole number, at least 1, not {members!r}.")
    if not isinstance(net, nn.Module):
        raise HeadstartError(
            f"bayesianize takes an instance of torch.nn.Module, not {in_error(net)}."
        )
    if find_layers(net):
        raise HeadstartError("This module is Bayesian already; convert the plain net it came from.")
    try:
        model = copy.deepcopy(net)
    except RuntimeError as error:
        raise HeadstartError(
            f"This {type(net).__name__} cannot be copied ({error}); "
            "remove old-style weight_norm first."
        ) from error
    shared = shared_weights(model)
    model, stock = decompose_(model)
    _check_patterns(model, posterior, prior)
    names = _selected(model, where)
    tied = _converted_together(model, shared, names)
    model = restore_(model, stock, names)
    converted: dict[nn.Module, nn.Module] = {}
    for name in names:
        module = model.get_submodule(name)
        if module not in converted and not any(name in others for others in tied.values()):
            layer = _convert(module, _choice(posterior, name), _choice(prior, name), members)
            converted[module] = layer
    model = _replaced_all(model, converted)
    readers = tie_(model, tied, members)
    model = _replaced_all(
        model, {model.get_submodule(name): layer for name, layer in readers.items()}
    )
    _leave_fused_paths_(model)
    _mark_deterministic(model)
    mark_chain_(model)
    return model


def _replaced_all(model: nn.Module, by: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """The model with other modules in the place of some, under all their names."""
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if module in by:
            model = replaced(model, name, by[module])
    return model


def _selected(model: nn.Module, where: Where) -> list[str]:
    """The names of the affine layers to convert."""
    affine_names = [name for name, m in model.named_modules() if is_affine(m)]
    if not affine_names:
        kinds = "Linear, Conv, ConvTranspose, Embedding, Bilinear, attention or recurrent"
        raise HeadstartError(
            f"This {type(model).__name__} has nothing to convert: no {kinds} layer in it."
        )
    if where is None:
        return affine_names
    if not (callable(where) or isinstance(where, Iterable)):
        raise HeadstartError(
            f"where is a name, a list of names or a function of a name and a layer, not {where!r}."
        )
    if callable(where):
        chosen = [name for name in affine_names if where(name, model.get_submodule(name))]
    else:
        chosen = _select(affine_names, [where] if isinstance(where, str) else list(where))
    if not chosen:
        raise HeadstartError(
            f"where={where!r} selects no layer; there are: {', '.join(affine_names)}."
        )
    return chosen


def _select(names: list[str], patterns: list[str]) -> list[str]:
    """The names that fit one of the patterns, and none of those with a leading "!"."""
    fitting = {pattern: _matching(names, pattern.removeprefix("!")) for pattern in patterns}
    excluded = {name for pattern in patterns if pattern[:1] == "!" for name in fitting[pattern]}
    included = {name for pattern in patterns if pattern[:1] != "!" for name in fitting[pattern]}
    # Patterns that only leave layers out leave them out of all.
    return [name for name in names if name in (included or names) and name not in excluded]


def _matching(names: list[str], pattern: str) -> list[str]:
    if pattern == "last":
        return names[-1:]
    found = [name for name in names if _fits(name, pattern)]
    if not found:
        raise unknown("affine layer", pattern, names)
    return found


def _fits(name: str, pattern: str) -> bool:
    """Whether a layer, or a module that it is in, has such a name."""
    return any(fnmatchcase(part, pattern) for part in (*_parents(name)[1:], name))


def _check_patterns(net: nn.Module, *specs: Any) -> None:
    """A per-layer choice whose pattern fits no layer is a slip of the pen."""
    names = [name for name, module in net.named_modules() if is_affine(module)]
    for pattern in (pattern for spec in specs if isinstance(spec, Mapping) for pattern in spec):
        if pattern != "*" and not any(_fits(name, pattern) for name in names):
            raise unknown("affine layer", pattern, names)


def _choice(spec: Any, name: str) -> Any:
    """One layer's value of a per-layer option."""
    if not isinstance(spec, Mapping):
        return spec
    for pattern, value in spec.items():
        if _fits(name, pattern):
            return value
    raise HeadstartError(f"No pattern of {list(spec)} fits layer {name!r}; add a '*' for the rest.")


def _convert(module: nn.Module, posterior: Any, prior: Any, members: int) -> Bayesian:
    if isinstance(module.weight, nn.UninitializedParameter):
        raise HeadstartError(
            f"{module} is lazy and has no weights yet; run one batch through the net first."
        )
    _check_padding(module)
    if isinstance(posterior, str):
        if posterior not in POSTERIORS:
            raise unknown("posterior", posterior, POSTERIORS)
        posterior = POSTERIORS[posterior]
    factory = {"dtype": module.weight.dtype, "device": module.weight.device}
    family = posterior(*layer_size(module), **factory)
    if not family.supports(module):
        raise HeadstartError(
            f"A {family.name} posterior does not support {module}; choose mean_field for this one."
        )
    weights = stock_weights(module)
    family.project_(Diagonal(weights, torch.full_like(weights, default_logvar(family.size)).exp()))
    op, stacked = skeleton(module), stack(family, members)
    return Bayesian(op, stacked, make_prior(prior, op).to(weights)).train(module.training)


def _check_padding(module: nn.Module) -> None:
    """The embedding of padding is zero, and has no posterior."""
    if not isinstance(module, nn.Embedding) or module.padding_idx is None:
        return
    if module.weight[module.padding_idx].any():
        raise HeadstartError(
            f"{module} has a padding_idx whose embedding is not zero, and a Bayesian one is: "
            "set that row of its weight to zero, or leave the layer out with where=."
        )


def _leave_fused_paths_(model: nn.Module) -> None:
    """Torch's fused paths read the weights and never call the layers."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False


def _converted_together(
    model: nn.Module, shared: list[list[str]], names: list[str]
) -> dict[str, list[str]]:
    """Modules whose weights another layer has, by the name of that layer."""
    found: dict[str, list[str]] = {}
    for group in shared:
        if not any(is_within(layer, name) for layer in names for name in group):
            continue
        owner = choose_owner(model, group)
        if not set(group) <= set(names):
            raise HeadstartError(
                f"Layers {', '.join(map(repr, group))} share one weight tensor and are converted "
                "together: select all of them with where=, or none."
            )
        found[owner] = [name for name in group if name != owner]
    return found


@dataclass(frozen=True)
class _ExtraRepr:
    """A module's extra_repr that says that it was left alone."""

    text: str

    def __call__(self) -> str:
        return self.text


def _mark_deterministic(model: nn.Module) -> None:
    """Name what holds weights and stays as it is, in a warning and in the module's own repr."""
    left, batch_norms = [], []
    modules = dict(model.named_modules())
    # What could have been converted was left out by `where`, as asked.
    silent = {*find_layers(model), *filter(lambda name: can_decompose(modules[name]), modules)}
    for name, module in modules.items():
        if isinstance(module, _BATCH_NORMS):
            batch_norms.append(name)
        inside = any(parent in silent for parent in [*_parents(name), name])
        weightless = not list(module.parameters(recurse=False))
        if inside or weightless or isinstance(module, _UNREMARKED) or is_affine(module):
            continue
        left.append(f"{name or 'the module itself'} ({type(module).__name__})")
        module.extra_repr = _ExtraRepr(
            ", ".join(filter(None, [module.extra_repr(), "deterministic"]))
        )
    if left:
        warnings.warn(f"These stay deterministic: {', '.join(left)}.", stacklevel=3)
    if batch_norms:
        warnings.warn(
            f"BatchNorm ({', '.join(batch_norms)}) stays as it is; in training mode its statistics "
            "mix the samples folded into the batch. Freeze it with .eval(), or use GroupNorm or "
            "LayerNorm.",
            stacklevel=3,
        )


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(len(parts))]
