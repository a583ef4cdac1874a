"""Whether to rely on a model without test rows: tests on rows that were held out in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headstart.tabular.baselines import baseline_losses
from headstart.tabular.checks import (
    Check,
    check_baselines,
    check_count,
    check_coverage,
    check_probabilities,
    check_skill,
)
from headstart.tabular.columns import Matrix
from headstart.tabular.evaluation import Scored
from headstart.tabular.insight import row_losses, trivial_name
from headstart.tabular.run import TableRun

IN_TURN = "rows held out in turn"


def in_turn(
    run: TableRun, parts: Sequence[Scored], learned: pd.DataFrame, y: Tensor
) -> dict[str, Any]:
    """What a report shows of a model without test rows.

    Args:
        run: What predicts.
        parts: The rows of each part, with their predictions.
        learned: All rows, each with an index of its own.
        y: Their labels.
    """
    return {"checks": [vars(check) for check in checks_in_turn(run, parts, learned, y)]}


def checks_in_turn(
    run: TableRun, parts: Sequence[Scored], learned: pd.DataFrame, y: Tensor
) -> list[Check]:
    """The tests behind a verdict, each row by a net and by baselines that have not seen it."""
    classes = bool(run.schema.target.classes)
    ours = np.concatenate([row_losses(part.pred, part.y, classes) for part in parts])
    others = _losses_of_others(run, parts, learned, y)
    trivial = trivial_name(others)
    simple = {name: loss for name, loss in others.items() if name != trivial}
    found = [
        check_count(len(ours), IN_TURN),
        check_skill(ours, others[trivial], trivial),
        check_baselines(ours, simple),
    ]
    if classes:
        best = [part.pred.probs.max(1) for part in parts]
        right = [(top.indices == part.y).double() for top, part in zip(best, parts, strict=True)]
        sure = torch.cat([top.values for top in best]).double()
        return [*found, check_probabilities(sure.numpy(), torch.cat(right).numpy())]
    inside = torch.cat([_in_own_interval(run, part) for part in parts]).double()
    return [*found, check_coverage(inside.numpy(), rows=IN_TURN)]


def _losses_of_others(
    run: TableRun, parts: Sequence[Scored], learned: pd.DataFrame, y: Tensor
) -> dict[str, Matrix]:
    """The losses of baselines that learned from the rows beside each part."""
    each = []
    for part in parts:
        beside = ~learned.index.isin(part.frame.index)
        rest = torch.from_numpy(beside)
        each.append(baseline_losses(run.schema, learned[beside], part.frame, y[rest], part.y))
    names = [name for name in each[0] if all(name in losses for losses in each)]
    return {name: np.concatenate([losses[name] for losses in each]) for name in names}


def _in_own_interval(run: TableRun, part: Scored) -> Tensor:
    """Whether labels lie in the predictive interval, before it is made conformal.

    The size of its noise is that of the other folds; where a single part was held out, its own
    rows have set that one number.
    """
    low, high = run.calibration.interval(part.pred, 0.95)
    return (part.y >= low) & (part.y <= high)
