"""The model for BoTorch's acquisition functions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import headstart as hs

pytest.importorskip("botorch")
# Deprecations of its own, and its advice to scale inputs.
pytestmark = pytest.mark.filterwarnings("ignore")


def conditioned(x: Tensor, y: Tensor) -> hs.Conditioned:
    model = hs.bayesianize(hs.models.create("mlp-1x50", x.shape[1], 1))
    lik = hs.Gaussian(noise_var=1e-3, learn_noise=False)
    hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    return hs.condition(model, lik, (x, y), draws=8, widen=False)


def rows() -> tuple[Tensor, Tensor]:
    x = torch.rand(15, 2)
    return x, 3 + 10 * (x - 0.4).square().sum(1, keepdim=True)


def test_the_posterior_is_that_of_the_frozen_draws_in_the_units_of_the_labels() -> None:
    x, y = rows()
    model, lik = hs.bayesianize(hs.models.create("mlp-1x20", 2, 1)), hs.Gaussian()
    hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    found = hs.integrations.BotorchModel(model, lik, samples=16, seed=3)
    at = torch.rand(4, 3, 2, dtype=torch.float64)
    posterior = found.posterior(at)
    drawn = hs.freeze(model, samples=16, seed=3)(at.reshape(-1, 2).float())
    wanted = lik.mean(drawn).reshape(16, 4, 3, 1).movedim(0, -3)
    torch.testing.assert_close(posterior.values, wanted.double())
    assert posterior.mean.shape == (4, 3, 1)
    assert posterior.mean.dtype == torch.float64
    # The labels are around 4, the outputs of the net around 0.
    assert float(posterior.mean.mean()) == pytest.approx(float(y.mean()), abs=2)
    # The functions are drawn once.
    torch.testing.assert_close(found.posterior(at).values, posterior.values)


def test_every_conditioned_net_gives_functions() -> None:
    x, y = rows()
    mixture = conditioned(x, y)
    found = hs.integrations.BotorchModel(mixture.nets, mixture.likelihood, samples=20, seed=0)
    # Three of each of eight nets.
    assert found.posterior(x[:2]).values.shape == (24, 2, 1)
    mean = found.posterior(x).mean.squeeze(-1)
    assert float((mean - y[:, 0]).square().mean().sqrt()) < 0.5 * float(y.std())


def test_acquisition_functions_climb_and_find_the_maximum() -> None:
    from botorch.acquisition import qLogExpectedImprovement
    from botorch.optim import optimize_acqf

    torch.manual_seed(0)
    x, y = rows()
    y = -y
    mixture = conditioned(x, y)
    model = hs.integrations.BotorchModel(mixture.nets, mixture.likelihood, seed=0)
    acquisition = qLogExpectedImprovement(model, best_f=float(y.max()))
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    place, value = optimize_acqf(
        acquisition, bounds, q=1, num_restarts=2, raw_samples=32, options={"maxiter": 20}
    )
    assert float(value) >= float(acquisition(torch.rand(32, 1, 2)).max()) - 1
    assert float((place - 0.4).norm()) < 0.35


def test_what_cannot_be_is_refused() -> None:
    model, lik = hs.bayesianize(hs.models.create("mlp-1x20", 2, 2)), hs.Gaussian()
    wrong = hs.integrations.BotorchModel(model, lik, samples=2)
    with pytest.raises(hs.HeadstartError, match="give it outputs=2"):
        wrong.posterior(torch.rand(3, 2))
    assert hs.integrations.BotorchModel(model, lik, 2, outputs=2).posterior(
        torch.rand(3, 2)
    ).mean.shape == (3, 2)
    with pytest.raises(hs.HeadstartError, match="it was given none"):
        hs.integrations.BotorchModel([], lik)
    with pytest.raises(hs.HeadstartError, match="At least one function"):
        hs.integrations.BotorchModel(model, lik, samples=0)
