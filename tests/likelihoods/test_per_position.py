"""Labels at positions: shapes, saving, training, predictions in the net's own axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs

ROWS = 40


def segmentation() -> tuple[nn.Module, hs.Likelihood, Tensor, Tensor]:
    net = nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2, padding=1),
        nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(8, 3, 3, padding=1),
    )  # fmt: skip
    x = torch.randn(ROWS, 2, 6, 6)
    y = torch.stack([x[:, 0], x[:, 1], 0.3 * torch.ones(ROWS, 6, 6)], 1).argmax(1)
    y[:, 0, 0] = 255
    return net, hs.PerPosition(hs.Categorical(3, ignore_index=255), axis=1), x, y


def denoising() -> tuple[nn.Module, hs.Likelihood, Tensor, Tensor]:
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    x = torch.randn(ROWS, 5, 4)
    y = torch.stack([x.sum(-1).sin(), x[..., 0]], -1) + 0.1 * torch.randn(ROWS, 5, 2)
    return net, hs.PerPosition(hs.Gaussian()), x, y


def tagging() -> tuple[nn.Module, hs.Likelihood, Tensor, Tensor]:
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    x = torch.randn(ROWS, 7, 4)
    return net, hs.PerPosition(hs.Bernoulli()), x, (x[..., 0] > 0).long()


@pytest.mark.parametrize("make", [segmentation, denoising, tagging])
def test_a_dense_net_starts_better_than_a_constant_and_trains(make: Any) -> None:
    torch.manual_seed(0)
    net, lik, x, y = make()
    model = hs.bayesianize(net)
    constant = hs.bayesianize(nn.Sequential(*net))
    report = hs.initialize_(model, "iblm", lik, (x, y))
    assert not report.warnings or "KL" in report.warnings[0]
    start = hs.evaluate(model, lik, (x, y), samples=32, seed=0)
    for layer in hs.bayesian_layers(constant).values():
        layer.posterior.mean.data.zero_()
        layer.posterior.logvar.data.fill_(-20.0)
    plain = make()[1]
    assert start["mnll"] < hs.evaluate(constant, plain, (x, y), samples=4, seed=0)["mnll"]
    hs.fit(model, lik, (x, y), steps=60, progress=False, seed=0)
    assert hs.evaluate(model, lik, (x, y), samples=32, seed=0)["mnll"] < start["mnll"]


def test_predictions_have_the_net_s_axes() -> None:
    net, lik, x, y = segmentation()
    model = hs.bayesianize(net)
    pred = hs.predict(model, lik, x, samples=8, seed=0)
    assert pred.probs.shape == pred.std.shape == (ROWS, 3, 6, 6)
    assert pred.entropy.shape == pred.mutual_information.shape == (ROWS, 6, 6)
    assert pred.log_prob(y).shape == (ROWS,)
    torch.testing.assert_close(pred.probs.sum(1), torch.ones(ROWS, 6, 6))
    mean = hs.predict(model, lik, x, samples=1, sampler="mean")
    with hs.drawing(model, "mean"):
        torch.testing.assert_close(mean.probs, model(x).softmax(1))
    lower, upper = hs.predict(*_predicted(denoising())).interval(0.9)
    assert lower.shape == upper.shape == (ROWS, 5, 2)
    assert "at 36 positions" in repr(pred)


def _predicted(case: tuple[nn.Module, hs.Likelihood, Tensor, Tensor]) -> tuple[Any, ...]:
    net, lik, x, _ = case
    return hs.bayesianize(net), lik, x, 8


def test_a_mixture_has_the_axes_of_each_member() -> None:
    net, lik, x, y = denoising()
    model = hs.bayesianize(net, members=2)
    hs.initialize_(model, "iblm", lik, (x, y))
    pred = hs.predict(model, lik, x, samples=8, seed=0)
    assert pred.member_mean.shape == (2, ROWS, 5, 2)
    assert pred.between_members_std.shape == pred.within_members_std.shape == (ROWS, 5, 2)


def test_labels_that_were_checked_are_checked_again() -> None:
    lik = hs.PerPosition(hs.Gaussian(), axis=1)
    y = torch.randn(4, 2, 3, 5)
    once = lik.check(y, (15, 2))
    assert once.shape == (4, 2, 15)
    assert torch.equal(once[0, :, 1], y[0, :, 0, 1])
    assert torch.equal(lik.check(once, (15, 2)), once)


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    net, _, x, y = segmentation()
    lik = hs.PerPosition(hs.Categorical(3, ignore_index=255, label_smoothing=0.1), axis=1)
    model = hs.bayesianize(net)
    hs.save(tmp_path / "model.safetensors", model, lik)
    again, found = hs.load(tmp_path / "model.safetensors", net)
    assert repr(found) == repr(lik)
    one, other = (hs.evaluate(m, k, (x, y), 4, seed=0) for m, k in ((model, lik), (again, found)))
    assert one == other


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: hs.predict(
                hs.bayesianize(nn.Linear(2, 3)), hs.PerPosition(hs.Gaussian()), torch.zeros(4, 2)
            ),
            r"reads outputs of shape \(rows, positions, outputs\).*gives \(rows, 3\)",
        ),
        (
            lambda: hs.PerPosition(hs.Gaussian()).check(torch.zeros(4, 3), (5, 2)),
            r"2 outputs at each of 5 positions .* not \(4, 3\)",
        ),
        (
            lambda: hs.predict(
                hs.bayesianize(nn.Conv2d(1, 3, 3, padding=1)),
                hs.PerPosition(hs.Categorical(3)),
                torch.zeros(4, 1, 6, 6),
            ).log_prob(torch.zeros(4, 6, 6, dtype=torch.long)),
            r"On axis -1 the net gives 6 outputs .* say so: PerPosition\(..., axis=1\)",
        ),
        (lambda: hs.PerPosition(hs.Gaussian(), axis=0), "Axis 0 holds the rows"),
        (lambda: hs.PerPosition(hs.PerPosition(hs.Gaussian())), "must be one of single labels"),
        (
            lambda: hs.predict(
                hs.bayesianize(nn.Linear(2, 3)), hs.Gaussian(), torch.zeros(4, 5, 2)
            ),
            r"gives \(rows, 5, 3\).*hs.PerPosition",
        ),
        (
            lambda: hs.initialize_(
                hs.bayesianize(nn.Linear(2, 3)),
                "laplace",
                hs.PerPosition(hs.Gaussian()),
                (torch.zeros(4, 5, 2), torch.zeros(4, 5, 3)),
            ),
            "one label for each row",
        ),
        (
            lambda: hs.refine_(
                hs.bayesianize(nn.Linear(2, 3)),
                hs.PerPosition(hs.Gaussian()),
                (torch.zeros(4, 5, 2), torch.zeros(4, 5, 3)),
            ),
            "one label of each row",
        ),
    ],
)
def test_what_does_not_fit_gets_a_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        call()


@pytest.mark.parametrize("axis", [1, -2, -1, 2])
def test_a_square_of_positions_and_outputs_is_read_one_way(axis: int) -> None:
    lik, y = hs.PerPosition(hs.Gaussian(), axis=axis), torch.randn(4, 3, 3)
    once = lik.check(y, (3, 3))
    assert torch.equal(lik.check(once, (3, 3)), once)
    f = lik.read(y.unsqueeze(0))
    # Outputs that are the labels have no residuals.
    exact = lik.log_prob(f, once)
    assert bool((exact > lik.log_prob(f, lik.check(y.mT, (3, 3)))).all())
    assert torch.equal(lik.regression_targets(once)[0], y.movedim(axis, -1).reshape(-1, 3))
    drawn = lik.sample(f)
    assert torch.equal(lik.check(drawn[0], (3, 3)), drawn[0])


def test_as_many_rows_as_outputs_are_rows_still() -> None:
    lik, y = hs.PerPosition(hs.Gaussian(), axis=-3), torch.randn(2, 2, 3, 4)
    once = lik.check(y, (12, 2))
    assert torch.equal(lik.check(once, (12, 2)), once)


def test_a_position_may_have_fewer_labels_than_outputs() -> None:
    lik, y = hs.PerPosition(hs.Heteroscedastic(), axis=1), torch.randn(5, 2, 3, 4)
    f = torch.randn(1, 5, 4, 3, 4)
    found = lik.log_prob(lik.read(f), lik.check(y, (12, 4)))
    plain = hs.Heteroscedastic()
    flat = f.movedim(2, -1).reshape(1, -1, 4)
    want = plain.log_prob(flat, y.movedim(1, -1).reshape(-1, 2)).view(1, 5, 12).sum(-1)
    torch.testing.assert_close(found, want)


@pytest.mark.parametrize("beside", [False, True])
def test_labels_with_their_axes_in_another_order_are_refused(beside: bool) -> None:
    lik: hs.Likelihood = hs.PerPosition(hs.Categorical(3), axis=1)
    model = hs.bayesianize(nn.Conv2d(2, 3, 3, padding=1))
    x, y = torch.randn(ROWS, 2, 4, 6), torch.randint(3, (ROWS, 4, 6))
    turned: Any = y.transpose(1, 2)
    if beside:
        lik = hs.PerPosition(hs.Weighted(hs.Categorical(3)), axis=1)
        turned = {"labels": turned, "sample_weight": torch.ones(ROWS, 6, 4)}
    sentence = r"\(4, 6\) in the net's output and \(6, 4\) in labels of shape"
    for call in (
        lambda: hs.initialize_(model, "iblm", lik, (x, turned)),
        lambda: hs.nelbo(model, lik, x, turned, num_data=ROWS),
        lambda: hs.evaluate(model, lik, (x, turned), 4),
        lambda: hs.predict(model, lik, x, 4).log_prob(turned),
    ):
        with pytest.raises(hs.HeadstartError, match=sentence):
            call()
    # In one row, or with an axis for the single number of a position, nothing is in doubt.
    plain = hs.PerPosition(hs.Categorical(3), axis=1)
    flat = hs.nelbo(model, plain, x, y.flatten(1), num_data=ROWS)
    assert flat.value.isfinite()
    single, one = hs.PerPosition(hs.Gaussian(), axis=1), hs.bayesianize(nn.Conv2d(2, 1, 1))
    assert hs.nelbo(one, single, x, y.flatten(1).float().unsqueeze(1), num_data=9).value.isfinite()
