"""Features that reach the last layer directly, in plain and in Bayesian nets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import headstart as hs


@pytest.mark.usefixtures("float64")
def test_the_last_features_reach_the_last_layer() -> None:
    net = hs.models.create("mlp-2x5-tanh-skip2", 4, 3).double()
    x = torch.randn(6, 4, dtype=torch.float64)
    hidden, head = nn.Sequential(*list(net)[:-1])(x), net[-1]
    expected = hidden @ head.weight[:, :5].T + x[:, 2:] @ head.weight[:, 5:].T + head.bias
    torch.testing.assert_close(net(x), expected, atol=1e-12, rtol=0)


def test_a_skip_that_the_inputs_do_not_have_is_refused() -> None:
    with pytest.raises(hs.HeadstartError, match="skip5"):
        hs.models.create("mlp-1x5-skip5", 4, 1)


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("sampler", ["local", "weights"])
def test_each_draw_sees_its_own_row(sampler: str, members: int) -> None:
    """The skipped feature alone decides, so every draw of a row must be that row's feature."""
    net = hs.models.create("mlp-1x5-skip1", 2, 1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net[-1].weight[:, -1] = 1.0
    model = hs.bayesianize(net, members=members)
    hs.initialize_(model, "pretrained", net=net, relative_sd=1e-6)
    x = torch.randn(7, 2)
    found = hs.draw(model, x, 8, sampler)
    torch.testing.assert_close(found[..., 0], x[:, 1].expand(8, 7), atol=1e-3, rtol=0)


def test_the_closed_form_start_finds_the_skipped_feature(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(400, 3)
    y = 0.9 * x[:, 2:] + 0.1 * torch.randn(400, 1)
    model, lik = hs.bayesianize(hs.models.create("mlp-1x20-skip1", 3, 1)), hs.Gaussian()
    hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    assert hs.evaluate(model, lik, (x, y), seed=0)["rmse"] < 0.13
    hs.fit(model, lik, (x, y), steps=20, progress=False, seed=0)
    hs.save(tmp_path / "m", model, lik)
    again, lik2 = hs.load(tmp_path / "m")
    before, after = (hs.predict(*m, x[:5], 8, seed=0).mean for m in ((model, lik), (again, lik2)))
    torch.testing.assert_close(before, after, atol=0, rtol=0)
