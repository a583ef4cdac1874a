"""steps: a record of each, schedules at work, clipping, precision, and what stays as it was."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import headstart as hs
from tests.training.problems import regressor, table


def test_steps_yields_a_record_per_step_and_can_be_left() -> None:
    model, lik = regressor()
    records = hs.steps(model, lik, table(), steps=50)
    first, second = next(records), next(records)
    records.close()
    assert (first.step, second.step) == (1, 2)
    assert 0 < first.seconds < second.seconds
    assert first.nelbo == pytest.approx(first.nll + first.kl, rel=1e-6)


def test_temperature_and_schedule_weight_the_kl() -> None:
    model, lik = regressor()
    (record,) = hs.steps(
        model, lik, table(), steps=1, temperature=0.5, kl_schedule=lambda step, steps: 0.2
    )
    assert record.nelbo == pytest.approx(record.nll + 0.1 * record.kl, rel=1e-6)


def test_a_schedule_that_ends_at_zero_stands_still_at_the_end() -> None:
    model, lik = regressor()
    before, seen = None, []
    for record in hs.steps(model, lik, table(), steps=40, lr=1e-2, lr_schedule="linear"):
        now = torch.cat([p.detach().flatten().double() for p in model.parameters()])
        if before is not None:
            seen.append((record.step, float((now - before).abs().max())))
        before = now
    assert seen[-1][1] < 0.1 * seen[0][1]


def test_clipping_bounds_the_gradient() -> None:
    model, lik = regressor()
    list(hs.steps(model, lik, table(), steps=1, clip=0.5, optimizer="adam"))
    norm = math.sqrt(
        sum(float(p.grad.double().square().sum()) for p in [*model.parameters(), *lik.parameters()])
    )
    assert norm == pytest.approx(0.5, rel=1e-4)


def test_a_frozen_batch_norm_stays_frozen() -> None:
    with pytest.warns(UserWarning, match="BatchNorm"):
        model = hs.bayesianize(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)))
    model[1].eval()
    before = model[1].running_mean.clone()
    hs.fit(model, hs.Gaussian(), table(), steps=3, progress=False)
    assert not model[1].training
    assert torch.equal(model[1].running_mean, before)


def test_half_precision_is_for_the_net_alone() -> None:
    """Under autocast the net computes in bfloat16; parameters and the KL stay in float32."""
    x = torch.randn(200, 3)
    for posterior in ("mean_field", "low_rank", "full_covariance", "matrix_normal"):
        model = hs.bayesianize(
            nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 1)), posterior=posterior
        )
        seen: list[torch.dtype] = []
        model[0].register_forward_hook(lambda module, args, out, seen=seen: seen.append(out.dtype))
        lik = hs.Gaussian()
        hs.initialize_(model, "iblm", lik, (x, x.sum(1)))
        seen.clear()
        kl = float(hs.kl(model).detach())
        history = hs.fit(
            model, lik, (x, x.sum(1)), steps=2, precision="bfloat16", progress=False, seed=0
        )
        assert history.steps[0].kl == kl  # to the last bit
        assert set(seen) == {torch.bfloat16}
        assert all(p.dtype == torch.float32 for p in model.parameters())
        seen.clear()
        hs.fit(model, lik, (x, x.sum(1)), steps=2, progress=False, seed=0)
        assert set(seen) == {torch.float32}
        with torch.autocast("cpu", torch.bfloat16):  # the caller's own stays
            hs.fit(model, lik, (x, x.sum(1)), steps=1, progress=False)
        assert seen[-1] == torch.bfloat16
    with pytest.raises(hs.HeadstartError, match="There is no precision 'float8'"):
        hs.fit(model, lik, (x, x.sum(1)), steps=1, precision="float8", progress=False)
