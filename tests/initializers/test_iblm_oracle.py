"""I-BLM against the plain one, unit by unit; and its read-out, which streams."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import headstart as hs
from headstart.batching import Batches
from headstart.initializers import regression
from headstart.initializers.iblm import iblm_
from headstart.initializers.settings import DEFAULT_SETTINGS, PAPER_SETTINGS, IBLMSettings
from tests.oracle import plain_iblm_


def perceptron(activation: type[nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 7), activation(), nn.Linear(7, 5), activation(), nn.Linear(5, 4)
    )


def convolutions() -> nn.Module:
    """Groups, strides, a layer without bias, and a read-out averaged over positions."""
    return nn.Sequential(
        nn.Unflatten(1, (2, 3, 4)),
        nn.Conv2d(2, 4, (2, 3), padding=1, groups=2),
        nn.Tanh(),
        nn.Conv2d(4, 6, 2, stride=(1, 2), groups=2, bias=False),
        nn.ReLU(),
        nn.Conv2d(6, 4, 1, groups=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


class Residual(nn.Module):
    """The input goes around the first layer, and around both to the output."""

    def __init__(self, times: float = 1.0) -> None:
        super().__init__()
        self.first, self.second, self.times = nn.Linear(4, 4), nn.Linear(4, 4), times

    def forward(self, x: Tensor) -> Tensor:
        return x + self.times * self.second(x + self.first(x).relu())


NETS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "relu": (lambda: perceptron(nn.ReLU), 4),
    "tanh": (lambda: perceptron(nn.Tanh), 4),
    "convolutions": (convolutions, 24),
    "residual": (Residual, 4),
}
LIKELIHOODS: dict[str, tuple[Callable[[], hs.Likelihood], Callable[[int], Tensor]]] = {
    "gaussian": (
        lambda: hs.Gaussian([0.3, 0.2, 0.7, 0.4], loc=0.4, scale=2.0),
        lambda n: torch.randn(n, 4),
    ),
    "categorical": (lambda: hs.Categorical(4), lambda n: torch.randint(4, (n,))),
    "poisson": (hs.Poisson, lambda n: torch.poisson(torch.rand(n, 4) * 4)),
    "heteroscedastic": (lambda: hs.Heteroscedastic(0.3, scale=2.0), lambda n: torch.randn(n, 2)),
}
SMALL = replace(DEFAULT_SETTINGS, rows=90, last_rows=170)
SETTINGS: dict[str, IBLMSettings] = {
    "default": SMALL,
    "paper": replace(PAPER_SETTINGS, rows=20),
    # Noise by class in hidden units too.
    "labels": replace(SMALL, targets="label", variance_scale=0.3, bias_spread=0.4),
    "kl_pq": replace(SMALL, targets="label", match="kl_pq", evidence_rows=20),
    # At most a twentieth of each layer is noise.
    "quiet": replace(SMALL, evidence_rows=20, noise_share=0.2),
    "own-class": replace(SMALL, read_out=False, noise_var=0.4),
    "three-a-batch": replace(SMALL, units_per_batch=3, rows=30, last_rows=40),
    # Fewer rows than features.
    "dual": replace(SMALL, rows=3, last_rows=3, targets="label"),
    "dual-kl_pq": replace(SMALL, rows=3, last_rows=3, match="kl_pq"),
}
EVERYWHERE = ("default", "paper")
"""The settings tried on every net; the others on a perceptron and on convolutions."""
CASES = [
    (net, likelihood, settings)
    for net in NETS
    for likelihood in LIKELIHOODS
    for settings in SETTINGS
    if net in ("relu", "convolutions") or settings in EVERYWHERE
]
SMALL_CHUNKS = replace(SMALL, targets="label", input_share=0.0)


def both(
    net: str, likelihood: str, settings: IBLMSettings, rows: int = 80
) -> Iterator[tuple[str, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]]:
    """Each layer's mean and variance by the fast I-BLM and by the plain one, from one seed."""
    make, features = NETS[net]
    make_likelihood, labels = LIKELIHOODS[likelihood]
    data = torch.randn(rows, features), labels(rows)
    found = []
    for run in (lambda *args: list(iblm_(*args)), plain_iblm_):
        model = hs.bayesianize(make(), prior=0.7)
        torch.manual_seed(1)
        run(model, make_likelihood(), Batches(data, batch_size=17, like=model), settings)
        found.append(hs.bayesian_layers(model))
    for name in found[0]:
        fast, plain = (
            (layer[name].posterior.mean, layer[name].posterior.variance()) for layer in found
        )
        yield name, fast, plain


def assert_same(net: str, likelihood: str, settings: IBLMSettings) -> None:
    """Equal to a millionth of the largest number in the layer."""
    for name, fast, plain in both(net, likelihood, settings):
        for what, ours, theirs in zip(("mean", "variance"), fast, plain, strict=True):
            scale = float(theirs.detach().abs().max())
            torch.testing.assert_close(
                ours,
                theirs,
                rtol=1e-6,
                atol=1e-9 * scale,
                msg=lambda text, w=what, n=name: f"{w} of {n}: {text}",
            )


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("net", "likelihood", "settings"), CASES)
def test_every_unit_is_that_of_the_plain_loop(net: str, likelihood: str, settings: str) -> None:
    assert_same(net, likelihood, SETTINGS[settings])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("net", ["relu", "convolutions"])
def test_chunks_of_units_change_nothing(
    net: str, likelihood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One to four units at once.
    monkeypatch.setattr(regression, "MATRIX_BUDGET", 60)
    assert_same(net, likelihood, SMALL_CHUNKS)


@pytest.mark.usefixtures("float64")
@pytest.mark.filterwarnings("ignore:The net's output is not that of its last")
def test_a_last_layer_that_is_no_read_out_is_a_hidden_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETS, "no-read-out", (lambda: Residual(times=10.0), 4))
    assert_same("no-read-out", "categorical", SMALL)


class Stream(IterableDataset[Any]):
    """Rows that can be read in order only, again and again."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.x, self.y, strict=True)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("rows", [5, 300])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_read_out_does_not_depend_on_the_batches(likelihood: str, rows: int) -> None:
    """Summed over batches of 3, fewer rows than weights, or at once; in the dual with 5 rows."""
    make, labels = LIKELIHOODS[likelihood]
    x, y, body = torch.randn(rows, 4), labels(rows), nn.Sequential(nn.Linear(4, 8), nn.Tanh())
    small = DataLoader(Stream(x, y), batch_size=3)
    found = []
    for batches in (small, [(x, y)]):
        model = hs.bayesianize(
            nn.Sequential(body, nn.Linear(8, 4)), prior=0.7, where=lambda name, _: name == "1"
        )
        hs.initialize_(model, "iblm", make(), batches, num_data=rows)
        found.append(model[1].posterior)
    torch.testing.assert_close(found[0].mean, found[1].mean, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(found[0].variance(), found[1].variance(), rtol=1e-6, atol=0)


MEMORY = """
import resource, torch, headstart as hs
from torch import nn

FEATURES, BATCH = 100, 1000

class Rows:
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        for seed in range(self.count // BATCH):
            x = torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(seed))
            yield x, (x[:, 0] > 0).long()

for count in (20_000, 200_000):
    first, last = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, 2)
    model = hs.bayesianize(nn.Sequential(first, nn.ReLU(), last))
    hs.initialize_(model, "iblm", hs.Categorical(2), Rows(count), num_data=count, last_rows=count)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
def test_the_read_out_needs_no_more_memory_for_more_rows() -> None:
    """Ten times the rows, 145 MB if they were kept; the process peaks where it did before."""
    run = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, timeout=120
    )
    few, many = map(int, run.stdout.split())
    assert many < 1.1 * few
