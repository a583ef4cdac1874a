"""Models on disk: one safetensors file, its header a JSON description. No pickle, no code, written whole or not at all."""

from __future__ import annotations

import json
import warnings
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from headstart.convert import bayesianize
from headstart.errors import HeadstartError, unknown
from headstart.files import read_tensors, write_tensors
from headstart.layers import Bayesian, bayesian_layers
from headstart.likelihoods import LIKELIHOODS, Likelihood
from headstart.models import create
from headstart.posteriors import POSTERIORS
from headstart.priors import Inherited, Isotropic, Learned, Prior

FORMAT = 1
"""The version of the description; readers refuse a later one by name."""


def save(path: str | Path, model: nn.Module, likelihood: Likelihood) -> None:
    """Write model and likelihood to one file, atomically: a reader sees the old file or the new one, never half of it.

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
    description = {
        "format": FORMAT,
        "headstart": version("headstart"),
        "net": getattr(model, "recipe", None),
        "layers": {name: _describe(layer) for name, layer in layers.items()},
        "likelihood": {"name": likelihood.name, "options": likelihood.config()},
    }
    tensors = {f"model.{k}": v for k, v in _state(model).items()} | {
        f"likelihood.{k}": v for k, v in _state(likelihood).items()
    }
    write_tensors(path, tensors, {"headstart": json.dumps(description)})


def load(path: str | Path, net: nn.Module | None = None) -> tuple[nn.Module, Likelihood]:
    """Read back what `save` wrote. `net` is a module of yours with the same layers; models made by name need none."""
    path = Path(path)
    tensors, metadata = read_tensors(path)
    description = _parse(path, metadata)
    net = net if net is not None else _rebuild(path, description)
    layers: dict[str, Any] = description["layers"]
    missing = layers.keys() - {name for name, _ in net.named_modules()}
    if missing:
        raise HeadstartError(
            f"{path} holds a layer {sorted(missing)[0]!r} that the net does not have; is it another net's file?"
        )
    try:
        model, likelihood = _build(net, layers, description["likelihood"])
    except TypeError as error:
        raise HeadstartError(f"{path} describes a model this headstart cannot build: {error}.") from error
    _fill(model, "model.", tensors, path)
    _fill(likelihood, "likelihood.", tensors, path)
    return model, likelihood


def _build(net: nn.Module, layers: dict[str, Any], kind: dict[str, Any]) -> tuple[nn.Module, Likelihood]:
    """The described model and likelihood, their tensors still to come."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whoever saved the model has seen them
        model = bayesianize(
            net,
            where=lambda name, module: name in layers,
            posterior={name: _posterior(entry["posterior"]) for name, entry in layers.items()},
        )
    for name, layer in bayesian_layers(model).items():
        layer.prior = _prior(layers[name]["prior"], layer)
    if kind["name"] not in LIKELIHOODS:
        raise unknown("likelihood", kind["name"], LIKELIHOODS)
    return model, LIKELIHOODS[kind["name"]](**kind["options"])


def _parse(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """The description out of the header, checked for its shape."""
    foreign = HeadstartError(f"{path} is a safetensors file, but not one of headstart's.")
    try:
        description = json.loads(metadata["headstart"])
        form = description["format"]
    except (KeyError, TypeError, json.JSONDecodeError):
        raise foreign from None
    if form != FORMAT:
        raise HeadstartError(
            f"{path} is in format {form!r}; this headstart reads format {FORMAT}. Use the version that wrote it "
            f"({description.get('headstart', 'unknown')}) or a later one."
        )
    try:
        kind = description["likelihood"]
        named = [
            kind,
            *(part for entry in description["layers"].values() for part in (entry["posterior"], entry["prior"])),
        ]
        sound = (
            all(isinstance(n["name"], str) and isinstance(n["options"], dict) for n in named) and description["layers"]
        )
    except (KeyError, TypeError, AttributeError):
        raise foreign from None
    if not sound:
        raise foreign
    return description


def _rebuild(path: Path, description: dict[str, Any]) -> nn.Module:
    recipe = description.get("net")
    if recipe is None:
        raise HeadstartError(f"{path} holds a module of your own: pass it, as in load(path, net=net).")
    if not (isinstance(recipe, list) and len(recipe) == 3):
        raise HeadstartError(f"{path} does not say how its net was made; pass it, as in load(path, net=net).")
    name, inputs, outputs = recipe
    return create(str(name), tuple(int(size) for size in inputs), int(outputs))


def _describe(layer: Bayesian) -> dict[str, Any]:
    q, p = layer.posterior, layer.prior
    return {"posterior": {"name": q.name, "options": q.config()}, "prior": {"name": p.name, "options": p.config()}}


def _posterior(entry: dict[str, Any]) -> Any:
    if entry["name"] not in POSTERIORS:
        raise unknown("posterior", entry["name"], POSTERIORS)
    return partial(POSTERIORS[entry["name"]], **entry["options"])


def _prior(entry: dict[str, Any], layer: Bayesian) -> Prior:
    q = layer.posterior
    makers: dict[str, Any] = {
        Isotropic.name: Isotropic,
        Learned.name: Learned,
        Inherited.name: partial(Inherited, q.units, q.size),
    }
    if entry["name"] not in makers:
        raise unknown("prior", entry["name"], makers)
    return makers[entry["name"]](**entry["options"])


def _state(module: nn.Module) -> dict[str, Tensor]:
    """Every tensor once and on its own memory, as the format wants it; tied modules come back by their own sharing."""
    seen: dict[int, str] = {}
    state = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if seen.setdefault(id(tensor), name) == name:
            state[name] = tensor.detach().contiguous().clone()
    return state


def _fill(module: nn.Module, prefix: str, tensors: dict[str, Tensor], path: Path) -> None:
    """Put the file's tensors into the module, each with its own dtype; nothing may be missing, left over or of another shape."""
    mine = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    expected = _state(module)
    for name in expected.keys() | mine.keys():
        if name not in mine or name not in expected:
            raise HeadstartError(f"{path} and the net disagree about {name!r}; is it another net's file?")
        if mine[name].shape != expected[name].shape and prefix == "model.":
            raise HeadstartError(
                f"{path} holds {name!r} with shape {tuple(mine[name].shape)}, but the net's has {tuple(expected[name].shape)}."
            )
    for name, owner in module.named_modules():
        for store in (owner._parameters, owner._buffers):
            for key, old in store.items():
                full = f"{name}.{key}" if name else key
                if old is not None and full in mine:
                    fresh = mine[full]
                    store[key] = nn.Parameter(fresh, old.requires_grad) if isinstance(old, nn.Parameter) else fresh
