"""fit: training to the end, validation, early stopping, and requests that get a sentence."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import headstart as hs
from headstart.training.loop import Training
from tests import cases
from tests.cases import chain
from tests.training.problems import regressor, table


@pytest.mark.slow
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


def test_a_fit_without_a_bar_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Not even an empty line, which rich prints up to 14.2."""
    hs.fit(*regressor(), table(), steps=2, progress=False)
    assert capsys.readouterr().out == ""


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


@pytest.mark.parametrize("function", [hs.fit, hs.steps, hs.predict, hs.evaluate, hs.nelbo])
def test_a_signature_names_every_option_and_its_docstring_explains_it(
    function: Callable[..., Any],
) -> None:
    signature, explained = inspect.signature(function), inspect.getdoc(function) or ""
    assert all(p.kind is not p.VAR_KEYWORD for p in signature.parameters.values())
    for name, parameter in signature.parameters.items():
        assert f"\n    {name}: " in explained, name
        assert parameter.annotation is not parameter.empty, name


@pytest.mark.parametrize("function", [hs.fit, hs.steps])
def test_defaults_are_those_of_the_loop(function: Callable[..., Any]) -> None:
    given = inspect.signature(function).parameters
    for name, parameter in inspect.signature(Training).parameters.items():
        assert name in given
        if name != "steps":
            assert given[name].default == parameter.default, name
            assert given[name].annotation == parameter.annotation, name


@pytest.mark.parametrize(
    "method", [hs.SVI(sampler="weights"), hs.MCDropout(0.02), hs.NoisyKFAC(momentum=0.5)]
)
def test_an_inference_method_of_the_caller_stays_as_it_was(method: hs.Inference) -> None:
    before = dict(vars(method))
    model = method.convert(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1)))
    hs.fit(model, hs.Gaussian(), table(), steps=2, inference=method, progress=False)
    assert vars(method) == before
    list(hs.steps(model, hs.Gaussian(), table(), steps=2, inference=method, precision="bfloat16"))
    assert vars(method) == before
    assert method.precision == "float32"


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
