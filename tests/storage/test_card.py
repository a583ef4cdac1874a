"""The model card that `save` writes beside a model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import headstart as hs


def test_a_card_names_layers_likelihood_and_scores(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    model = hs.bayesianize(net, posterior={"0": "mean_field", "*": "low_rank"})
    rows = (torch.randn(50, 3), torch.randn(50, 1))
    scores = hs.evaluate(model, hs.Gaussian(0.5), rows, seed=0)
    hs.save(tmp_path / "m", model, hs.Gaussian(0.5), card=scores)
    card = (tmp_path / "m.md").read_text()
    assert card.startswith("# Model card: m\n")
    assert "a module of its own" in card
    assert "Likelihood: gaussian" in card
    assert "| `0` | mean_field" in card
    assert "| `2` | low_rank" in card
    _, points, calibration, _ = (part.partition("\n## ")[0] for part in card.split("## ")[2:])
    assert f"| rmse | {scores['rmse']:.4g} |" in points
    assert f"| coverage_95 | {scores['coverage_95']:.4g} |" in calibration
    # The model is what it is without the card.
    hs.save(tmp_path / "plain", model, hs.Gaussian(0.5))
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "m").read_bytes()
    assert not (tmp_path / "plain.md").exists()


@pytest.mark.parametrize("members", [1, 2])
def test_without_scores_the_card_says_that_nothing_was_measured(
    tmp_path: Path, members: int
) -> None:
    model = hs.bayesianize(hs.models.create("mlp-1x20", 4, 1), members=members)
    hs.save(tmp_path / "m", model, hs.Gaussian(), card=True)
    card = (tmp_path / "m.md").read_text()
    assert "Net: `mlp-1x20`" in card
    assert f"Members of the posterior: {members}" in card
    assert card.count("Not measured") == 2


def test_what_was_conditioned_has_a_card_too(tmp_path: Path) -> None:
    x = torch.linspace(-2, 2, 50).unsqueeze(1)
    model, lik = hs.bayesianize(hs.models.create("mlp-1x20", 1, 1)), hs.Gaussian()
    conditioned = hs.condition(model, lik, (x, x.sin()), draws=2)
    hs.save(tmp_path / "m", conditioned, card={"rmse": 0.25})
    assert "| rmse | 0.25 |" in (tmp_path / "m.md").read_text()
