"""Training a mixture of copies is training one of them, with the same noise, to the last digits."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.inference import SVI
from headstart.network import branching
from headstart.network.layer import bayesian_layers
from headstart.training.averaged import Averaged
from headstart.training.step_sizes import choose_rates, measure_inputs

pytestmark = pytest.mark.usefixtures("float64")
MEMBERS, ROWS = 3, 20


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))


def convolutional() -> nn.Module:
    convolutions = nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Conv2d(4, 3, 2)
    return nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.ZeroPad2d(1), *convolutions, nn.Flatten())


NETS = {"dense": dense, "convolutional": lambda: nn.Sequential(convolutional(), nn.Linear(12, 2))}


@contextmanager
def common_noise(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In this scope every member meets the same numbers, those that a single posterior meets."""
    generator = torch.Generator().manual_seed(0)

    def make(samples: int, rows: int = 1, members: int = 1) -> branching.Noise:
        def noise(shape: tuple[int, ...], like: Tensor) -> Tensor:
            # (S, K, B, ...) for several members, (S·B, ...) for one; here S is 1.
            one = shape if members == 1 else shape[2:]
            numbers = torch.randn(one, generator=generator, dtype=like.dtype)
            return numbers if members == 1 else numbers.expand(shape)

        return noise

    with monkeypatch.context() as patched:
        patched.setattr(branching, "Reused", make)
        yield


@pytest.mark.parametrize("prior", [0.7, "learned"])
@pytest.mark.parametrize("optimizer", ["averaged", "adam"])
@pytest.mark.parametrize("name", NETS)
def test_training_copies_is_training_one(
    name: str, optimizer: str, prior: float | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, noise and prior after twenty steps; all rows are one batch."""
    net, data = NETS[name](), (torch.randn(ROWS, 4) + 1, torch.randn(ROWS, 2))
    found = []
    for members in (1, MEMBERS):
        model = hs.bayesianize(net, prior=prior, members=members)
        likelihood = hs.Gaussian(0.5)
        with common_noise(monkeypatch):
            hs.fit(
                model,
                likelihood,
                data,
                steps=20,
                samples=members,
                batch_size=ROWS,
                optimizer=optimizer,
                prior_every=5,
                progress=False,
                seed=0,
            )
        found.append((model, likelihood))
    (one, alone), (mixture, shared) = found
    before, after = (dict(each.state_dict()) for each in (hs.bayesianize(net, prior=prior), one))
    assert all((after[key] != before[key]).any() for key in before if key.endswith("mean"))
    for index in range(MEMBERS):
        with hs.member(mixture, index):
            torch.testing.assert_close(dict(mixture.state_dict()), after, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(
        dict(shared.state_dict()), dict(alone.state_dict()), atol=1e-9, rtol=0
    )


def test_members_move_around_their_own_mean_inputs_at_one_rate() -> None:
    net, x = dense(), torch.randn(ROWS, 4) + 1
    mixture = hs.bayesianize(net, members=MEMBERS)
    with torch.no_grad():
        for parameter in mixture.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    method = SVI()
    averaged = method.bind(
        mixture, hs.Gaussian(), num_data=ROWS, samples=MEMBERS, lr=None, clip=None
    )
    assert isinstance(averaged, Averaged)
    before = copy.deepcopy(mixture)
    y = torch.randn(ROWS, 2)
    torch.manual_seed(0)
    # The first step measures what it begins with.
    method.update(x, y, 1.0)
    reaches: dict[str, list[float]] = {}
    for index in range(MEMBERS):
        alone = hs.bayesianize(net)
        with hs.member(before, index):
            alone.load_state_dict(copy.deepcopy(before.state_dict()))
        torch.manual_seed(0)
        for name, inputs in measure_inputs(alone, x).items():
            stack = bayesian_layers(mixture)[name].posterior.mean
            assert inputs.mean is not None
            center = averaged.state[stack]["center"].chunk(MEMBERS)[index]
            torch.testing.assert_close(center, inputs.mean, atol=1e-12, rtol=1e-12)
            reaches.setdefault(name, []).append(inputs.reach)
    rates = choose_rates([fmean(each) for each in reaches.values()])
    assert averaged.param_groups[0]["lr"] == pytest.approx(rates.mean, rel=1e-12)
