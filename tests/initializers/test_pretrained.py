"""Means from a trained net."""

from __future__ import annotations

import torch

import headstart as hs
from tests.cases import chain


def test_pretrained_takes_the_means() -> None:
    net = chain()
    model = hs.bayesianize(chain())
    hs.initialize_(model, "pretrained", net=net, relative_sd=0.2)
    with hs.drawing(model, "mean"):
        x = torch.randn(5, 4)
        torch.testing.assert_close(model(x), net(x))
    q = model[0].posterior
    torch.testing.assert_close(
        q.variance(), torch.full_like(q.mean, 0.04 * float(q.mean.detach().square().mean()))
    )


def test_pretrained_copies_what_stays_deterministic_too() -> None:
    net, x = chain(), torch.randn(5, 4)
    model = hs.bayesianize(chain(), where="last")
    hs.initialize_(model, "pretrained", net=net)
    with hs.drawing(model, "mean"):
        torch.testing.assert_close(model(x), net(x))
