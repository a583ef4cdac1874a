"""Models on disk: one safetensors file, its header a JSON description; no pickle, no code."""

from __future__ import annotations

import copy
import math
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headstart import registration
from headstart.errors import HeadstartError, unknown, untrusted
from headstart.likelihoods import LIKELIHOODS, Likelihood
from headstart.linalg.affine import is_affine
from headstart.models import create
from headstart.network.convert import bayesianize
from headstart.network.decompose import decompose_as_
from headstart.network.inputs import check_finite
from headstart.network.layer import Bayesian, bayesian_layers, count_members, layer_size
from headstart.posteriors import POSTERIORS, Posterior
from headstart.predictive import predict
from headstart.priors import Inherited, Isotropic, Learned, Prior
from headstart.storage.files import TensorFile, open_tensors, write_tensors

MODEL_KIND = "model"
MAX_TRIAL_INPUTS = 2**16
"""Numbers in a row beyond which a net is not tried out when it is loaded."""


def save(path: str | Path, model: nn.Module, likelihood: Likelihood) -> None:
    """Write a model and its likelihood to one file, atomically.

    A reader sees the old file or the new one, never half of it. The file holds tensors and JSON,
    no code.

    Args:
        path: The file; its folder must be there.
        model: The Bayesian net.
        likelihood: The likelihood of its labels.

    Raises:
        HeadstartError: It cannot be written; what was there before is as it was.

    Example:
        >>> import tempfile, headstart as hs
        >>> model, lik = hs.bayesianize(hs.models.create("mlp-1x20", 4, 1)), hs.Gaussian()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     hs.save(f"{folder}/model", model, lik)
        ...     again, lik = hs.load(f"{folder}/model")
        >>> type(again[1]).__name__
        'Bayesian'
    """
    path = Path(path)
    layers = bayesian_layers(model)
    members = count_members(model)
    description = {
        "net": getattr(model, "recipe", None),
        **({} if members == 1 else {"members": members}),
        "layers": {name: _describe(layer) for name, layer in layers.items()},
        "likelihood": _described(likelihood),
    }
    tensors = {f"model.{k}": v for k, v in _tensors_of(model).items()} | {
        f"likelihood.{k}": v for k, v in _tensors_of(likelihood).items()
    }
    write_tensors(path, tensors, MODEL_KIND, description)


def load(path: str | Path, net: nn.Module | None = None) -> tuple[nn.Module, Likelihood]:
    """Read back what `save` wrote.

    Args:
        path: The file.
        net: A module with the same layers, for a net of one's own; nets that were made by name
            (`headstart.models.create`) need none. It stays as it is.

    Returns:
        The Bayesian net and its likelihood.

    Raises:
        HeadstartError: There is no such file, it is something else, it is damaged, or it is of
            another net.

    Example:
        >>> import tempfile, headstart as hs
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     hs.save(f"{folder}/model", hs.bayesianize(nn.Linear(3, 1)), hs.Gaussian(0.5))
        ...     model, lik = hs.load(f"{folder}/model", net=nn.Linear(3, 1))
        >>> lik
        Gaussian(noise_var=0.5, learn_noise=True)
    """
    file = open_tensors(Path(path), MODEL_KIND)
    _check_description(file)
    layers: dict[str, Any] = file.description["layers"]
    with untrusted(path, "describes a model that cannot be built"):
        if net is None:
            # Nothing is allocated before it is known to be in the file.
            with torch.device("meta"):
                _check_shapes(file, _rebuild(file), layers)
            net = _rebuild(file)
        else:
            _check_shapes(file, net, layers)
        tensors = file.read()
        model, likelihood = _build(net, file.description)
        _fill_(model, "model.", tensors, file.path)
        _fill_(likelihood, "likelihood.", tensors, file.path)
        recipe = getattr(net, "recipe", None)
        if recipe is not None:
            _try_out(model, likelihood, recipe[1])
    return model, likelihood


def _try_out(model: nn.Module, likelihood: Likelihood, inputs: list[int]) -> None:
    """Predict a few rows and score labels there: do net and likelihood fit each other?

    Giant inputs are not tried.
    """
    if math.prod(inputs) > MAX_TRIAL_INPUTS:
        return
    with torch.random.fork_rng():
        found = predict(model, likelihood, torch.zeros(7, *inputs), samples=2, seed=0)
        # Labels that outputs of 0 give are valid, whatever the weights are.
        found.log_prob(likelihood.sample(torch.zeros_like(found.draws))[0])


def _check_shapes(file: TensorFile, net: nn.Module, layers: dict[str, Any]) -> None:
    """Whether the layers described fit the net, and the tensors those layers."""
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


def _build(net: nn.Module, description: dict[str, Any]) -> tuple[nn.Module, Likelihood]:
    """The described model and likelihood, their tensors still to come."""
    layers, kind = description["layers"], description["likelihood"]
    with warnings.catch_warnings():
        # Whoever saved the model has seen the warnings.
        warnings.simplefilter("ignore")
        model = bayesianize(
            net,
            where=lambda name, module: name in layers,
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


def _check_description(file: TensorFile) -> None:
    """The description has the shape that `save` gives it."""
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


def _rebuild(file: TensorFile) -> nn.Module:
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


def _tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Every tensor once and on its own memory, as the format wants it.

    Tied modules are tied again by the net itself.
    """
    seen: dict[int, str] = {}
    state = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if seen.setdefault(id(tensor), name) == name:
            state[name] = tensor.detach().contiguous().clone()
    return state


def _fill_(module: nn.Module, prefix: str, tensors: dict[str, Tensor], path: Path) -> None:
    """Put the file's tensors into the module, each with its own dtype."""
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
    expected, learned = _tensors_of(module), dict(module.named_parameters())
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
