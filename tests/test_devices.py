"""Devices that this machine does not have: no float64 where there is none, and few waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.errors import HeadstartError
from headstart.inference import SVI
from headstart.kernels.devices import usable_device
from headstart.linalg import precision
from headstart.tabular.fit import fit_table
from headstart.training.recipe import Recipe
from tests.fake_device import DEVICE, FakeDevice, install

ROWS = 60
LIKELIHOODS = {
    "gaussian": hs.Gaussian,
    "heteroscedastic": hs.Heteroscedastic,
    "categorical": lambda: hs.Categorical(3),
    "bernoulli": hs.Bernoulli,
    "poisson": hs.Poisson,
    "student_t": hs.StudentT,
    "negative_binomial": hs.NegativeBinomial,
    "multi_label": hs.MultiLabel,
    "ordinal": lambda: hs.Ordinal(3),
}
OUTPUTS = {"heteroscedastic": 2, "categorical": 3, "multi_label": 3}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    """A device with double precision."""
    install(monkeypatch)
    with FakeDevice() as found:
        yield found


@pytest.fixture
def single(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    """A device without, of a kind that is known to have none."""
    install(monkeypatch)
    monkeypatch.setattr(precision, "WITHOUT_FLOAT64", {DEVICE.type})
    with FakeDevice(float64=False) as found:
        yield found


def labels(name: str, x: Tensor) -> Tensor:
    """Labels of a likelihood that depend on the inputs."""
    score = x.flatten(1).sum(1)
    if name in ("categorical", "ordinal"):
        return torch.bucketize(score, torch.tensor([-1.0, 1.0]))
    if name == "multi_label":
        return (x.flatten(1)[:, :3] > 0).float()
    if name == "bernoulli":
        return (score > 0).float()
    return (score.exp() % 7).floor() if name in ("poisson", "negative_binomial") else score


def make_net(outputs: int, convolves: bool = False) -> nn.Sequential:
    """The same weights each time."""
    torch.manual_seed(1)
    if convolves:
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, outputs))
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, outputs))


def test_the_device_refuses_what_it_does_not_have(single: FakeDevice) -> None:
    x = torch.ones(2).to(DEVICE)
    with pytest.raises(TypeError, match="no float64"):
        x.double()
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(2)
    assert precision.in_double(x).device.type == "cpu"
    assert single.waits.total() == 1


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_a_device_without_float64_gives_what_the_cpu_gives(name: str, single: FakeDevice) -> None:
    x = torch.randn(ROWS, 4)
    y, found = labels(name, x), []
    for where in (torch.device("cpu"), DEVICE):
        model = hs.bayesianize(make_net(OUTPUTS.get(name, 1))).to(where)
        likelihood = LIKELIHOODS[name]()
        hs.initialize_(model, "iblm", likelihood, (x, y), seed=0)
        hs.fit(model, likelihood, (x, y), steps=3, batch_size=20, seed=0)
        scores = hs.evaluate(model, likelihood, (x, y), 8, seed=0)
        found.append([*(p.detach().cpu() for p in model.parameters()), *scores.values()])
        assert {p.device for p in model.parameters()} == {where}
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["weighted rows", "weighted classes", "checkpoint"])
def test_weights_and_checkpoints_on_a_device_without_float64(
    kind: str, single: FakeDevice, tmp_path: Path
) -> None:
    x, name = torch.randn(ROWS, 4), "categorical" if kind == "weighted classes" else "gaussian"
    y: Any = labels(name, x)
    found = []
    for where in (torch.device("cpu"), DEVICE):
        data: Any = (x.to(where), y.to(where))
        likelihood: hs.Likelihood = LIKELIHOODS[name]()
        if kind == "weighted rows":
            likelihood = hs.Weighted(likelihood)
            data = x, {"labels": y, "sample_weight": torch.arange(ROWS).float() + 1}
        if kind == "weighted classes":
            likelihood = hs.Categorical(3, class_weight=[1.0, 2.0, 3.0])
        model = hs.bayesianize(make_net(OUTPUTS.get(name, 1))).to(where)
        hs.initialize_(model, "iblm", likelihood, data, seed=0)
        folder = tmp_path / where.type if kind == "checkpoint" else None
        hs.fit(model, likelihood, data, steps=3, batch_size=20, seed=0, checkpoint=folder, every=2)
        found.append([p.detach().cpu() for p in model.parameters()])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("initializer", "family", "name"),
    [
        ("iblm", "full_covariance", "gaussian"),
        ("iblm", "low_rank", "categorical"),
        ("iblm", "matrix_normal", "gaussian"),
        ("laplace", "mean_field", "gaussian"),
        ("laplace", "full_covariance", "categorical"),
        ("laplace", "matrix_normal", "categorical"),
        ("lsuv", "mean_field", "gaussian"),
    ],
)
def test_closed_forms_of_every_family_on_a_device_without_float64(
    initializer: str, family: str, name: str, single: FakeDevice
) -> None:
    x = torch.randn(ROWS, 4)
    y, found = labels(name, x), []
    for where in (torch.device("cpu"), DEVICE):
        net = make_net(OUTPUTS.get(name, 1))
        model = hs.bayesianize(net, posterior=family, prior="learned").to(where)
        likelihood = LIKELIHOODS[name]()
        hs.initialize_(model, initializer, likelihood, (x, y), seed=0)
        hs.refine_(model, likelihood, (x, y), seed=0)
        found.append([p.detach().cpu() for p in model.parameters()])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "convolves"),
    [*((name, False) for name in LIKELIHOODS), ("gaussian", True), ("categorical", True)],
)
def test_a_step_waits_for_the_device_once(name: str, convolves: bool, device: FakeDevice) -> None:
    x = torch.randn(ROWS, 1, 6, 6) if convolves else torch.randn(ROWS, 4)
    model = hs.bayesianize(make_net(OUTPUTS.get(name, 1), convolves)).to(DEVICE)
    likelihood, waits = LIKELIHOODS[name](), []
    for _ in hs.steps(model, likelihood, (x, labels(name, x)), steps=4, batch_size=20):
        waits.append(device.waits.total())
        device.waits.clear()
    # The first step also measures the inputs of layers.
    assert waits[1:] == [1, 1, 1]


def test_labels_on_the_device_are_checked_there(device: FakeDevice) -> None:
    x, model = torch.randn(ROWS, 4).to(DEVICE), hs.bayesianize(make_net(3)).to(DEVICE)
    y = torch.full((ROWS,), 3).to(DEVICE)
    with pytest.raises(hs.HeadstartError, match="Labels must lie in"):
        hs.nelbo(model, hs.Categorical(3), x, y, num_data=ROWS)


@pytest.mark.parametrize("float64", [True, False])
def test_a_table_is_learned_on_the_device_and_comes_back(
    float64: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    if not float64:
        monkeypatch.setattr(precision, "WITHOUT_FLOAT64", {DEVICE.type})
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc"))
    frame["y"] = frame["a"] + 0.1 * rng.normal(size=60)
    options = {"steps": 10, "effort": "quick", "trees": False, "noise": "constant"}
    here = fit_table(frame, "y", recipe=Recipe(**options), task="regression")
    with FakeDevice(float64=float64) as found:
        there = fit_table(
            frame, "y", recipe=Recipe(**options, device=str(DEVICE)), task="regression"
        )
    assert found.waits.total() > 10
    assert all(part.device.type == "cpu" for part in there.model.state_dict().values())
    mean, other = (run.predict(frame).mean for run in (here, there))
    assert torch.allclose(mean, other, atol=1e-5)


def test_a_device_that_is_not_here_is_refused_by_name() -> None:
    for name in ("nowhere", "cuda:77", "meta", "xla"):
        with pytest.raises(HeadstartError, match=f"There is no device '{name}' here") as refused:
            usable_device(name)
        assert len(str(refused.value)) < 400


def test_a_method_of_ones_own_has_labels_on_the_device(device: FakeDevice) -> None:
    seen = []

    class Own(SVI):
        def update(self, x: Tensor, y: Tensor, kl_weight: float) -> Any:
            seen.append((x.device, y.device))
            return super().update(x, y, kl_weight)

    x, y = torch.randn(ROWS, 4), torch.randint(3, (ROWS,))
    model = hs.bayesianize(make_net(3)).to(DEVICE)
    list(hs.steps(model, hs.Categorical(3), (x, y), steps=2, inference=Own()))
    assert len(seen) == 2
    assert all(each.type == torch.device(DEVICE).type for pair in seen for each in pair)
