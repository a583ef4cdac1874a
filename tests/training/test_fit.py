"""steps and fit: the loop, its records, validation, early stopping, schedules, clipping, and how it ends badly."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.training.loop import LR_SCHEDULES
from tests import cases
from tests.cases import chain


def table(rows: int = 200) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, 4)
    return x, (x[:, :1] - 2 * x[:, 1:2]) + 0.3 * torch.randn(rows, 1)


def regressor() -> tuple[nn.Module, hs.Gaussian]:
    return hs.bayesianize(
        nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 1))
    ), hs.Gaussian()


@pytest.mark.parametrize("posterior", cases.POSTERIORS)
@pytest.mark.parametrize("likelihood", cases.LIKELIHOODS)
def test_every_family_and_likelihood_trains_and_predicts(posterior: str, likelihood: str) -> None:
    case = cases.LIKELIHOODS[likelihood]
    lik, x = case.make(), torch.randn(100, 4)
    y = case.labels(100)
    model = hs.bayesianize(
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, case.outputs)), posterior=posterior
    )
    hs.initialize_(model, "iblm", lik, (x, y), rows=100)
    before = hs.evaluate(model, lik, (x, y), samples=64, seed=0)["expected_nll"]
    history = hs.fit(model, lik, (x, y), steps=150, samples=4, lr=1e-2, progress=False, seed=0)
    assert history.steps[-1].nelbo < history.steps[0].nelbo
    assert hs.evaluate(model, lik, (x, y), samples=64, seed=0)["expected_nll"] < before + 0.5
    assert hs.predict(model, lik, x, samples=8).mean.shape[0] == 100


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


def test_fit_learns_the_function_and_its_noise() -> None:
    torch.manual_seed(1)
    model, lik = regressor()
    x, y = table(1000)
    hs.initialize_(model, "iblm", lik, (x, y))
    hs.fit(model, lik, (x, y), steps=600, lr=3e-3, progress=False, seed=0)
    new_x, new_y = table(1000)
    scores = hs.evaluate(model, lik, (new_x, new_y), seed=0)
    assert scores["rmse"] < 0.36
    assert 0.92 < scores["coverage_95"] < 0.98
    assert float(lik.noise_var.detach()) == pytest.approx(0.09, rel=0.35)


def test_the_same_seed_gives_the_same_fit_and_leaves_the_global_state_alone() -> None:
    data, results = table(), []
    source = chain()
    state = torch.get_rng_state()
    for _ in range(2):
        model = hs.bayesianize(source)
        hs.fit(
            model,
            hs.Categorical(3),
            (data[0], torch.zeros(200, dtype=torch.long)),
            steps=5,
            progress=False,
            seed=7,
        )
        results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*results)
    assert torch.equal(state, torch.get_rng_state())


def test_validation_keeps_the_best_and_stops_early() -> None:
    model, lik = regressor()
    train, validation = table(30), table(300)
    history = hs.fit(
        model,
        lik,
        train,
        steps=2000,
        lr=3e-2,
        validation=validation,
        every=50,
        patience=3,
        progress=False,
        seed=0,
        temperature=1e-3,
    )
    assert history.stopped == "no better mnll in 3 evaluations"
    assert len(history.steps) < 2000
    scores = {int(row["step"]): row["mnll"] for row in history.validation}
    assert history.best_step == min(scores, key=scores.__getitem__)
    restored = hs.evaluate(model, lik, validation, samples=32, seed=0)["mnll"]
    assert restored == pytest.approx(min(scores.values()), rel=1e-6)


@pytest.mark.parametrize("name", LR_SCHEDULES)
def test_learning_rate_schedules(name: str) -> None:
    rates = [LR_SCHEDULES[name](p) for p in (0.0, 0.5, 1.0)]
    assert rates[0] == 1.0
    assert rates == sorted(rates, reverse=True)
    model, lik = regressor()
    assert len(list(hs.steps(model, lik, table(), steps=3, lr_schedule=name))) == 3


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
    list(hs.steps(model, lik, table(), steps=1, clip=0.5))
    norm = math.sqrt(
        sum(float(p.grad.double().square().sum()) for p in [*model.parameters(), *lik.parameters()])
    )
    assert norm == pytest.approx(0.5, rel=1e-4)


def test_a_loader_of_a_user_works_and_counts_its_rows() -> None:
    model, lik = regressor()
    x, y = table(64)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, y), batch_size=16, shuffle=True
    )
    assert len(hs.fit(model, lik, loader, steps=10, progress=False).steps) == 10


def test_last_layer_only_leaves_the_body_deterministic_but_trained() -> None:
    net = chain()
    model = hs.bayesianize(net, where="last")
    hs.fit(
        model,
        hs.Categorical(3),
        (torch.randn(50, 4), torch.randint(3, (50,))),
        steps=3,
        progress=False,
    )
    assert isinstance(model[0], nn.Linear)
    assert not torch.equal(model[0].weight, net[0].weight)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "number of steps"),
        ({"steps": 5, "lr_schedule": "cosin"}, "did you mean 'cosine'"),
        ({"steps": 5, "inference": "svii"}, "did you mean 'svi'"),
        ({"steps": 5, "kl_schedule": "warm"}, "did you mean 'warmup'"),
        (
            {"steps": 9, "validation": table(20), "monitor": "mnlll", "every": 2},
            "did you mean 'mnll'",
        ),
    ],
)
def test_bad_requests_get_a_sentence(options: dict[str, object], sentence: str) -> None:
    model, lik = regressor()
    with pytest.raises(hs.HeadstartError, match=sentence):
        hs.fit(model, lik, table(), progress=False, **options)  # type: ignore[arg-type]


def test_a_loss_that_explodes_says_when_and_what_to_try() -> None:
    model, lik = regressor()
    with torch.no_grad():
        model[0].posterior.mean.fill_(1e30)
    before = model[2].posterior.mean.clone()
    with pytest.raises(hs.HeadstartError, match=r"became (inf|nan) at step 1 .*Try a smaller lr"):
        hs.fit(model, lik, table(), steps=5, progress=False)
    assert torch.equal(model[2].posterior.mean, before)  # the step was not taken


def test_a_frozen_batch_norm_stays_frozen() -> None:
    with pytest.warns(UserWarning, match="BatchNorm"):
        model = hs.bayesianize(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)))
    model[1].eval()
    before = model[1].running_mean.clone()
    hs.fit(model, hs.Gaussian(), table(), steps=3, progress=False)
    assert not model[1].training
    assert torch.equal(model[1].running_mean, before)


def test_only_metrics_with_a_better_side_can_be_monitored() -> None:
    model, lik = regressor()
    with pytest.raises(hs.HeadstartError, match="metric to monitor 'coverage_95'"):
        hs.fit(
            model,
            lik,
            table(),
            steps=2,
            every=1,
            validation=table(20),
            monitor="coverage_95",
            progress=False,
        )


def test_half_precision_is_for_the_net_alone() -> None:
    """Under autocast the net's layers compute in bfloat16; parameters and the KL stay in float32."""
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
