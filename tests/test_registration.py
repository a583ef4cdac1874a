"""CONTRIBUTING's recipes, followed: own likelihoods and posteriors saved, own metrics monitored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.distributed.rows import LOCAL_ROWS, AllRows
from headstart.likelihoods import LIKELIHOODS
from headstart.likelihoods.base import check_columns, refuse_unless
from headstart.likelihoods.targets import fourier_features
from headstart.linalg.gaussians import UnitGaussian
from headstart.metrics import METRICS, OWN_METRICS
from headstart.posteriors import POSTERIORS
from headstart.predictive import Predictive

RECIPE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()


class WaitingTime(hs.Likelihood):
    """y ~ Exponential(rate exp(−f) / unit), with every method that the recipe lists."""

    name = "waiting_time"

    def __init__(self, unit: float = 1.0) -> None:
        super().__init__()
        self.unit = unit

    def check(self, y: Tensor, outputs: int) -> Tensor:
        y = check_columns(y, outputs, "WaitingTime")
        refuse_unless(y > 0, lambda: "WaitingTime wants positive times.")
        return y

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        return torch.distributions.Exponential((-f).exp() / self.unit).log_prob(y).sum(-1)

    def regression_targets(self, y: Tensor, center: bool = True) -> tuple[Tensor, Tensor]:
        t = (y / self.unit).log() + 0.5772
        return t, torch.full_like(t, 1.6449)

    def label_features(
        self, y: Tensor, count: int, rows: AllRows = LOCAL_ROWS
    ) -> tuple[Tensor, Tensor]:
        t, v = self.regression_targets(y)
        return fourier_features(t, rows.mean(v), count, rows)

    def mean(self, f: Tensor) -> Tensor:
        return self.unit * f.exp()

    def variance(self, f: Tensor) -> Tensor:
        return self.mean(f).square()

    def sample(self, f: Tensor) -> Tensor:
        return self.mean(f) * torch.empty_like(f).exponential_()

    def evaluate(self, f: Tensor, y: Tensor) -> dict[str, float]:
        return self.log_scores(f, self.check(y, f.shape[-1]))

    def config(self) -> dict[str, Any]:
        return {"unit": self.unit}


class OneVariance(hs.Posterior):
    """q(w) = Π_u N(mean_u, exp(logvar_u) I), with every method that the recipe lists."""

    name = "one_variance"

    def __init__(self, units: int, size: int, **factory: Any) -> None:
        super().__init__(units, size, **factory)
        self.logvar = nn.Parameter(torch.full((units, 1), -4.0, **factory))

    def diagonal(self) -> Tensor:
        return self.logvar.exp().expand_as(self.mean)

    def factors(self) -> None:
        return None

    def logdet(self) -> Tensor:
        return self.size * self.logvar.sum()

    @torch.no_grad()
    def project_(self, gaussian: UnitGaussian, match: str = "kl_qp") -> None:
        self.mean.copy_(gaussian.mean)
        self.logvar.copy_(-gaussian.precision_diagonal().mean(1, keepdim=True).log())


@pytest.fixture
def tables() -> Iterator[None]:
    """Both are registered for the test, and gone afterwards."""
    hs.register_likelihood(WaitingTime)
    hs.register_posterior(OneVariance)
    yield
    LIKELIHOODS.pop(WaitingTime.name, None)
    POSTERIORS.pop(OneVariance.name, None)


@pytest.mark.parametrize("kind", [hs.Likelihood, hs.Posterior])
def test_the_recipe_lists_every_method_that_must_be_there(kind: type) -> None:
    line = next(line for line in RECIPE.splitlines() if f"subclass of `{kind.__name__}`" in line)
    listed = set(re.findall(r"`([a-z_]+)`", line))
    assert listed == getattr(kind, "__abstractmethods__", None)


def problem() -> tuple[nn.Module, Tensor, Tensor]:
    x = torch.randn(400, 3)
    rate = (1.5 * x[:, :1]).exp()
    return nn.Linear(3, 1), x, 2 * rate * torch.empty_like(rate).exponential_()


@pytest.mark.usefixtures("tables")
def test_own_classes_initialize_train_save_and_load(tmp_path: Path) -> None:
    net, x, y = problem()
    lik = WaitingTime(unit=2.0)
    model = hs.bayesianize(net, posterior="one_variance")
    constant = -float(WaitingTime(float(y.mean())).log_prob(torch.zeros(400, 1), y).mean())
    hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    start = hs.evaluate(model, lik, (x, y), seed=0)["mnll"]
    hs.fit(model, lik, (x, y), steps=100, progress=False, seed=0)
    end = hs.evaluate(model, lik, (x, y), seed=0)["mnll"]
    assert end < start < constant - 0.3
    hs.save(tmp_path / "m", model, lik)
    again, lik_again = hs.load(tmp_path / "m", net=nn.Linear(3, 1))
    assert isinstance(again.posterior, OneVariance)
    assert isinstance(lik_again, WaitingTime)
    assert lik_again.unit == 2.0
    draws = [hs.predict(m, lik, x, samples=4, seed=0).draws for m in (model, again)]
    assert torch.equal(*draws)


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("table", "of", "kind"),
    [(LIKELIHOODS, "likelihood", WaitingTime), (POSTERIORS, "posterior", OneVariance)],
)
def test_a_class_that_is_not_registered_is_named(
    tmp_path: Path, table: dict[str, type], of: str, kind: Any
) -> None:
    model, lik = hs.bayesianize(nn.Linear(3, 1), posterior="one_variance"), WaitingTime()
    hs.save(tmp_path / "m", model, lik)
    del table[kind.name]
    with pytest.raises(
        hs.HeadstartError, match=f"import the module that registers it, {kind.__module__}"
    ):
        hs.load(tmp_path / "m", net=nn.Linear(3, 1))
    with pytest.raises(hs.HeadstartError, match=f"decorate the class with @hs.register_{of}"):
        hs.save(tmp_path / "other", model, lik)
    assert not (tmp_path / "other").exists()


@pytest.mark.usefixtures("tables")
def test_a_name_that_is_missing_or_taken_gets_a_sentence() -> None:
    # The same class again is no other class: a notebook's cell that is run twice.
    assert hs.register_likelihood(WaitingTime) is WaitingTime
    nameless = type("Nameless", (hs.Poisson,), {})
    with pytest.raises(hs.HeadstartError, match="Nameless has no name of its own"):
        hs.register_likelihood(nameless)
    second = type("Second", (hs.Poisson,), {"name": "gaussian"})
    with pytest.raises(hs.HeadstartError, match="is already the likelihood 'gaussian'"):
        hs.register_likelihood(second)
    half = type("Half", (hs.Likelihood,), {"name": "half", "mean": hs.Poisson.mean})
    with pytest.raises(hs.HeadstartError, match="it lacks check, evaluate, label_features"):
        hs.register_likelihood(half)
    assert "half" not in LIKELIHOODS
    assert LIKELIHOODS["gaussian"] is hs.Gaussian


def test_a_metric_of_one_s_own_is_scored_and_monitored() -> None:
    x = torch.randn(200, 2)
    y = x.sum(1, keepdim=True)
    model, lik = hs.bayesianize(nn.Linear(2, 1)), hs.Gaussian()

    def worst(pred: Predictive, labels: Tensor) -> float | None:
        return float((pred.mean - labels).abs().max()) if labels.ndim == 2 else None

    hs.register_metric("worst", better=-1)(worst)
    try:
        history = hs.fit(
            model,
            lik,
            (x, y),
            steps=30,
            every=10,
            validation=(x, y),
            monitor="worst",
            progress=False,
            seed=0,
        )
        pred = hs.predict(model, lik, x, seed=0)
        assert pred.evaluate(y)["worst"] == worst(pred, y)
        # What has no meaning for a likelihood is not among its scores.
        other = Predictive(torch.zeros(2, 3, 1), hs.Bernoulli())
        assert "worst" not in other.evaluate(torch.tensor([0, 1, 1]))
        with pytest.raises(hs.HeadstartError, match="There is a metric 'rmse' already"):
            hs.register_metric("rmse", better=-1)
        with pytest.raises(hs.HeadstartError, match="better must be"):
            hs.register_metric("other", better=2)
    finally:
        del METRICS["worst"], OWN_METRICS["worst"]
    found = {scores["step"]: scores["worst"] for scores in history.validation}
    # The start, and three evaluations.
    assert list(found) == [0, 10, 20, 30]
    # The parameters of the best evaluation came back.
    assert float((pred.mean - y).abs().max()) == pytest.approx(min(found.values()), rel=0.05)
