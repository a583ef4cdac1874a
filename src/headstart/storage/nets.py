"""A net and its likelihood as named tensors and a JSON description, and back."""

from __future__ import annotations

import copy
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headstart import registration
from headstart.errors import HeadstartError, unknown
from headstart.likelihoods import LIKELIHOODS, Likelihood
from headstart.linalg.affine import is_affine
from headstart.models import create
from headstart.network.convert import bayesianize
from headstart.network.decompose import decompose_as_
from headstart.network.inputs import check_finite
from headstart.network.layer import Bayesian, bayesian_layers, count_members, layer_size
from headstart.network.tied import shared_weights
from headstart.posteriors import POSTERIORS, Posterior
from headstart.priors import Inherited, Isotropic, Learned, Prior
from headstart.storage.files import TensorFile


def describe(model: nn.Module, likelihood: Likelihood) -> dict[str, Any]:
    """What rebuilds both, their tensors apart.

    Args:
        model: a net from `bayesianize`.
        likelihood: the likelihood of its labels.
    """
    members = count_members(model)
    return {
        "net": getattr(model, "recipe", None),
        **({} if members == 1 else {"members": members}),
        "layers": {name: _describe(layer) for name, layer in bayesian_layers(model).items()},
        "likelihood": _described(likelihood),
    }


def check_shapes(file: TensorFile, net: nn.Module) -> None:
    """Refuse layers that are described and do not fit the net, and tensors that do not fit them.

    Args:
        file: the header of a file.
        net: the net that it should be of.
    """
    layers = file.description["layers"]
    net = decompose_as_(copy.deepcopy(net), layers)
    modules = dict(net.named_modules())
    for name, entry in layers.items():
        if name not in modules or not is_affine(modules[name]):
            raise HeadstartError(
                f"{file.path} holds a layer {name!r} that the net does not have; "
                "is it another net's file?"
            )
        with torch.device("meta"):
            units, size = layer_size(modules[name])
            posterior = _posterior_maker(entry["posterior"])(_members(file) * units, size)
            prior = _saved_prior(entry["prior"], posterior)
        for part, state in (("posterior", posterior), ("prior", prior)):
            for key, tensor in state.state_dict().items():
                _check_shape(file, f"{name}.{part}.{key}" if name else f"{part}.{key}", tensor)
    for name, parameter in net.named_parameters():
        if name.rpartition(".")[0] not in layers:
            _check_shape(file, name, parameter)


def _check_shape(file: TensorFile, name: str, expected: Tensor) -> None:
    found = file.shapes.get(f"model.{name}")
    if found is None:
        raise HeadstartError(
            f"{file.path} and the net disagree about {name!r}; is it another net's file?"
        )
    if found != expected.shape:
        raise HeadstartError(
            f"{file.path} holds {name!r} with shape {found}, "
            f"but the net's has {tuple(expected.shape)}."
        )


def _members(file: TensorFile) -> int:
    """The number of members of a mixture."""
    return int(file.description.get("members", 1))


def build(net: nn.Module, description: dict[str, Any]) -> tuple[nn.Module, Likelihood]:
    """The described model and likelihood, their tensors still to come.

    Args:
        net: the net to be converted; it stays as it is.
        description: what `describe` returned.
    """
    layers, kind = description["layers"], description["likelihood"]
    groups = [set(group) for group in shared_weights(net)]
    tied = {name for group in groups if group & layers.keys() for name in group}
    with warnings.catch_warnings():
        # Whoever saved the model has seen the warnings.
        warnings.simplefilter("ignore")
        model = bayesianize(
            net,
            where=lambda name, module: name in layers or name in tied,
            posterior={
                name: _posterior_maker(entry["posterior"]) for name, entry in layers.items()
            },
            members=description.get("members", 1),
        )
    for name, layer in bayesian_layers(model).items():
        layer.prior = _saved_prior(layers[name]["prior"], layer.posterior)
    return model, _rebuilt(kind)


def _described(likelihood: Likelihood) -> dict[str, Any]:
    """A likelihood's name and options, and what it is made of."""
    entry = registration.entry_of(LIKELIHOODS, type(likelihood), likelihood.name, "likelihood")
    parts = {name: _described(part) for name, part in likelihood.parts().items()}
    return {**entry, "options": likelihood.config(), **({"parts": parts} if parts else {})}


def _rebuilt(entry: dict[str, Any]) -> Likelihood:
    """The likelihood that `_described` describes, its tensors still to come."""
    parts = {name: _rebuilt(part) for name, part in entry.get("parts", {}).items()}
    kind = registration.class_of(LIKELIHOODS, entry, "likelihood")
    rebuilt: Likelihood = kind.rebuilt(parts, entry["options"])
    return rebuilt


def check_description(file: TensorFile) -> None:
    """Refuse a description that does not have the shape that `describe` gives it.

    Args:
        file: the header of a file.
    """
    try:
        named = [
            file.description["likelihood"],
            *(
                part
                for entry in file.description["layers"].values()
                for part in (entry["posterior"], entry["prior"])
            ),
        ]
        members = file.description.get("members", 1)
        sound = isinstance(members, int) and members >= 1
        sound = sound and len(named) > 1
        sound = sound and all(
            isinstance(n["name"], str) and isinstance(n["options"], dict) for n in named
        )
    except (KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise HeadstartError(
            f"{file.path} is damaged: what it says of itself is no model of headstart's."
        )


def rebuild(file: TensorFile) -> nn.Module:
    """The net that the file describes, where it was made by name.

    Args:
        file: the header of a file.
    """
    recipe = file.description.get("net")
    if recipe is None:
        raise HeadstartError(
            f"{file.path} holds a module of your own: pass it, as in load(path, net=net)."
        )
    if not (isinstance(recipe, list) and len(recipe) == 3):
        raise HeadstartError(
            f"{file.path} does not say how its net was made; pass it, as in load(path, net=net)."
        )
    name, inputs, outputs = recipe
    return create(str(name), tuple(int(size) for size in inputs), int(outputs))


def _describe(layer: Bayesian) -> dict[str, Any]:
    q, p = layer.posterior, layer.prior
    return {
        "posterior": {
            **registration.entry_of(POSTERIORS, type(q), q.name, "posterior"),
            "options": q.config(),
        },
        "prior": {"name": p.name, "options": p.config()},
    }


def _posterior_maker(entry: dict[str, Any]) -> Any:
    return partial(registration.class_of(POSTERIORS, entry, "posterior"), **entry["options"])


def _saved_prior(entry: dict[str, Any], q: Posterior) -> Prior:
    makers: dict[str, Any] = {
        Isotropic.name: Isotropic,
        Learned.name: Learned,
        Inherited.name: partial(Inherited, q.units, q.size),
    }
    if entry["name"] not in makers:
        raise unknown("prior", entry["name"], makers)
    return makers[entry["name"]](**entry["options"])


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Every tensor once and on its own memory, as the format wants it.

    Tied modules are tied again by the net itself.

    Args:
        module: a net or a likelihood.
    """
    seen: dict[int, str] = {}
    state = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if seen.setdefault(id(tensor), name) == name:
            state[name] = tensor.detach().contiguous().clone()
    return state


def fill_(module: nn.Module, prefix: str, tensors: dict[str, Tensor], path: Path) -> None:
    """Put the file's tensors into the module, each with its own dtype.

    Args:
        module: a net or a likelihood, overwritten.
        prefix: how the names of its tensors begin.
        tensors: those of the file.
        path: the file, for error messages.
    """
    mine = {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
    _check_tensors(module, mine, path, same_shapes=prefix == "model.")
    _assign_(module, mine)


def _check_tensors(
    module: nn.Module, mine: dict[str, Tensor], path: Path, *, same_shapes: bool
) -> None:
    """Refuse tensors that are missing, left over, of another shape or kind, or not finite."""
    expected, learned = tensors_of(module), dict(module.named_parameters())
    for name in expected.keys() | mine.keys():
        if name not in mine or name not in expected:
            raise HeadstartError(
                f"{path} and the net disagree about {name!r}; is it another net's file?"
            )
        found, wanted = mine[name], expected[name]
        if same_shapes and found.shape != wanted.shape:
            raise HeadstartError(
                f"{path} holds {name!r} with shape {tuple(found.shape)}, "
                f"but the net's has {tuple(wanted.shape)}."
            )
        if found.is_floating_point() != wanted.is_floating_point():
            raise HeadstartError(
                f"{path} holds {name!r} as {found.dtype}; the net has {wanted.dtype}."
            )
        # A buffer may well be infinite: a mask.
        if name in learned:
            check_finite(found, f"{path}: {name}")


def _assign_(module: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Replace parameters and buffers by the tensors of their names; what was tied stays tied."""
    replaced: dict[int, Tensor] = {}
    for prefix, owner in module.named_modules():
        every = {"recurse": False, "remove_duplicate": False}
        for key, old in (*owner.named_parameters(**every), *owner.named_buffers(**every)):
            name = f"{prefix}.{key}" if prefix else key
            if name in tensors and id(old) not in replaced:
                new = tensors[name]
                learns = isinstance(old, nn.Parameter)
                replaced[id(old)] = nn.Parameter(new, old.requires_grad) if learns else new
            if id(old) in replaced:
                setattr(owner, key, replaced[id(old)])
