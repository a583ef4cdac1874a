"""Time to quality: when a run has reached its target, and which rows it may see."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def _beside_the_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def curve(*scores: float) -> list[dict[str, float]]:
    return [{"seconds": float(second), "nll": score} for second, score in enumerate(scores)]


def test_a_target_is_reached_where_scores_stay_below_it() -> None:
    from quality import reached

    assert reached(curve(3, 1, 2.5, 1, 0.5), 2.0) == {"seconds": 3.0, "nll": 1}
    assert reached(curve(3, 1, 2.5), 2.0) is None
    assert reached(curve(3, 1, math.nan), 2.0) is None
    assert reached([], 2.0) is None


def test_the_target_is_the_best_score_before_patience_ends() -> None:
    from quality import PATIENCE, target_of

    assert target_of(curve(3, 2, *[2.5] * PATIENCE, 1)) == 2
    assert target_of(curve(3, 2, *[2.5] * (PATIENCE - 1), 1)) == 1


@pytest.mark.parametrize("name", ["eeg", "spam"])
def test_no_row_has_two_uses(name: str) -> None:
    from quality_tasks import TASKS, parts_of

    parts = parts_of(TASKS[name], 203, test_given=False)
    assert sorted(torch.cat(parts).tolist()) == list(range(203))
    assert min(map(len, parts)) >= 20


def test_rows_are_standardized_by_those_for_training() -> None:
    from quality_tasks import TASKS, read

    rows = read(TASKS["diabetes"])
    x, y = rows.train
    for part in (x, y):
        torch.testing.assert_close(part.mean(0), torch.zeros(part.shape[1]), rtol=0, atol=1e-5)
        torch.testing.assert_close(part.std(0), torch.ones(part.shape[1]), rtol=0, atol=1e-5)
    assert rows.outputs == 1


def test_the_score_is_that_of_the_average_probability() -> None:
    from quality_tasks import log_probs, nll

    logits, y = torch.randn(6, 5, 3), torch.tensor([0, 1, 2, 1, 0])
    expected = -logits.softmax(-1).mean(0)[torch.arange(5), y].log().mean()
    assert nll(log_probs(logits, y, torch.zeros(1))) == pytest.approx(float(expected), rel=1e-5)
    f, labels, log_noise = torch.randn(6, 5, 2), torch.randn(5, 2), torch.tensor([0.3, -1.0])
    noise = torch.distributions.Normal(f, (0.5 * log_noise).exp())
    torch.testing.assert_close(log_probs(f, labels, log_noise), noise.log_prob(labels).sum(-1))
