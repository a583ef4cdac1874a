"""The Gaussian likelihood: its density in the user's units, and its predictive mixture."""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd
import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal

import headstart as hs
from headstart.predictive import Predictive

pytestmark = pytest.mark.usefixtures("float64")


def test_gaussian_density_in_the_user_s_units() -> None:
    lik = hs.Gaussian([0.3, 2.0], loc=[1.0, -2.0], scale=[2.0, 0.5])
    f, y = torch.randn(4, 6, 2), torch.randn(6, 2)
    oracle = (
        Normal(
            torch.tensor([1.0, -2.0]) + torch.tensor([2.0, 0.5]) * f,
            torch.tensor([0.3, 2.0]).sqrt(),
        )
        .log_prob(y)
        .sum(-1)
    )
    torch.testing.assert_close(lik.log_prob(f, y), oracle)


def test_standardize_takes_scale_from_the_labels_and_the_noise_along() -> None:
    y = 5 + 3 * torch.randn(200)
    lik = hs.Gaussian(0.1).standardize_(y)
    torch.testing.assert_close(lik.noise_var, 0.1 * y.var(correction=0).reshape(1))
    t, v = lik.regression_targets(y.unsqueeze(1))
    assert float(t.mean()) == pytest.approx(0, abs=1e-12)
    assert float(t.std(correction=0)) == pytest.approx(1)
    torch.testing.assert_close(v, torch.full_like(v, 0.1))


@pytest.mark.parametrize("make", [lambda: hs.Gaussian(0.1), lambda: hs.Power(0.5)])
def test_standardize_takes_frames_and_series_as_it_takes_tensors(
    make: Callable[[], hs.Gaussian | hs.Power],
) -> None:
    y = 5 + torch.rand(50, 1, dtype=torch.float64)
    # Rows of a split keep their labels, which do not begin at 0.
    frame = pd.DataFrame({"y": y[:, 0].numpy()}, index=range(7, 57))
    wanted = make().standardize_(y).state_dict()
    for given in (frame, frame["y"], y.numpy(), y[:, 0].tolist()):
        found = make().standardize_(given).state_dict()
        assert all(torch.equal(found[key], value) for key, value in wanted.items())


def test_gaussian_predictive_is_the_mixture() -> None:
    f = torch.randn(50, 6, 2)
    lik = hs.Gaussian([0.3, 0.5], loc=1.0, scale=2.0).requires_grad_(False)
    pred = Predictive(f, lik)
    parts = Normal(
        (1 + 2 * f).permute(1, 2, 0),
        torch.tensor([0.3, 0.5]).sqrt().reshape(1, 2, 1).expand(6, 2, 50),
    )
    mixture = MixtureSameFamily(Categorical(torch.ones(6, 2, 50)), parts)
    torch.testing.assert_close(pred.mean, mixture.mean)
    torch.testing.assert_close(pred.std, mixture.stddev)
    torch.testing.assert_close(
        pred.std.square(), pred.epistemic_std.square() + pred.aleatoric_std.square()
    )
    low, high = pred.interval(0.9)
    torch.testing.assert_close(mixture.cdf(low), torch.full((6, 2), 0.05), atol=1e-9, rtol=0)
    torch.testing.assert_close(mixture.cdf(high), torch.full((6, 2), 0.95), atol=1e-9, rtol=0)
    y = torch.randn(6, 2)
    joint = Normal(1 + 2 * f, torch.tensor([0.3, 0.5]).sqrt()).log_prob(y).sum(-1)
    torch.testing.assert_close(pred.log_prob(y), joint.logsumexp(0) - math.log(50))


def test_wrong_questions_and_variances_get_a_sentence() -> None:
    pred = Predictive(torch.zeros(2, 3, 1), hs.Gaussian())
    with pytest.raises(hs.HeadstartError, match="no classes"):
        _ = pred.entropy
    with pytest.raises(hs.HeadstartError, match="between 0 and 1"):
        pred.interval(95)
    with pytest.raises(hs.HeadstartError, match="positive"):
        hs.Gaussian(0.0)
