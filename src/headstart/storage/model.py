"""Models on disk: one safetensors file, its header a JSON description; no pickle, no code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError, untrusted
from headstart.kernels.random_state import kept_random_state
from headstart.likelihoods import Likelihood
from headstart.predictive import predict
from headstart.storage.card import model_card
from headstart.storage.files import TensorFile, atomic_write, open_tensors, write_tensors
from headstart.storage.nets import (
    build,
    check_description,
    check_shapes,
    describe,
    fill_,
    rebuild,
    tensors_of,
)
from headstart.training.conditional import Conditioned

MODEL_KIND = "model"
MAX_TRIAL_INPUTS = 2**16
"""Numbers in a row beyond which a net is not tried out when it is loaded."""
SHARED, DRAWN, LIKELIHOOD = "model.", "draws.", "likelihood."
"""How names of tensors begin: a net's, those that differ between the nets of a `Conditioned`."""
CONDITIONED_NUMBERS = (
    *("nelbo", "read_out_nelbo", "num_data", "factor", "seconds"),
    *("prior_var", "max_leverage"),
)
"""What a `Conditioned` knows beside its nets and its likelihood; the last two may be None."""

Card = bool | Mapping[str, float]
"""Whether to write a model card, or the scores to write into it."""


@overload
def save(
    path: str | Path, model: nn.Module, likelihood: Likelihood, *, card: Card = False
) -> None: ...


@overload
def save(path: str | Path, model: Conditioned, *, card: Card = False) -> None: ...


def save(
    path: str | Path,
    model: nn.Module | Conditioned,
    likelihood: Likelihood | None = None,
    *,
    card: Card = False,
) -> None:
    """Write a model and its likelihood, or what `condition` made of them, to one file, atomically.

    A reader sees the old file or the new one, never half of it. The file holds tensors and JSON,
    no code. What the nets of a `Conditioned` have in common is in it once.

    Args:
        path: The file; its folder must be there.
        model: The Bayesian net, or a `Conditioned`.
        likelihood: The likelihood of its labels; a `Conditioned` has its own.
        card: Whether a model card, a page in Markdown, is written to `path` and `.md` too; the
            scores that `evaluate` returned on held-out rows are written into it.

    Raises:
        HeadstartError: It cannot be written; what was there before is as it was. Or a net comes
            without a likelihood, or a `Conditioned` with one.

    Example:
        >>> import tempfile, headstart as hs
        >>> model, lik = hs.bayesianize(hs.models.create("mlp-1x20", 4, 1)), hs.Gaussian()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     hs.save(f"{folder}/model", model, lik)
        ...     again, lik = hs.load(f"{folder}/model")
        >>> type(again[1]).__name__
        'Bayesian'
    """
    if isinstance(model, nn.Module):
        if likelihood is None:
            raise HeadstartError("A net is saved with its likelihood: hs.save(path, model, lik).")
        tensors, description = _tensors_of_both(model, likelihood), describe(model, likelihood)
    else:
        if likelihood is not None:
            raise HeadstartError(
                "What hs.condition returned has a likelihood of its own: hs.save(path, conditioned)"
            )
        tensors, description = _conditioned_parts(model)
    write_tensors(Path(path), tensors, MODEL_KIND, description)
    if card is not False:
        scores = card if isinstance(card, Mapping) else {}
        with atomic_write(Path(f"{path}.md")) as page:
            page.write_text(model_card(Path(path).name, description, scores), encoding="utf-8")


def _tensors_of_both(model: nn.Module, likelihood: Likelihood) -> dict[str, Tensor]:
    return {f"{SHARED}{k}": v for k, v in tensors_of(model).items()} | {
        f"{LIKELIHOOD}{k}": v for k, v in tensors_of(likelihood).items()
    }


def _conditioned_parts(conditioned: Conditioned) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors that all nets share, stacks of those that differ, and the description."""
    lik = conditioned.likelihood
    first, *others = (describe(net, lik) for net in conditioned.nets)
    if any(other != first for other in others):
        raise HeadstartError("The nets of a Conditioned differ in more than their numbers.")
    tensors = _stack_drawn([tensors_of(net) for net in conditioned.nets])
    tensors |= {f"{LIKELIHOOD}{k}": v for k, v in tensors_of(lik).items()}
    numbers = {name: getattr(conditioned, name) for name in CONDITIONED_NUMBERS}
    return tensors, {**first, "conditioned": numbers}


def _stack_drawn(every: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors that nets have in common, and stacks of those that differ."""
    found = {}
    for name, tensor in every[0].items():
        # Means are drawn even where all draws are equal: a reader counts the nets by them.
        shared = not name.endswith("posterior.mean")
        shared = shared and all(torch.equal(tensor, each[name]) for each in every)
        key = f"{SHARED if shared else DRAWN}{name}"
        found[key] = tensor if shared else torch.stack([each[name] for each in every])
    return found


@overload
def load(
    path: str | Path, net: nn.Module | None = None, *, conditioned: Literal[False] = False
) -> tuple[nn.Module, Likelihood]: ...


@overload
def load(
    path: str | Path, net: nn.Module | None = None, *, conditioned: Literal[True]
) -> Conditioned: ...


def load(
    path: str | Path, net: nn.Module | None = None, *, conditioned: bool = False
) -> tuple[nn.Module, Likelihood] | Conditioned:
    """Read back what `save` wrote.

    Args:
        path: The file.
        net: A module with the same layers, for a net of one's own; nets that were made by name
            (`headstart.models.create`) need none. It stays as it is.
        conditioned: Whether the file holds what `condition` returned.

    Returns:
        The Bayesian net and its likelihood; or the `Conditioned`.

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
    check_description(file)
    _check_kind(file, conditioned)
    if not conditioned:
        models, likelihood = _load_nets(file, net, 1)
        return models[0], likelihood
    counts = {shape[:1] for name, shape in file.shapes.items() if name.startswith(DRAWN)}
    if len(counts) != 1 or counts <= {(), (0,)}:
        raise HeadstartError(f"{file.path} is damaged: it does not say how many nets it holds.")
    nets, likelihood = _load_nets(file, net, counts.pop()[0])
    return Conditioned(nets, likelihood, **_numbers_of(file))


def _numbers_of(file: TensorFile) -> dict[str, Any]:
    numbers = file.description["conditioned"]
    sound = isinstance(numbers, dict) and numbers.keys() == set(CONDITIONED_NUMBERS)
    for name in CONDITIONED_NUMBERS if sound else ():
        number = numbers[name]
        absent = number is None and name in CONDITIONED_NUMBERS[-2:]
        sound = sound and (absent or (type(number) in (int, float) and math.isfinite(number)))
    if not sound:
        raise HeadstartError(
            f"{file.path} is damaged: what it says of itself is nothing that hs.condition returned."
        )
    return numbers


def _check_kind(file: TensorFile, conditioned: bool) -> None:
    """Refuse a net where a `Conditioned` is wanted, and the other way round."""
    if conditioned and "conditioned" not in file.description:
        raise HeadstartError(
            f"{file.path} holds a net, not what hs.condition returned: hs.load(path)."
        )
    if not conditioned and "conditioned" in file.description:
        raise HeadstartError(
            f"{file.path} holds what hs.condition returned: hs.load(path, conditioned=True)."
        )


def _load_nets(
    file: TensorFile, net: nn.Module | None, count: int
) -> tuple[tuple[nn.Module, ...], Likelihood]:
    """So many nets of the file, which differ by their drawn tensors, and the likelihood."""
    with untrusted(file.path, "describes a model that cannot be built"):
        one = replace(file, shapes=_shapes_of_one(file))
        if net is None:
            # Nothing is allocated before it is known to be in the file.
            with torch.device("meta"):
                check_shapes(one, rebuild(one))
            net = rebuild(one)
        else:
            check_shapes(one, net)
        tensors, models = file.read(), []
        for index in range(count):
            model, likelihood = build(net, file.description)
            fill_(model, SHARED, _tensors_of_one(tensors, index), file.path)
            models.append(model)
        fill_(likelihood, LIKELIHOOD, tensors, file.path)
        recipe = getattr(net, "recipe", None)
        if recipe is not None:
            _try_out(models, likelihood, recipe[1])
    return tuple(models), likelihood


def _shapes_of_one(file: TensorFile) -> dict[str, tuple[int, ...]]:
    """The shapes of one net's tensors."""
    return {
        _name_in_one(name): shape[1:] if name.startswith(DRAWN) else shape
        for name, shape in file.shapes.items()
    }


def _tensors_of_one(tensors: dict[str, Tensor], index: int) -> dict[str, Tensor]:
    """On memory of their own: the nets of a mixture share none."""
    return {
        _name_in_one(name): (tensor[index] if name.startswith(DRAWN) else tensor).clone()
        for name, tensor in tensors.items()
    }


def _name_in_one(name: str) -> str:
    return SHARED + name.removeprefix(DRAWN) if name.startswith(DRAWN) else name


def _try_out(models: Sequence[nn.Module], likelihood: Likelihood, inputs: list[int]) -> None:
    """Predict a few rows and score labels there: do net and likelihood fit each other?

    Giant inputs are not tried.
    """
    if math.prod(inputs) > MAX_TRIAL_INPUTS:
        return
    with kept_random_state(*models):
        for model in models:
            found = predict(model, likelihood, torch.zeros(7, *inputs), samples=2, seed=0)
        # Labels that outputs of 0 give are valid, whatever the weights are.
        found.log_prob(likelihood.sample(torch.zeros_like(found.draws))[0])
