"""Schedules of the KL weight and of the learning rate."""

from __future__ import annotations

import pytest

import headstart as hs
from headstart.training.schedules import (
    KL_SCHEDULES,
    LR_SCHEDULES,
    constant,
    make_kl_schedule,
    make_lr_schedule,
    sigmoid,
    warmup,
)
from tests.training.problems import regressor, table


def test_kl_schedules() -> None:
    assert constant(3, 10) == 1.0
    assert [warmup(s, 100) for s in (0, 5, 10, 100)] == [0.0, 0.5, 1.0, 1.0]
    assert sigmoid(25_000, 100_000) == pytest.approx(0.05)
    assert sigmoid(100_000, 100_000) == pytest.approx(0.1, abs=1e-6)
    assert sigmoid(0, 100_000) < 1e-10
    assert make_kl_schedule(lambda step, steps: 0.3)(1, 2) == 0.3
    assert set(KL_SCHEDULES) == {"constant", "warmup", "sigmoid"}


@pytest.mark.parametrize("name", LR_SCHEDULES)
def test_learning_rate_schedules(name: str) -> None:
    rates = [make_lr_schedule(name)(p) for p in (0.0, 0.5, 1.0)]
    assert rates[0] == 1.0
    assert rates == sorted(rates, reverse=True)
    model, lik = regressor()
    assert len(list(hs.steps(model, lik, table(), steps=3, lr_schedule=name))) == 3


def test_names_that_do_not_exist_get_a_sentence() -> None:
    with pytest.raises(hs.HeadstartError, match="did you mean 'sigmoid'"):
        make_kl_schedule("sigmoyd")
    with pytest.raises(hs.HeadstartError, match="did you mean 'cosine'"):
        make_lr_schedule("cosin")
