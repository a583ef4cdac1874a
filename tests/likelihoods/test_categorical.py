"""The categorical likelihood: density, the paper's targets, and the epistemic part."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Categorical

import headstart as hs
from headstart.predictive import Predictive

pytestmark = pytest.mark.usefixtures("float64")


def test_categorical_density() -> None:
    f, y = torch.randn(4, 6, 3), torch.randint(3, (6,))
    torch.testing.assert_close(hs.Categorical(3).log_prob(f, y), Categorical(logits=f).log_prob(y))


def test_class_targets_are_the_paper_s() -> None:
    t, v = hs.Categorical(3).regression_targets(torch.tensor([1]), center=False)
    assert t[0].tolist() == pytest.approx([-6.9127, -0.3341, -6.9127], abs=1e-4)
    assert v[0].tolist() == pytest.approx([4.6151, 0.6882, 4.6151], abs=1e-4)
    centered, same = hs.Categorical(3).regression_targets(torch.tensor([1]))
    torch.testing.assert_close(centered.softmax(1), t.softmax(1))
    torch.testing.assert_close(same, v)
    assert float(centered.sum()) == pytest.approx(0, abs=1e-12)


def test_categorical_predictive_and_its_epistemic_part() -> None:
    f = torch.randn(50, 6, 3)
    pred = Predictive(f, hs.Categorical(3))
    torch.testing.assert_close(pred.probs.sum(1), torch.ones(6))
    torch.testing.assert_close(pred.mean, pred.probs)
    entropies = Categorical(logits=f).entropy().mean(0)
    torch.testing.assert_close(pred.mutual_information, pred.entropy - entropies)
    same = Predictive(f[:1].expand(50, -1, -1), hs.Categorical(3))
    torch.testing.assert_close(same.mutual_information, torch.zeros(6))
    torch.testing.assert_close(same.epistemic_std, torch.zeros(6, 3), atol=1e-8, rtol=0)


def test_classes_have_no_order_and_are_two_at_least() -> None:
    with pytest.raises(hs.HeadstartError, match="no order"):
        Predictive(torch.zeros(2, 3, 3), hs.Categorical(3)).interval()
    with pytest.raises(hs.HeadstartError, match="two classes"):
        hs.Categorical(1)
