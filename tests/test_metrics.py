"""Metrics against hand-computed cases and scikit-learn."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from headstart import metrics

pytestmark = pytest.mark.usefixtures("float64")


def test_ece_by_hand() -> None:
    probs = torch.tensor([[0.95, 0.05], [0.05, 0.95], [0.65, 0.35], [0.55, 0.45], [1.0, 0.0]])
    y = torch.tensor([0, 0, 0, 1, 0])
    # Of ten bins (.9, 1] holds .95 right, .95 wrong and 1.0 right,
    # (.6, .7] holds .65 right, and (.5, .6] holds .55 wrong.
    by_hand = (abs((1 + 0 + 1) - (0.95 + 0.95 + 1.0)) + abs(1 - 0.65) + abs(0 - 0.55)) / 5
    assert float(metrics.ece(probs, y, bins=10)) == pytest.approx(by_hand)


def test_ece_counts_confidence_one_with_its_neighbours() -> None:
    probs = torch.tensor([[1.0, 0.0], [0.95, 0.05]])
    # 0.475, not 0.525.
    assert float(metrics.ece(probs, torch.tensor([1, 0]), bins=10)) == pytest.approx(
        abs(1 - 1.95) / 2
    )


def test_ece_of_bins_edges_belongs_to_the_lower_bin() -> None:
    probs = torch.tensor([[0.5, 0.5], [0.45, 0.55]])
    assert float(metrics.ece(probs, torch.tensor([1, 1]), bins=2)) == pytest.approx(
        (0.5 + 0.45) / 2
    )


def test_brier_error_and_entropy_by_hand() -> None:
    probs = torch.tensor([[0.7, 0.2, 0.1], [0.2, 0.3, 0.5]])
    y = torch.tensor([0, 1])
    assert float(metrics.brier(probs, y)) == pytest.approx(
        (0.09 + 0.04 + 0.01 + 0.04 + 0.49 + 0.25) / 2
    )
    assert float(metrics.error(probs, y)) == 0.5
    assert float(metrics.entropy(probs)[0]) == pytest.approx(
        -sum(p * math.log(p) for p in (0.7, 0.2, 0.1))
    )
    assert float(metrics.entropy(torch.tensor([[1.0, 0.0]]))[0]) == 0.0


def test_auroc_is_scikit_learn_s_with_ties() -> None:
    inside, outside = torch.randint(0, 6, (40,)).double(), torch.randint(2, 9, (30,)).double()
    oracle = roc_auc_score([0] * 40 + [1] * 30, torch.cat([inside, outside]).numpy())
    assert float(metrics.auroc(inside, outside)) == pytest.approx(oracle, abs=1e-12)


def test_aupr_and_fpr95_are_scikit_learn_s_with_ties() -> None:
    inside, outside = torch.randint(0, 6, (40,)).double(), torch.randint(2, 9, (30,)).double()
    truth, scores = [0] * 40 + [1] * 30, torch.cat([inside, outside]).numpy()
    assert float(metrics.aupr(inside, outside)) == pytest.approx(
        average_precision_score(truth, scores), abs=1e-12
    )
    false, found, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert float(metrics.fpr95(inside, outside)) == pytest.approx(
        false[found >= 0.95].min(), abs=1e-12
    )


def test_fpr95_by_hand() -> None:
    # 19 of 20 lie at or above 11.
    outside = torch.arange(20.0) + 10
    assert float(metrics.fpr95(torch.tensor([5.0, 10.5, 11.0, 30.0]), outside)) == 0.5


def test_reliability_by_hand() -> None:
    probs = torch.tensor([[0.95, 0.05], [0.05, 0.95], [0.65, 0.35], [0.55, 0.45], [1.0, 0.0]])
    counts, confidence, accuracy = metrics.reliability(
        probs, torch.tensor([0, 0, 0, 1, 0]), bins=10
    )
    assert counts.tolist() == [0, 0, 0, 0, 0, 1, 1, 0, 0, 3]
    assert confidence[-1].item() == pytest.approx(2.9 / 3)
    assert accuracy.tolist() == pytest.approx([0, 0, 0, 0, 0, 0, 1, 0, 0, 2 / 3])


def test_coverage_and_rmse_by_hand() -> None:
    y = torch.tensor([0.0, 1.0, 2.0, 3.0])
    assert float(metrics.coverage(y - torch.tensor([1, 1, 0, -1]), y + 1, y)) == 0.75
    assert float(metrics.rmse(torch.zeros(4), y)) == pytest.approx(math.sqrt(14 / 4))


def test_the_table_knows_every_metric_a_likelihood_reports() -> None:
    from tests.cases import LIKELIHOODS

    for case in LIKELIHOODS.values():
        scores = case.make().evaluate(torch.randn(4, 5, case.outputs), case.labels(5))
        assert set(scores) <= set(metrics.METRICS)
