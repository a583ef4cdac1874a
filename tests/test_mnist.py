"""The claims on real digits: MNIST, five layers of 100, by the default steps of 64 rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import headstart as hs
from headstart import data

CHECKPOINTS = (0, 500)


@pytest.fixture(scope="module")
def mnist(real_data: Path) -> data.Split:
    return data.standardize(data.split(data.load("mnist", real_data), 0), targets=False)[0]


def errors(split: data.Split, init: str) -> tuple[list[float], hs.InitReport]:
    torch.manual_seed(0)
    lik = hs.Categorical(10)
    model = hs.bayesianize(hs.models.create("mlp-5x100", (1, 28, 28), 10))
    report = hs.initialize_(model, init, lik, (split.x_train, split.y_train))
    test = (split.x_test, split.y_test)
    found = [hs.evaluate(model, lik, test, samples=32, seed=0)["error"]]
    for record in hs.steps(model, lik, (split.x_train, split.y_train), steps=max(CHECKPOINTS)):
        if record.step in CHECKPOINTS:
            found.append(hs.evaluate(model, lik, test, samples=32, seed=0)["error"])
    return found, report


def test_iblm_starts_and_learns_ahead_of_the_best_rival(mnist: data.Split) -> None:
    (start, later), report = errors(mnist, "iblm")
    assert start <= 0.25
    assert later <= 0.08
    assert not report.warnings
    (rival_start, rival_later), _ = errors(mnist, "orthogonal")
    assert start < rival_start
    assert later < rival_later


def test_the_literal_algorithm_kills_relu_networks(mnist: data.Split) -> None:
    """Both targets of a class label are negative, so ReLU cuts off what hidden units fit."""
    model = hs.bayesianize(hs.models.create("mlp-5x100", (1, 28, 28), 10))
    report = hs.initialize_(model, "iblm-paper", hs.Categorical(10), (mnist.x_train, mnist.y_train))
    *hidden, _ = report.layers
    assert all(layer.zero_fraction > 0.9 for layer in hidden)
    assert sum("nearly dead" in warning for warning in report.warnings) == 5


def test_a_deep_wide_net_is_healthy_at_step_0(mnist: data.Split) -> None:
    model = hs.bayesianize(hs.models.create("mlp-10x500", (1, 28, 28), 10))
    report = hs.initialize_(model, "iblm", hs.Categorical(10), (mnist.x_train, mnist.y_train))
    assert len(report.layers) == 11
    *hidden, read_out = report.layers
    assert all(0.5 <= layer.sd <= 2 for layer in hidden), report
    assert all(layer.zero_fraction < 0.7 for layer in hidden)
    # The logits take the scale of the label targets themselves.
    assert read_out.sd < 1.1 * 1.974
