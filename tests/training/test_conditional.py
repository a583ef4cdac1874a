"""`condition`: exact where features are known, a better bound than one read-out for all draws."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from rich.progress import Progress
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

import headstart as hs
from headstart.network.layer import bayesian_layers
from tests.training.problems import regressor, table


@pytest.mark.usefixtures("float64")
def test_a_linear_model_has_the_evidence_of_refine() -> None:
    x, y = table(40)
    model, lik = hs.bayesianize(nn.Linear(4, 1)), hs.Gaussian()
    found = hs.condition(model, lik, (x, y))
    assert len(found.nets) == 1
    report = hs.refine_(model, lik, (x, y))
    assert found.nelbo == pytest.approx(report.nelbo_after, abs=1e-9)
    assert found.prior_var == pytest.approx(report.prior_after, rel=1e-6)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("widen", [False, True])
def test_the_bound_is_the_mean_evidence_of_the_drawn_features_less_a_kl(widen: bool) -> None:
    x, y = table(60)
    model, lik = regressor()
    found = hs.condition(model, lik, (x, y), draws=3, widen=widen)
    noise, prior = float(found.likelihood.noise_var.detach()), found.prior_var
    assert prior is not None
    total = 0.0
    for net in found.nets:
        features = net[1](net[0].op.__class__.forward(_with_weights(net), x))
        rows = torch.cat([features, torch.ones(60, 1)], 1)
        law = MultivariateNormal(torch.zeros(60), noise * torch.eye(60) + prior * rows @ rows.T)
        total += float(law.log_prob(y[:, 0])) / 3
    with torch.no_grad():
        model[0].posterior.logvar.add_(math.log(found.factor))
    assert (found.factor != 1) == widen
    kl = float(hs.bayesian_layers(model)["0"].kl().detach())
    assert found.nelbo == pytest.approx(kl - total, abs=1e-7)


def _with_weights(net: nn.Module) -> nn.Linear:
    """The first layer as a plain one."""
    mean = net[0].posterior.mean
    plain = nn.Linear(4, 10)
    plain.weight, plain.bias = nn.Parameter(mean[:, :4]), nn.Parameter(mean[:, 4])
    return plain.requires_grad_(False)


@pytest.mark.parametrize("kind", ["gaussian", "bernoulli"])
def test_the_bound_is_better_than_that_of_one_read_out(kind: str) -> None:
    x, y = table()
    model, lik = regressor()
    if kind == "bernoulli":
        lik, y = hs.Bernoulli(), (y > 0).long()
    hs.initialize_(model, "iblm", lik, (x, y))
    before = [p.clone() for p in (*model.parameters(), *lik.parameters())]
    found = hs.condition(model, lik, (x, y), draws=8, learn_prior=False)
    after = (*model.parameters(), *lik.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    report = hs.refine_(model, lik, (x, y), learn_prior=False)
    assert found.nelbo < report.nelbo_after + 0.1


@pytest.mark.parametrize("kind", ["bernoulli", "categorical"])
def test_the_read_outs_of_classes_share_the_prior_variance_of_the_best_bound(kind: str) -> None:
    x, y = table()
    torch.manual_seed(0)
    lik, outputs = (hs.Bernoulli(), 1) if kind == "bernoulli" else (hs.Categorical(2), 2)
    model = hs.bayesianize(hs.models.create("mlp-1x10", 4, outputs))
    data = x, (y[:, 0] > 0).long()
    hs.initialize_(model, "iblm", lik, data)
    options: dict[str, Any] = {"draws": 8, "widen": False}
    found = hs.condition(model, lik, data, **options)
    assert found.prior_var is not None
    of_nets = {1 / net[-1].prior.mean_precision() for net in found.nets}
    assert max(of_nets) == pytest.approx(min(of_nets)) == pytest.approx(found.prior_var)
    for factor in (1 / 16, 16.0):
        model[-1].prior = model[-1].prior.with_variance(factor * found.prior_var)
        other = hs.condition(model, lik, data, learn_prior=False, **options)
        assert other.nelbo > found.nelbo


def test_labels_that_say_little_do_not_take_the_doubt_away() -> None:
    torch.manual_seed(0)
    x = torch.randn(150, 2)
    y = torch.bernoulli((1.8 * x[:, 0] * x[:, 1]).sigmoid()).long()
    model, lik = hs.bayesianize(hs.models.create("mlp-1x20-tanh", 2, 1)), hs.Bernoulli()
    hs.initialize_(model, "iblm", lik, (x, y))
    hs.fit(model, lik, (x, y), steps=150, progress=False, seed=0)
    kept, found = (
        hs.condition(model, lik, (x, y), draws=8, widen=False, learn_prior=learn)
        for learn in (False, True)
    )
    assert found.prior_var is not None
    assert found.nelbo < kept.nelbo + 0.5
    far = torch.full((1, 2), 6.0)
    assert found.prior_var > 1e-2
    doubt = [each.predict(far, 512, seed=0).epistemic_std.item() for each in (kept, found)]
    assert doubt[1] > 0.3 * doubt[0]


def test_draws_are_reproducible_and_predictions_sane() -> None:
    x, y = table()
    model, lik = regressor()
    hs.initialize_(model, "iblm", lik, (x, y))
    one, other = (hs.condition(model, lik, (x, y), draws=4, seed=3) for _ in range(2))
    predicted = one.predict(x, 64, seed=0)
    assert torch.equal(predicted.std, other.predict(x, 64, seed=0).std)
    assert predicted.draws.shape == (64, 200, 1)
    scores = predicted.evaluate(y)
    assert 0.9 < scores["coverage_95"] <= 1
    # A third of the standard deviation of the labels.
    assert scores["rmse"] < 0.75


def test_no_draw_at_all_is_refused() -> None:
    model, lik = regressor()
    with pytest.raises(hs.HeadstartError, match="At least one draw"):
        hs.condition(model, lik, table(), draws=0)


@pytest.mark.slow
def test_in_a_gap_the_function_is_less_certain_than_inside() -> None:
    def f(x: Tensor) -> Tensor:
        return (2 * x).sin() + 0.2 * torch.randn_like(x)

    x = 0.7 + 1.3 * torch.rand(80, 1)
    x = torch.cat([x[:40], -x[40:]])
    net = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1))
    model, lik = hs.bayesianize(net), hs.Gaussian(0.04, learn_noise=False)
    data = x, f(x)
    hs.initialize_(model, "iblm", lik, data)
    hs.fit(model, lik, data, steps=1000, samples=8, lr=1e-2, progress=False, seed=0)
    found = hs.condition(model, lik, data, learn_prior=False)
    inside = found.predict(torch.linspace(0.8, 2, 20).unsqueeze(1), 256, seed=0).epistemic_std
    gap = found.predict(torch.linspace(-0.4, 0.4, 9).unsqueeze(1), 256, seed=0).epistemic_std
    assert float(gap.median()) > 3 * float(inside.median())
    assert math.isfinite(found.nelbo)


@pytest.mark.parametrize("shown", [False, True])
def test_a_bar_counts_the_read_outs(shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[tuple[str, float]] = []
    remove = Progress.remove_task

    def note(bar: Progress, task: Any) -> None:
        counted.extend((each.description, each.completed) for each in bar.tasks)
        assert bar.disable is not shown
        remove(bar, task)

    monkeypatch.setattr(Progress, "remove_task", note)
    model, lik = regressor()
    hs.condition(model, lik, table(), draws=3, widen=False, progress=shown)
    assert counted == [("read-outs, 1 × variance", 3)]


def test_condition_without_a_bar_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    hs.condition(*regressor(), table(), draws=2, progress=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_an_interrupt_leaves_everything_as_it_was(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = table()
    net: nn.Module = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Tanh(), nn.Linear(8, 2))
    lik: hs.Likelihood = hs.Categorical(2)
    labels = (y.flatten() > 0).long()
    if kind == "gaussian":
        net[-1], lik, labels = nn.Linear(8, 1), hs.Gaussian(), y  # type: ignore[index]
    model, calls = hs.bayesianize(net).train(), []
    before = {name: value.clone() for name, value in model.state_dict().items()}
    noise = [p.detach().clone() for p in lik.parameters()]
    samplers = [layer.sampler for layer in bayesian_layers(model).values()]
    advance = Progress.advance

    def press(bar: Progress, task: Any, steps: float = 1) -> None:
        advance(bar, task, steps)
        calls.append(task)
        if len(calls) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "advance", press)
    torch.manual_seed(3)
    with pytest.raises(KeyboardInterrupt):
        hs.condition(model, lik, (x, labels), draws=8)
    drawn = torch.rand(2)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(2))
    assert all(module.training for module in model.modules() if module is not lik)
    assert [layer.sampler for layer in bayesian_layers(model).values()] == samplers
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(map(torch.equal, lik.parameters(), noise))
    monkeypatch.undo()
    # And the work can be begun again.
    assert len(hs.condition(model, lik, (x, labels), draws=2, progress=False).nets) == 2
