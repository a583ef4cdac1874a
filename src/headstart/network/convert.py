"""From any module to a Bayesian one: which layers are converted, with which posterior and prior."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Any

import torch
from torch import fx, nn

from headstart.errors import HeadstartError, unknown
from headstart.linalg.affine import groups, is_affine
from headstart.linalg.gaussians import Diagonal
from headstart.network.layer import GATES, Bayesian, layer_size, skeleton, stock_weights
from headstart.posteriors import POSTERIORS, Posterior
from headstart.posteriors.base import default_logvar
from headstart.priors import make_prior

Where = str | Sequence[str] | Callable[[str, nn.Module], bool] | None
_BATCH_NORMS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d),
)
_KEPT = (nn.Dropout, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, *_BATCH_NORMS, nn.PReLU)


def bayesianize(
    net: nn.Module,
    posterior: str | Callable[..., Posterior] | Mapping[str, Any] = "mean_field",
    prior: float | str | Callable[[nn.Module], Any] | Mapping[str, Any] = 1.0,
    where: Where = None,
) -> nn.Module:
    """A Bayesian copy of `net`: every affine layer becomes a `Bayesian` one with the same mean weights; `net` is untouched.

    `where` selects layers: a name or pattern (`"head"`, `"features.*"`), `"last"`, either with a leading `"!"` for everything
    but, a list of these, or a function of (name, module). `posterior` and `prior` are one choice for all layers, or a mapping
    from pattern to choice (the first pattern that fits; `"*"` for the rest). A layer starts at its own weights as the mean
    with variance 1/size: call `initialize_` next.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        >>> model = bayesianize(net, posterior={"2": "full_covariance", "*": "mean_field"}, prior="fan-in")
        >>> model[0].posterior.name, model[2].posterior.name
        ('mean_field', 'full_covariance')
    """
    if any(isinstance(module, Bayesian) for module in net.modules()):
        raise HeadstartError("This module is Bayesian already; convert the plain net it came from.")
    try:
        model = copy.deepcopy(net)
    except RuntimeError as error:
        raise HeadstartError(
            f"This {type(net).__name__} cannot be copied ({error}); remove old-style weight_norm first."
        ) from error
    _check_patterns(net, posterior, prior)
    names = _selected(model, where)
    _refuse_tied_weights(model, names)
    converted: dict[int, Bayesian] = {}
    for name in names:
        module = model.get_submodule(name)
        if id(module) not in converted:
            layer = _convert(module, _choice(posterior, name), _choice(prior, name))
            converted[id(module)] = layer
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if id(module) in converted:
            model = _replaced(model, name, converted[id(module)])
    for module in model.modules():
        if isinstance(
            module, nn.TransformerEncoderLayer
        ):  # its fused path reads the weights and never calls the layers
            module.activation_relu_or_gelu = 0
    _mark_deterministic(model)
    _mark_gates(model)
    return model


def _selected(model: nn.Module, where: Where) -> list[str]:
    """The names of the affine layers to convert."""
    affine_names = [name for name, m in model.named_modules() if is_affine(m)]
    if not affine_names:
        kinds = "Linear, Conv1d/2d/3d or ConvTranspose1d/2d/3d"
        raise HeadstartError(
            f"This {type(model).__name__} has nothing to convert: no {kinds} layer in it."
        )
    if where is None:
        return affine_names
    if callable(where):
        chosen = [name for name in affine_names if where(name, model.get_submodule(name))]
    else:
        patterns = [where] if isinstance(where, str) else list(where)
        wanted = [_matching(affine_names, p) for p in patterns if not p.startswith("!")] or [
            affine_names
        ]
        unwanted = [_matching(affine_names, p[1:]) for p in patterns if p.startswith("!")]
        chosen = [
            n
            for n in affine_names
            if any(n in w for w in wanted) and not any(n in u for u in unwanted)
        ]
    if not chosen:
        raise HeadstartError(
            f"where={where!r} selects no layer; there are: {', '.join(affine_names)}."
        )
    return chosen


def _matching(names: list[str], pattern: str) -> list[str]:
    if pattern == "last":
        return names[-1:]
    found = [name for name in names if fnmatchcase(name, pattern) or name.startswith(pattern + ".")]
    if not found:
        raise unknown("affine layer", pattern, names)
    return found


def _check_patterns(net: nn.Module, *specs: Any) -> None:
    """A per-layer choice whose pattern fits no layer is a slip of the pen."""
    names = [name for name, module in net.named_modules() if is_affine(module)]
    for pattern in (pattern for spec in specs if isinstance(spec, Mapping) for pattern in spec):
        if pattern != "*" and not any(fnmatchcase(name, pattern) for name in names):
            raise unknown("affine layer", pattern, names)


def _choice(spec: Any, name: str) -> Any:
    """One layer's value of a per-layer option."""
    if not isinstance(spec, Mapping):
        return spec
    for pattern, value in spec.items():
        if fnmatchcase(name, pattern):
            return value
    raise HeadstartError(f"No pattern of {list(spec)} fits layer {name!r}; add a '*' for the rest.")


def _convert(module: nn.Module, posterior: Any, prior: Any) -> Bayesian:
    if isinstance(module.weight, nn.UninitializedParameter):
        raise HeadstartError(
            f"{module} is lazy and has no weights yet; run one batch through the net first."
        )
    if isinstance(posterior, str):
        if posterior not in POSTERIORS:
            raise unknown("posterior", posterior, POSTERIORS)
        posterior = POSTERIORS[posterior]
    factory = {"dtype": module.weight.dtype, "device": module.weight.device}
    family = posterior(*layer_size(module), **factory)
    if family.name == "matrix_normal" and groups(module) > 1:
        raise HeadstartError(
            f"matrix_normal does not know grouped layers ({module}); choose mean_field for this one."
        )
    weights = stock_weights(module)
    family.project_(Diagonal(weights, torch.full_like(weights, default_logvar(family.size)).exp()))
    op = skeleton(module)
    return Bayesian(op, family, make_prior(prior, op).to(weights)).train(module.training)


def _replaced(model: nn.Module, name: str, layer: Bayesian) -> nn.Module:
    if not name:
        return layer
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, layer)
    return model


def _refuse_tied_weights(model: nn.Module, names: list[str]) -> None:
    """A Parameter shared by two different modules would silently become two posteriors."""
    owners: dict[int, tuple[str, nn.Module]] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            other, owner = owners.setdefault(id(parameter), (name, module))
            if owner is not module and {name, other} & set(names):
                raise HeadstartError(
                    f"Layers {other!r} and {name!r} share one weight tensor; use one module in both places, "
                    f"or leave both out with where=['!{other}', '!{name}']."
                )


@dataclass(frozen=True)
class _Note:
    """A module's extra_repr that says that it was left alone."""

    text: str

    def __call__(self) -> str:
        return self.text


def _mark_deterministic(model: nn.Module) -> None:
    """Name what holds weights and could not be converted, in a warning and in the module's own repr."""
    left = []
    batch_norms = []
    for name, module in model.named_modules():
        if isinstance(module, _BATCH_NORMS):
            batch_norms.append(name)
        inside = any(isinstance(model.get_submodule(p), Bayesian) for p in _parents(name))
        if (
            inside
            or isinstance(module, (Bayesian, *_KEPT))
            or not list(module.parameters(recurse=False))
        ):
            continue
        if is_affine(module):  # left out by `where`, as asked
            continue
        left.append(f"{name or 'the module itself'} ({type(module).__name__})")
        module.extra_repr = _Note(", ".join(filter(None, [module.extra_repr(), "deterministic"])))
    if left:
        warnings.warn(f"These stay deterministic: {', '.join(left)}.", stacklevel=3)
    if batch_norms:
        warnings.warn(
            f"BatchNorm ({', '.join(batch_norms)}) stays as it is; in training mode its statistics mix the samples folded "
            "into the batch. Freeze it with .eval(), or use GroupNorm or LayerNorm.",
            stacklevel=3,
        )


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(len(parts))]


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, Bayesian) or not any(
            isinstance(child, Bayesian) for child in m.modules()
        )


def _mark_gates(model: nn.Module) -> None:
    """Find the first layers through each of which alone the input reaches the output, in training and in evaluation mode."""
    if isinstance(model, Bayesian):
        model.entry = True
        return
    traced = copy.deepcopy(
        model
    )  # tracing runs the user's own forward, which may keep what it sees
    by_mode = [_gates(traced.train(mode)) for mode in (True, False)]
    same = takewhile(lambda pair: pair[0] == pair[1], zip(*by_mode, strict=False))
    found = [model.get_submodule(name) for name, _ in same]
    model.__dict__[GATES] = found
    if found:
        found[0].entry = True  # type: ignore[assignment]


def _gates(model: nn.Module) -> list[str]:
    """The layers that every path from input to output goes through before any other, in order; none where tracing cannot tell."""
    try:
        graph = _Tracer().trace(model)
    except Exception:  # any net that fx cannot follow simply repeats its input instead
        return []
    layers = [
        n
        for n in graph.nodes
        if n.op == "call_module" and isinstance(model.get_submodule(n.target), Bayesian)
    ]
    targets = [model.get_submodule(n.target) for n in layers]
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    if len(inputs) != 1:
        return []
    found: list[str] = []
    for node, target in zip(layers, targets, strict=True):
        later = layers[len(found) + 1 :]
        if targets.count(target) > 1 or _leads_past(inputs[0], node, later):
            break
        found.append(str(node.target))
    return found


def _leads_past(start: fx.Node, node: fx.Node, later: Sequence[fx.Node]) -> bool:
    """Whether the output, or a later layer that it may not even see, can be reached without going through this node."""
    reached, frontier = {start}, [start]
    while frontier:
        for user in frontier.pop().users:
            if user is not node and user not in reached:
                reached.add(user)
                frontier.append(user)
    return any(n.op == "output" or n in later for n in reached)
