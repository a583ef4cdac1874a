"""A row of weight w is w rows, of weight 0 none: in the loss, in I-BLM, in the noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import headstart as hs
from headstart.likelihoods.predictions import Predictive
from headstart.nested import Nested
from tests import cases

pytestmark = pytest.mark.usefixtures("float64")
WEIGHTS = torch.tensor([1, 2, 0, 3] * 8)
AGAIN = torch.arange(32).repeat_interleave(WEIGHTS)


def weighted(y: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"labels": y, "sample_weight": WEIGHTS.double()}


@pytest.mark.parametrize("name", cases.LIKELIHOODS)
def test_a_row_of_weight_w_is_w_rows(name: str) -> None:
    case = cases.LIKELIHOODS[name]
    plain, y, f = case.make(), case.labels(32), torch.randn(2, 32, case.outputs)
    lik = hs.Weighted(plain)
    checked = lik.check(Nested(named=weighted(y)), case.outputs)
    again = plain.check(y[AGAIN], case.outputs)
    torch.testing.assert_close(
        lik.log_prob(f, checked).sum(1), plain.log_prob(f[:, AGAIN], again).sum(1)
    )
    slope, curvature = lik.curvature(f, checked)
    want = plain.curvature(f, plain.check(y, case.outputs))
    scale = WEIGHTS.double().unsqueeze(1)
    torch.testing.assert_close(slope, scale * want[0])
    torch.testing.assert_close(curvature, scale * want[1])


@pytest.mark.parametrize("net", ["linear", "sequence"])
def test_iblm_counts_weights(net: str) -> None:
    """The posterior of a linear model is that of the rows repeated."""
    shape = (32, 4) if net == "linear" else (32, 3, 4)
    x = torch.randn(*shape)
    y = x @ torch.randn(4, 2) + 0.3 * torch.randn(*shape[:-1], 2)
    weights = WEIGHTS.double() if net == "linear" else WEIGHTS.double()[:, None].expand(32, 3)
    plain = hs.Gaussian(0.3, learn_noise=False)
    liks: list[hs.Likelihood] = [hs.Weighted(plain), plain]
    if net == "sequence":
        liks = [hs.PerPosition(each) for each in liks]
    found = []
    data = [{"input": x, "labels": y, "sample_weight": weights}, (x[AGAIN], y[AGAIN])]
    for lik, each in zip(liks, data, strict=True):
        model = hs.bayesianize(nn.Linear(4, 2), posterior="full_covariance")
        hs.initialize_(model, "iblm", lik, each, num_data=len(AGAIN) if each is data[1] else None)
        found.append(model.posterior)
    # A weight of 0 counts 1e-8 of a row.
    torch.testing.assert_close(found[0].mean, found[1].mean, rtol=0, atol=1e-6)
    torch.testing.assert_close(found[0].variance(), found[1].variance(), rtol=0, atol=1e-6)


def test_the_noise_is_that_of_the_rows_that_count() -> None:
    lik = hs.Weighted(hs.Gaussian())
    y = torch.randn(32, 1)
    lik.fit_(torch.zeros(4, 32, 1), lik.check(Nested(named=weighted(y)), 1))
    want = (WEIGHTS.double().unsqueeze(1) * y.square()).sum() / WEIGHTS.sum()
    # As near as 32 rows allow.
    assert abs(float(lik.likelihood.noise_var.detach() / want) - 1) < 0.2
    plain = hs.Gaussian()
    lik.fit_(torch.zeros(4, 32, 1), lik.check(y, 1))
    plain.fit_(torch.zeros(4, 32, 1), y)
    assert torch.equal(lik.likelihood.noise_var, plain.noise_var)


def test_a_mask_of_real_labels_leaves_positions_out(tmp_path: Path) -> None:
    x, mask = torch.randn(30, 5, 4), (torch.rand(30, 5) < 0.6).double()
    y = x.sum(-1, keepdim=True) + 0.1 * torch.randn(30, 5, 1)
    spoiled = torch.where(mask.bool().unsqueeze(-1), y, torch.tensor(1e3))
    model, lik = hs.bayesianize(nn.Linear(4, 1)), hs.PerPosition(hs.Weighted(hs.Gaussian()))
    data = {"input": x, "labels": spoiled, "sample_weight": mask}
    hs.initialize_(model, "iblm", lik, data)
    hs.fit(model, lik, data, steps=20, progress=False, seed=0)
    assert hs.evaluate(model, lik, data, samples=16, seed=0)["rmse"] < 0.3
    assert hs.evaluate(model, lik, (x, y), samples=16, seed=0)["rmse"] < 0.3
    hs.save(tmp_path / "model.safetensors", model, lik)
    assert repr(hs.load(tmp_path / "model.safetensors", nn.Linear(4, 1))[1]) == repr(lik)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: hs.Weighted(hs.Bernoulli()).check(Nested((torch.ones(3), -torch.ones(3))), 1),
            "at least 0; one is -1",
        ),
        (
            lambda: hs.Weighted(hs.Bernoulli()).check(Nested((torch.ones(3), torch.ones(3, 1))), 1),
            r"a weight for each label, \(3,\), not \(3, 1\)",
        ),
        (lambda: hs.Weighted(hs.PerPosition(hs.Bernoulli())), "belong to single labels"),
        (
            lambda: hs.Weighted(hs.Bernoulli()).check(Nested(named={"a": torch.ones(3)}), 1),
            "wants labels and weights",
        ),
        (
            lambda: hs.Weighted(hs.Bernoulli()).evaluate(
                torch.zeros(1, 2, 1), Nested((torch.ones(2), torch.zeros(2)))
            ),
            "nothing to score",
        ),
    ],
)
def test_what_does_not_fit_gets_a_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        call()


def test_one_row_without_weight_leaves_hidden_layers_as_certain_as_they_were() -> None:
    x, found = torch.randn(201, 4), []
    y = x[:, 0].sin() + 0.1 * torch.randn(201)
    spoiled = torch.where(torch.arange(201) == 200, 50.0, y)
    for rows, labels in ((200, y), (201, spoiled)):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 30), nn.Tanh(), nn.Linear(30, 1))
        model, lik = hs.bayesianize(net), hs.Weighted(hs.Gaussian(0.01, learn_noise=False))
        data = {
            "input": x[:rows],
            "labels": labels[:rows],
            "sample_weight": (torch.arange(rows) < 200).double(),
        }
        hs.initialize_(model, "iblm", lik, data, seed=0)
        found.append(float(model[0].kl().detach()))
    assert abs(found[1] / found[0] - 1) < 0.15


def test_predictions_count_labels_of_any_weight_alike() -> None:
    lik = hs.PerPosition(hs.Weighted(hs.Gaussian(0.5, learn_noise=False)))
    y, f, mask = torch.randn(6, 3), torch.randn(10, 6, 3, 1), torch.zeros(6, 3)
    mask[:, 1:] = 1.0
    pred = Predictive(f, lik.for_prediction(), layout=(3,))
    want = Predictive(f[:, :, 1:], hs.PerPosition(hs.Gaussian(0.5)), layout=(2,))
    for weights in (mask, 3 * mask):
        found = pred.log_prob((y, weights))
        torch.testing.assert_close(found, want.log_prob(y[:, 1:]).detach())


def test_heads_with_weights_are_scored_without() -> None:
    lik = hs.Joint({"a": hs.Weighted(hs.Bernoulli()), "b": hs.Bernoulli()}).for_prediction()
    f = Nested(named={"a": torch.randn(10, 6, 1), "b": torch.randn(10, 6, 1)})
    labels, scores = torch.randint(2, (6,)), []
    for scale in (1.0, 3.0):
        a = Nested((labels, torch.full((6,), scale)))
        checked = {"a": lik.parts()["a"].check(a, 1), "b": labels}
        scores.append(lik.evaluate(f, Nested(named=checked)))
    assert scores[0] == pytest.approx(scores[1])


@pytest.mark.parametrize("wrap", [hs.Weighted, hs.PerPosition])
def test_the_bound_of_a_noise_that_varies_reaches_it(wrap: Any) -> None:
    plain = hs.Heteroscedastic()
    f = torch.randn(5, 8, 3, 2)
    wrap(plain).bound_(f if wrap is hs.PerPosition else f[:, :, 0])
    assert plain.log_var_range != hs.Heteroscedastic().log_var_range


@pytest.mark.parametrize("wrap", [hs.Weighted, hs.PerPosition])
def test_what_labels_are_is_known_outside(wrap: type[hs.Weighted] | type[hs.PerPosition]) -> None:
    for within in (hs.Poisson(), hs.Gaussian()):
        assert (wrap(within).has_counts, wrap(within).lowest) == (within.has_counts, within.lowest)
