"""fit: training to the end, validation, early stopping, and requests that get a sentence."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import headstart as hs
from headstart.network.layer import bayesian_layers
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
        ({"steps": 5, "max_steps": 9}, "steps=5 and max_steps=9 both say when training ends"),
        ({"max_steps": 0}, "max_steps must be a number, at least 1, not 0"),
        ({"steps": 5, "time_limit": -1.0}, "time_limit must be a number, at least 0, not -1.0"),
        ({"steps": -3}, "steps must be a number, at least 0, not -3"),
        ({"steps": 2.5}, "steps must be a whole number, not 2.5"),
        ({"epochs": 1.5}, "epochs must be a whole number, not 1.5"),
        ({"steps": 5, "samples": 2.5}, "samples must be a whole number, not 2.5"),
        ({"steps": 5, "batch_size": 7.5}, "batch_size must be a whole number, not 7.5"),
        ({"steps": "10"}, "steps must be a number, at least 0, not '10'"),
        ({"steps": 5, "patience": -1}, "patience must be a number, at least 1, not -1"),
        ({"steps": 5, "lr": -1.0}, "lr must be a number above 0, not -1.0"),
        ({"steps": 5, "temperature": -1.0}, "temperature must be a number, at least 0"),
        ({"steps": 5, "prior_every": 0}, "prior_every must be a number above 0, not 0"),
        ({"steps": 5, "resume": True}, "name its folder, checkpoint="),
        ({"kl_schedule": "warmup"}, "A schedule needs to know its end: pass steps="),
        ({"steps": 5, "optimizer": "sgd"}, "There is no optimizer 'sgd'"),
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
    # Either the first batch is too large to measure, or the loss on it.
    said = {
        "adam": r"became (inf|nan) at step 1 .*Try a smaller lr",
        "averaged": r"sum to (inf|nan) on the first batch|became (inf|nan) at step 1",
    }
    for optimizer, sentence in said.items():
        with pytest.raises(hs.HeadstartError, match=sentence):
            hs.fit(model, lik, table(), steps=5, optimizer=optimizer, progress=False)
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


def flat_problem() -> tuple[nn.Module, hs.Gaussian, tuple[torch.Tensor, torch.Tensor]]:
    """Labels that the inputs say nothing about: after the start nothing is to be gained."""
    torch.manual_seed(0)
    x, y = torch.randn(256, 3), torch.randn(256, 1)
    model, lik = hs.bayesianize(nn.Linear(3, 1)), hs.Gaussian()
    hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    return model, lik, (x, y)


def test_without_a_number_of_steps_it_ends_when_nothing_more_is_gained() -> None:
    model, lik, data = flat_problem()
    history = hs.fit(model, lik, data, samples=4, progress=False, seed=0)
    assert history.stopped == "NELBO no longer improves"
    assert 500 <= len(history.steps) < 2000
    assert history.movement is not None
    assert 0.75 * history.movement.until <= history.movement.since <= 0.9 * history.movement.until


def test_it_goes_on_while_the_nelbo_falls_and_ends_at_the_bound() -> None:
    model, lik = regressor()
    history = hs.fit(model, lik, table(), max_steps=600, samples=2, progress=False, seed=0)
    assert (history.stopped, len(history.steps)) == ("max_steps reached", 600)


def test_validation_rows_decide_when_there_are_any() -> None:
    model, lik, data = flat_problem()
    history = hs.fit(model, lik, data, samples=2, validation=data, every=10, progress=False, seed=0)
    assert history.stopped == "mnll no longer improves"
    # The start, nineteen evaluations, and two checks more.
    assert 210 <= len(history.steps) < 1000
    assert [scores["step"] for scores in history.validation[:3]] == [0, 10, 20]


def test_the_start_is_the_best_where_nothing_is_to_be_learned() -> None:
    """Steps that only do harm: the model ends where it began."""
    model, lik, data = flat_problem()
    before = [p.detach().clone() for p in model.parameters()]
    history = hs.fit(
        model, lik, data, steps=20, lr=0.1, validation=data, every=10, progress=False, seed=0
    )
    assert history.best_step == 0
    assert all(map(torch.equal, before, model.parameters()))


def test_a_time_limit_scores_the_last_steps_too() -> None:
    model, lik = regressor()
    options = {"validation": table(), "every": 10**5, "progress": False, "seed": 0}
    history = hs.fit(model, lik, table(), steps=10**6, time_limit=0.5, **options)
    assert [scores["step"] for scores in history.validation] == [0, len(history.steps)]


def test_nothing_that_is_not_finite_is_kept_when_time_ends(tmp_path: Path) -> None:
    class Spoil(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * torch.nan

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Spoil.apply(self.layer(x))

    with pytest.raises(hs.HeadstartError, match="is not finite after step 1"):
        hs.fit(
            hs.bayesianize(Net()),
            hs.Gaussian(),
            table(),
            steps=100,
            time_limit=1e-9,
            checkpoint=tmp_path,
            progress=False,
        )


def test_another_prior_does_not_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    def fit(prior: float) -> None:
        model, data = hs.bayesianize(nn.Linear(4, 1), prior=prior), (x, x[:, :1])
        options = {"steps": 4, "every": 2, "progress": False, "checkpoint": tmp_path}
        hs.fit(model, hs.Gaussian(), data, resume=True, **options)

    x = torch.randn(50, 4)
    fit(1.0)
    with pytest.raises(hs.HeadstartError, match="another run: its priors"):
        fit(0.5)


def test_a_history_is_a_line() -> None:
    model, lik = regressor()
    history = hs.fit(model, lik, table(), steps=3, progress=False)
    assert repr(history).startswith("<History of 3 steps in ")
    assert repr(history).endswith(": all steps done>")


def test_a_time_limit_ends_training_after_the_step_at_hand() -> None:
    model, lik = regressor()
    history = hs.fit(model, lik, table(), steps=10**6, time_limit=0.05, progress=False)
    assert history.stopped == "time limit of 0.05 s"
    assert history.steps[-1].seconds >= 0.05 > history.steps[-2].seconds


def test_until_converged_is_resumed_to_the_bit(tmp_path: Path) -> None:
    """A time limit ends each call after a few steps; with more time it goes on from there."""

    def fit(folder: str, time_limit: float | None) -> tuple[hs.History, torch.Tensor]:
        model, lik, data = flat_problem()
        options = {"samples": 2, "checkpoint": tmp_path / folder, "progress": False, "seed": 0}
        options.update(batch_size=256, every=50, resume=True, time_limit=time_limit)
        history = hs.fit(model, lik, data, **options)
        return history, torch.cat([p.detach().flatten() for p in model.parameters()])

    whole, expected = fit("whole", None)
    assert whole.stopped == "NELBO no longer improves"
    lengths = [len(fit("parts", limit)[0].steps) for limit in (1e-9, 0.2)]
    assert 1 == lengths[0] < lengths[1] < len(whole.steps)
    parts, found = fit("parts", None)
    assert torch.equal(found, expected)
    assert (len(parts.steps), parts.stopped) == (len(whole.steps), whole.stopped)
    assert parts.movement == whole.movement


def test_the_paper_s_protocol_is_adam_at_a_thousandth() -> None:
    """`optimizer="adam"` equals `lr=1e-3` to the bit, and is torch's Adam on the NELBO."""

    def trained(**options: Any) -> torch.Tensor:
        torch.manual_seed(0)
        model, lik = regressor()
        hs.fit(model, lik, table(), steps=20, samples=2, progress=False, seed=0, **options)
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    paper = trained(optimizer="adam")
    assert torch.equal(paper, trained(lr=1e-3))
    assert not torch.equal(paper, trained())
    assert torch.equal(trained(), trained(optimizer="averaged"))


def test_a_method_with_its_own_optimizer_takes_no_other() -> None:
    model = hs.inference.MCDropout().convert(nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 1)))
    with pytest.raises(hs.HeadstartError, match="mc-dropout has its own optimizer"):
        hs.fit(model, hs.Gaussian(), table(), steps=1, inference="mc-dropout", optimizer="adam")


def test_a_learned_prior_begins_at_the_posterior_that_training_begins_with() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 1))
    model, lik = hs.bayesianize(net, prior="learned"), hs.Gaussian()
    hs.initialize_(model, "iblm", lik, table(), seed=0)
    expected = [
        float((layer.posterior.mean.square() + layer.posterior.variance()).mean().detach())
        for layer in bayesian_layers(model).values()
    ]
    hs.fit(model, lik, table(), steps=1, progress=False)
    found = [float(layer.prior.var) for layer in bayesian_layers(model).values()]
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_history_draws_itself(tmp_path: Path) -> None:
    model, lik = regressor()
    history = hs.fit(model, lik, table(), steps=60, validation=table(), every=20, progress=False)
    figure = history.plot(tmp_path / "fit.png")
    assert (tmp_path / "fit.png").read_bytes()[:4] == b"\x89PNG"
    nelbo, scores = figure.axes
    assert list(nelbo.lines[0].get_ydata()) == [record.nelbo for record in history.steps]
    assert list(scores.lines[0].get_xdata()) == [0, 20, 40, 60]
    assert nelbo.get_title().startswith("all steps done")
    with pytest.raises(hs.HeadstartError, match="no steps"):
        hs.History().plot()
