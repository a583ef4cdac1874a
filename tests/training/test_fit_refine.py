"""`fit(refine=True)`, and what becomes of a refined model that is trained further."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.errors import HeadstartError
from tests.training.problems import table

OPTIONS: dict[str, Any] = {"steps": 30, "every": 10, "progress": False, "seed": 0}


def problem(members: int = 1) -> tuple[nn.Module, hs.Gaussian, tuple[Tensor, Tensor]]:
    """The same one every time."""
    torch.manual_seed(4)
    x, y = table(120)
    model = hs.bayesianize(hs.models.create("mlp-1x20", 4, 1), members=members)
    lik = hs.Gaussian()
    hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    return model, lik, (x, y)


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("validated", [False, True])
def test_it_is_fit_and_then_refine(members: int, validated: bool) -> None:
    model, lik, (x, y) = problem(members)
    other, other_lik = copy.deepcopy(model), copy.deepcopy(lik)
    train = x[:90], y[:90]
    validation = (x[90:], y[90:]) if validated else None
    history = hs.fit(model, lik, train, validation=validation, refine=True, **OPTIONS)
    plain = hs.fit(other, other_lik, train, validation=validation, **OPTIONS)
    assert same(model[0], other[0])
    assert plain.refined is None
    assert history.best_step == plain.best_step
    report = hs.refine_(other, other_lik, train, validation=validation)
    assert history.refined is not None
    assert history.refined.nelbo_after == report.nelbo_after < report.nelbo_before
    assert same(model, other)
    assert torch.equal(lik.predictive_ratio, other_lik.predictive_ratio)
    assert model[-1].posterior.name == "full_covariance"


def test_resumed_and_finished_fits_are_refined_too(tmp_path: Path) -> None:
    straight, lik, data = problem()
    expected = hs.fit(straight, lik, data, refine=True, **OPTIONS)
    assert expected.refined is not None
    # As if the process had ended after the second evaluation.
    stopped, stopped_lik, _ = problem()
    folder = tmp_path / "run"

    class End(Exception):
        pass

    original, calls = stopped_lik.log_prob, 0

    def failing(f: Tensor, y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > 25:
            raise End
        return original(f, y)

    stopped_lik.log_prob = failing  # type: ignore[method-assign]
    with pytest.raises(End):
        hs.fit(stopped, stopped_lik, data, refine=True, checkpoint=folder, **OPTIONS)
    for _ in range(2):
        # Once to go on from there, once from the finished fit.
        model, again, _ = problem()
        history = hs.fit(model, again, data, refine=True, checkpoint=folder, resume=True, **OPTIONS)
        assert len(history.steps) == 30
        assert history.refined is not None
        assert history.refined.nelbo_after == expected.refined.nelbo_after
        assert same(model, straight)
        assert torch.equal(again.predictive_ratio, lik.predictive_ratio)
    hs.save(tmp_path / "model", model, again)
    loaded, loaded_lik = hs.load(tmp_path / "model")
    one, other = (
        hs.predict(m, k, data[0][:5], seed=0) for m, k in ((model, again), (loaded, loaded_lik))
    )
    assert torch.equal(one.std, other.std)


def test_what_cannot_be_refined_is_refused_before_training() -> None:
    _, lik, data = problem()
    relu = hs.bayesianize(nn.Sequential(nn.Linear(4, 1), nn.ReLU()))
    before = copy.deepcopy(relu)
    with pytest.raises(HeadstartError, match="no linear read-out to solve"):
        hs.fit(relu, lik, data, refine=True, **OPTIONS)
    assert same(relu, before)
    dropout = hs.inference.make_inference("mc-dropout").convert(
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    )
    with pytest.raises(HeadstartError, match="no linear read-out to solve"):
        hs.fit(dropout, lik, data, inference="mc-dropout", refine=True, **OPTIONS)
    model, lik, data = problem()
    with pytest.raises(HeadstartError, match=r"temperature=0\.5 is another objective"):
        hs.fit(model, lik, data, temperature=0.5, refine=True, **OPTIONS)


def test_training_forgets_the_noise_of_predictions() -> None:
    model, lik, data = problem()
    hs.fit(model, lik, data, refine=True, **OPTIONS)
    assert float(lik.predictive_ratio) != 1
    other, other_lik = copy.deepcopy(model), copy.deepcopy(lik)
    hs.fit(model, lik, data, **OPTIONS)
    next(iter(hs.steps(other, other_lik, data, steps=1)))
    for trained, its in ((model, lik), (other, other_lik)):
        assert float(its.predictive_ratio) == 1
        noise = hs.predict(trained, its, data[0][:3], seed=0).aleatoric_std.square()
        assert torch.allclose(noise, its.noise_var.detach().float().expand(3, 1))
    # Refined again it has one of its own again.
    assert hs.refine_(model, lik, data).noise_predictive != (float(lik.noise_var.detach()),)
