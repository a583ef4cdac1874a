"""Every initializer starts with a noise that was fitted in the same way."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from headstart.errors import HeadstartError
from headstart.experiments.prepare import (
    load_dataset,
    nearest_neighbor,
    prepare,
    split_of,
)
from headstart.experiments.run import run_experiment
from headstart.experiments.spec import Run
from headstart.experiments.start import FIT_SAMPLES, start_run_
from headstart.experiments.tasks import EXPERIMENT_TASKS, PAPER_NOISE_VAR
from headstart.inference import make_inference
from headstart.initializers import initialize_
from headstart.likelihoods import Gaussian
from headstart.models import create
from headstart.predictive import predict

START = Run("diabetes", "mlp-2x20", "iblm", steps=0, eval_samples=16)
INITS = ("xavier", "orthogonal", "lsuv", "iblm", "iblm-paper", "uninformative")


def started(run: Run, init: bool = True) -> tuple[torch.nn.Module, Gaussian, object]:
    dataset = load_dataset(run)
    task = EXPERIMENT_TASKS[dataset.task]
    parts = prepare(run, dataset, task.standardize_targets)
    likelihood = task.likelihood(dataset, run.noise_var, run.learn_noise)
    torch.manual_seed(run.seed)
    net = create(run.model, tuple(dataset.x.shape[1:]), 1)
    model = make_inference(run.method).convert(
        net, posterior=run.posterior, prior=run.prior, members=run.members
    )
    assert isinstance(likelihood, Gaussian)
    if init:
        assert start_run_(run, model, likelihood, parts) > 0
    return model, likelihood, parts


@pytest.mark.parametrize("init", INITS)
def test_the_noise_is_that_of_the_residuals_for_every_initializer(init: str) -> None:
    """`noise_var = min(E_q (y − f)², E y²)` over the first training rows, of the same draws."""
    run = dataclasses.replace(START, init=init)
    model, likelihood, parts = started(run)
    x, y = parts.first
    sampler = make_inference(run.method).test_sampler
    draws = predict(model, likelihood, x, FIT_SAMPLES, sampler=sampler, seed=run.seed).draws
    expected = min(float((draws - y).square().mean()), float(y.square().mean()))
    assert likelihood.noise_var.item() == pytest.approx(expected, rel=1e-5)
    # The uninformative start is worse than a constant, and no other may be called noise for that.
    assert likelihood.noise_var.item() <= float(y.square().mean()) * (1 + 1e-6)


def test_the_start_itself_is_that_of_the_initializer() -> None:
    model, _, parts = started(START)
    plain, likelihood, _ = started(START, init=False)
    initialize_(plain, START.init, likelihood, parts.start, seed=START.seed)
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_noise_that_is_not_fitted_or_not_learned_stays() -> None:
    unfitted = dataclasses.replace(START, init_options={"fit_noise": False})
    assert started(unfitted)[1].noise_var.item() == pytest.approx(PAPER_NOISE_VAR)
    fixed = dataclasses.replace(START, learn_noise=False)
    assert started(fixed)[1].noise_var.item() == pytest.approx(PAPER_NOISE_VAR)


def test_rows_of_every_initializer_begin_with_the_fitted_noise() -> None:
    first = {
        init: run_experiment(dataclasses.replace(START, init=init))[0]
        for init in ("xavier", "iblm")
    }
    assert all(row["learned_noise_var"] != PAPER_NOISE_VAR for row in first.values())
    # A start that knows nothing has the noise of the labels: NLL ½ log 2πe.
    assert first["xavier"]["learned_noise_var"] == pytest.approx(1, abs=0.1)
    assert first["xavier"]["mnll"] == pytest.approx(0.5 * math.log(2 * math.pi * math.e), abs=0.3)


def test_the_nearest_neighbor_stands_beside_a_classification_of_a_table() -> None:
    run = dataclasses.replace(START, dataset="digits", model="mlp-1x10", init="xavier")
    parts = prepare(run, load_dataset(run), False)
    x, y = parts.start
    distances = (parts.x_test[:, None].double() - x[None].double()).square().sum(-1)
    expected = float((y[distances.argmin(1)] != parts.y_test).double().mean())
    assert nearest_neighbor(parts) == {"nearest_neighbor": expected}
    assert run_experiment(run)[0]["nearest_neighbor"] == expected
    assert nearest_neighbor(prepare(START, load_dataset(START), True)) == {}


def test_a_split_in_time_tests_on_a_stretch() -> None:
    dataset = load_dataset(START)
    split = split_of(dataclasses.replace(START, split_by="time", split=1), dataset)
    assert torch.equal(split.x_test, dataset.x[3 * 442 // 10 : 4 * 442 // 10])
    assert len(split.x_train) + len(split.x_test) == 442
    with pytest.raises(HeadstartError, match="There is no way to split 'tme'"):
        split_of(dataclasses.replace(START, split_by="tme"), dataset)
