"""I-BLM's settings, each pinned by its effect, exactly where it can be; and its nets."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset

import headstart as hs
from headstart.batching import Batches
from headstart.initializers import iblm
from headstart.initializers.iblm import IBLM
from headstart.initializers.regression import (
    take_patches,
)
from headstart.initializers.settings import IBLMSettings
from headstart.initializers.walk import layer_inputs
from headstart.network.samplers import local_moments
from tests.initializers.samples import regression

pytestmark = pytest.mark.usefixtures("float64")
PLAIN: dict[str, Any] = {
    "rescale": False,
    "input_share": 0.0,
    "targets": "label",
    "standardize": False,
    "center": False,
}


def hidden_layer(
    settings: dict[str, Any], data: tuple[Tensor, Tensor], lik: hs.Likelihood | None = None
) -> Any:
    torch.manual_seed(0)
    model = hs.bayesianize(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)), prior=0.7)
    hs.initialize_(model, "iblm", lik or hs.Gaussian(0.2), data, rows=len(data[0]), **settings)
    return model[0].posterior


@pytest.mark.parametrize(
    ("settings", "noise"),
    [
        ({"evidence_rows": None}, 0.2),
        # A unit has five weights.
        ({"evidence_rows": 10}, 0.2 * 80 / (10 * 20**0.5)),
        ({"evidence_rows": 1000}, 0.2),
        ({"evidence_rows": None, "noise_var": 0.5}, 0.5),
    ],
)
def test_a_hidden_layer_is_the_blm_of_its_settings(settings: dict[str, Any], noise: float) -> None:
    """P = I/σp² + X̃ᵀX̃/v, m = P⁻¹X̃ᵀy/v, with v as the settings say."""
    x, y = regression()
    q = hidden_layer({**PLAIN, **settings}, (x, y))
    ones = torch.cat([x, torch.ones(80, 1)], 1)
    precision = torch.eye(5) / 0.7 + ones.T @ ones / noise
    mean = torch.linalg.solve(precision, ones.T @ y / noise).T
    torch.testing.assert_close(q.mean, mean.expand(6, 5), atol=1e-9, rtol=0)
    torch.testing.assert_close(
        q.variance(), (1 / precision.diagonal()).expand(6, 5), atol=1e-12, rtol=0
    )


def test_variance_scale_multiplies_the_variance_alone() -> None:
    data = regression()
    plain, scaled = hidden_layer(PLAIN, data), hidden_layer({**PLAIN, "variance_scale": 0.1}, data)
    torch.testing.assert_close(scaled.variance(), 0.1 * plain.variance())
    torch.testing.assert_close(scaled.mean, plain.mean)


def test_kl_pq_is_wider() -> None:
    data = regression()
    narrow, wide = hidden_layer(PLAIN, data), hidden_layer({**PLAIN, "match": "kl_pq"}, data)
    assert bool((wide.variance() > narrow.variance()).all())


def test_rows_follow_the_weights_of_a_unit() -> None:
    x, y = torch.randn(5000, 600), torch.randint(2, (5000,))
    model = hs.bayesianize(nn.Sequential(nn.Linear(600, 3), nn.ReLU(), nn.Linear(3, 2)))
    batches = Batches((x, y), batch_size=1024, like=model)
    first, last = model[0], model[2]
    for settings, layer, rows in (
        (IBLMSettings(), last, 4096),
        (IBLMSettings(), first, 8 * 601),
        (IBLMSettings(rows=300), first, 300),
        (IBLMSettings(rows=9000), first, 5000),
    ):
        task = IBLM(model, hs.Categorical(2), batches, settings, 2, "local", 1)
        assert task.extent(layer, layer is first) == (rows, 1, min(rows, 4096))


def test_patches_are_taken_from_many_images() -> None:
    x, y = torch.randn(5000, 3, 12, 12), torch.randint(2, (5000,))
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 10), nn.Flatten())
    model = hs.bayesianize(net)
    batches = Batches((x, y), batch_size=1024, like=model)
    first, last = model[0], model[2]
    for settings, layer, extent in (
        # There are 8192 patches.
        (IBLMSettings(), first, (1024, 8)),
        (IBLMSettings(patches=30_000), first, (1024, 30)),
        (IBLMSettings(patches=1_000_000), first, (5000, 100)),
        (IBLMSettings(rows=64), first, (64, 100)),
        (IBLMSettings(rows=1000), first, (1000, 9)),
        (IBLMSettings(patches=None), first, (4096, 100)),
        (IBLMSettings(), last, (4096, 1)),
    ):
        task = IBLM(model, hs.Categorical(2), batches, settings, 2, "weights", 1)
        assert task.extent(layer, layer is first)[:2] == extent
        assert task.extent(layer, layer is first).measured == (
            4096 if layer is last else min(512, extent[0])
        )
    few = Batches((x[:20], y[:20]), batch_size=1024, like=model)
    assert IBLM(model, hs.Categorical(2), few, IBLMSettings(), 2, "weights", 1).extent(
        first, True
    ) == (
        20,
        100,
        20,
    )
    images = torch.arange(20.0)[:, None, None, None] * 1000 + torch.arange(144.0).reshape(12, 12)
    rows = take_patches(first, [images.expand(20, 3, 12, 12)], 8)
    # The upper left pixel of each patch.
    corner = rows[0, :, :, 0] - 1000 * torch.arange(20.0).double()[:, None]
    # The place of a patch among 10 x 10.
    place = corner // 12 * 10 + corner % 12
    assert rows.shape == (1, 20, 8, 28)
    assert len(place[:, 0].unique()) > 5
    steps = (place.sort(1).values.diff() % 100).flatten()
    assert set(steps.tolist()) <= {12.0, 13.0}


def test_a_learned_noise_starts_at_its_best() -> None:
    """`E_q (y − f)²`: the data's own noise where the net can fit them; a fixed noise stays."""
    x, y = regression(3000)
    for posterior in ("mean_field", "full_covariance"):
        likelihood, given = hs.Gaussian(0.7), hs.Gaussian(0.7, learn_noise=False)
        for lik in (likelihood, given):
            hs.initialize_(
                hs.bayesianize(nn.Linear(4, 1), posterior=posterior), "iblm", lik, (x, y)
            )
        assert float(likelihood.noise_var.detach()) == pytest.approx(0.09, rel=0.1)
        assert float(given.noise_var.detach()) == pytest.approx(0.7)
    left = hs.Gaussian(0.7)
    hs.initialize_(hs.bayesianize(nn.Linear(4, 1)), "iblm", left, (x, y), fit_noise=False)
    assert float(left.noise_var.detach()) == pytest.approx(0.7)


def test_rescaled_units_have_sampled_variance_one() -> None:
    """With next to no evidence the weights' own variance is most of it, and must be counted."""
    x, y = regression(4000)
    q_model = hs.bayesianize(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)))
    hs.initialize_(q_model, "iblm", hs.Gaussian(0.2), (x, y), evidence_rows=1, bias_spread=0.0)
    with torch.no_grad():
        f = hs.draw(q_model[0], x, 20).flatten(0, 1)
    torch.testing.assert_close(f.std(0), torch.ones(6), atol=0.03, rtol=0)
    assert float(f.mean(0).abs().max()) < 0.05


def test_the_read_out_counts_the_rows_it_did_not_read() -> None:
    x, y = regression(2000)
    some, every = (hs.bayesianize(nn.Linear(4, 1)) for _ in range(2))
    hs.initialize_(some, "iblm", hs.Gaussian(0.2), (x, y), last_rows=500)
    hs.initialize_(every, "iblm", hs.Gaussian(0.2), (x, y))
    torch.testing.assert_close(
        some.posterior.variance(), every.posterior.variance(), rtol=0.15, atol=0
    )


class Stream(IterableDataset):
    """Rows without a length."""

    def __init__(self, rows: TensorDataset) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


def loaders(rows: TensorDataset) -> dict[str, tuple[Any, int | None, int]]:
    """Batches, the rows that they are said to stand for, and those that evidence must count."""
    some = SubsetRandomSampler(range(0, 300, 3))
    return {
        "drop_last": (DataLoader(rows, batch_size=256, drop_last=True), None, 300),
        "drop_last, shuffled": (
            DataLoader(rows, batch_size=128, drop_last=True, shuffle=True),
            None,
            300,
        ),
        "sampler": (DataLoader(rows, batch_size=64, sampler=some), None, 100),
        "more than were read": (DataLoader(rows, batch_size=64), 6000, 6000),
        "fewer than were read": (DataLoader(rows, batch_size=64), 30, 30),
        "arrays": (tuple(rows.tensors), 6000, 6000),
        "a list": ([rows[start : start + 50] for start in range(0, 300, 50)], None, 300),
        "a stream": (DataLoader(Stream(rows), batch_size=64), 1000, 1000),
    }


@pytest.mark.parametrize("last_rows", [None, 100])
@pytest.mark.parametrize("hidden", [False, True], ids=["linear", "hidden layer"])
@pytest.mark.parametrize("kind", loaders(TensorDataset(torch.zeros(300, 4), torch.zeros(300, 1))))
def test_evidence_counts_the_rows_that_the_data_stands_for(
    kind: str, hidden: bool, last_rows: int | None
) -> None:
    """The precision of a bias is that of its prior and 1/noise for each row."""
    data, given, expected = loaders(TensorDataset(*regression(300)))[kind]
    layers = [nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)] if hidden else [nn.Linear(4, 1)]
    model = hs.bayesianize(nn.Sequential(*layers), posterior="full_covariance", prior=0.7)
    lik = hs.Gaussian(0.2, learn_noise=False)
    hs.initialize_(model, "iblm", lik, data, num_data=given, last_rows=last_rows)
    factors = model[-1].posterior.factors()
    precision = torch.linalg.inv(torch.einsum("rui,ruj->uij", factors, factors))
    torch.testing.assert_close(
        precision[0, -1, -1], torch.tensor(1 / 0.7 + expected / 0.2), rtol=1e-8, atol=0
    )


def test_positions_of_the_read_out_are_not_observations() -> None:
    """A 1×1 convolution and a mean over equal positions know no more than one position."""
    x, y = torch.randn(50, 3, 1, 1), torch.randint(2, (50,))
    variances = []
    for side in (1, 16):
        model = hs.bayesianize(
            nn.Sequential(nn.Conv2d(3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        )
        hs.initialize_(model, "iblm", hs.Categorical(2), (x.expand(50, 3, side, side), y))
        variances.append(model[0].posterior.variance())
    torch.testing.assert_close(*variances)


def test_a_grouped_read_out_gives_each_unit_its_own_inputs() -> None:
    x = torch.randn(300, 4, 1)
    y = (x[:, 2, 0] + x[:, 3, 0] > 0).long()
    model = hs.bayesianize(nn.Sequential(nn.Conv1d(4, 2, 1, groups=2), nn.Flatten()))
    hs.initialize_(model, "iblm", hs.Categorical(2), (x, y))
    strength = model[0].posterior.mean[:, :2].detach().abs().sum(1)
    assert float(strength[1]) > 5 * float(strength[0])


class Around(nn.Module):
    """The input goes around both layers to the output."""

    def __init__(self, times: float = 1.0) -> None:
        super().__init__()
        self.first, self.second, self.times = nn.Linear(1, 8), nn.Linear(8, 1), times

    def forward(self, x: Tensor) -> Tensor:
        return 3 * x + self.times * self.second(torch.relu(self.first(x)))


def test_the_read_out_fits_what_the_net_leaves_it_to_fit() -> None:
    x = torch.randn(400, 1)
    model = hs.bayesianize(Around())
    lik = hs.Gaussian(0.09)
    hs.initialize_(model, "iblm", lik, (x, 3 * x + 0.3 * torch.randn(400, 1)))
    assert hs.evaluate(model, lik, (x, 3 * x), seed=0)["rmse"] < 0.1


def test_the_read_out_fits_through_a_scale() -> None:
    x = torch.randn(400, 1)
    model, lik = hs.bayesianize(Around(times=10.0)), hs.Gaussian(0.09)
    hs.initialize_(model, "iblm", lik, (x, x.square() + 0.3 * torch.randn(400, 1)))
    assert hs.evaluate(model, lik, (x, x.square()), seed=0)["rmse"] < 0.4


class Ending(nn.Module):
    """A head on sequences (or one position), and what becomes of its output."""

    def __init__(self, end: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.head, self.end = nn.Linear(3, 2), end

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.head(x))


OTHER_ENDS = {
    "relu": lambda f: torch.relu(f.mean(1)),
    "leaky": lambda f: nn.functional.leaky_relu(f.mean(1), 0.9),
    "relu6": lambda f: nn.functional.relu6(f.mean(1)),
    "hardtanh": lambda f: nn.functional.hardtanh(f.mean(1), -20, 20),
    "in place": lambda f: f.mean(1).relu_(),
    "per position": lambda f: torch.relu(f).mean(1),
    "max": lambda f: f.amax(1),
    "softmax": lambda f: f.mean(1).softmax(-1),
    "log softmax": lambda f: f.mean(1).log_softmax(-1),
    "square": lambda f: f.square().mean(1),
    "a small scale, then relu": lambda f: torch.relu(1e-6 * f.mean(1)),
    "nothing of it": lambda f: torch.zeros_like(f.mean(1)) + 0 * f.mean(1),
    "units mixed": lambda f: f.mean(1).cumsum(-1),
    "no gradient": lambda f: f.detach().mean(1),
}


@pytest.mark.parametrize("end", OTHER_ENDS)
def test_a_net_whose_output_is_another_function_of_its_last_layer_is_warned_about(end: str) -> None:
    model = hs.bayesianize(Ending(OTHER_ENDS[end]))
    with pytest.warns(UserWarning, match="last Bayesian layer 'head'"):
        hs.initialize_(
            model, "iblm", hs.Categorical(2), (torch.randn(40, 6, 3), torch.randint(2, (40,)))
        )


@pytest.mark.parametrize(("rows", "features"), [(10, 20_000), (30, 3_000)])
def test_many_features_and_few_rows_are_solved_in_the_dual(rows: int, features: int) -> None:
    x = torch.randn(rows, features)
    y = x[:, :1] * 2
    for net in (
        nn.Linear(features, 1),
        nn.Sequential(nn.Linear(features, 5), nn.ReLU(), nn.Linear(5, 1)),
    ):
        model = hs.bayesianize(net)
        hs.initialize_(model, "iblm", hs.Gaussian(0.01), (x, y))
        assert all(torch.isfinite(p).all() for p in model.parameters())
    linear = hs.bayesianize(nn.Linear(features, 1))
    hs.initialize_(linear, "iblm", hs.Gaussian(0.01), (x, y))
    with hs.drawing(linear, "mean"):
        # There are enough weights to fit every row.
        torch.testing.assert_close(linear(x), y, atol=0.05, rtol=0)


def test_rows_of_a_convolution_stay_within_their_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iblm, "DESIGN_BUDGET", 20_000)
    model = hs.bayesianize(
        nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 2))
    )
    batches = Batches(
        (torch.randn(200, 2, 8, 8), torch.randint(2, (200,))), batch_size=64, like=model
    )
    for patches, extent in ((None, (20_000 // (36 * 18), 36)), (1000, (200, 5))):
        task = IBLM(
            model, hs.Categorical(2), batches, IBLMSettings(patches=patches), 2, "weights", 1
        )
        assert task.extent(model[0], True)[:2] == extent


def test_collinear_unscaled_columns_are_solved_or_refused_in_words() -> None:
    x = torch.randn(300, 3) @ torch.randn(3, 40) * 1e7
    model = hs.bayesianize(nn.Linear(40, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hs.initialize_(model, "iblm", hs.Gaussian(1e-3), (x, x[:, 0] / 1e7))
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_the_noise_of_weights_is_bounded_layer_by_layer() -> None:
    """With five hidden layers at most 6/25 of a pre-activation's variance is weight noise."""
    torch.manual_seed(0)
    x, y = torch.randn(9000, 6), torch.randint(3, (9000,))
    fractions = {}
    for noise_share in (None, 6.0):
        model = hs.bayesianize(hs.models.create("mlp-5x20", (6,), 3))
        hs.initialize_(
            model,
            "iblm",
            hs.Categorical(3),
            (x, y),
            seed=0,
            evidence_rows=10,
            noise_share=noise_share,
        )
        layers, found = hs.bayesian_layers(model), []
        for name in list(layers)[:-1]:
            with torch.no_grad():
                mean, var = local_moments(
                    layers[name].op, layers[name].posterior, layer_inputs(model, layers[name], x)[0]
                )
            found.append(float((var.mean(0) / (var.mean(0) + mean.var(0))).mean()))
        fractions[noise_share] = found
    assert all(share > 0.3 for share in fractions[None])
    assert all(abs(share - 0.24) < 0.03 for share in fractions[6.0])
