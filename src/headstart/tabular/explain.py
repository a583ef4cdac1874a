"""Which columns move a prediction and which its uncertainty: of a table, and of each row.

The effect of a column in a row is the prediction less its mean over values of the column that stand
for the training rows, everything else as it is. The same holds for the epistemic part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.predictive import Predictive
from headstart.tabular.calibration import epistemic
from headstart.tabular.columns import Column, Matrix
from headstart.tabular.profile import ColumnProfile
from headstart.tabular.run import TableRun

STAND_INS = 8
"""Values that stand for those of a column in the training rows."""
MAX_EXPLAINED_ROWS, MAX_EXPLAINED_CELLS = 200, 6000
"""Rows of which a table's importances are the mean, and the rows times columns of them."""
MIN_DRAWS = 50
"""Cells that are drawn for each column at least, several for a row where rows are few."""
MAX_CURVES, CURVE_POINTS, CURVE_ROWS = 6, 11, 40
"""Columns that get a curve, the values along it, and the rows that it is the mean of."""


@dataclass(frozen=True)
class Importance:
    """What a column does in a table, by its values replaced at random.

    Args:
        name: The column.
        prediction: The mean absolute change of the prediction: of a quantity in its units, of
            classes of the probability of the predicted one.
        uncertainty: The mean absolute change of the epistemic part.
        nll: The rise of the mean negative log-likelihood; None where labels are unknown.
    """

    name: str
    prediction: float
    uncertainty: float
    nll: float | None


@dataclass(frozen=True)
class DependenceCurve:
    """Partial dependence: the mean prediction of some rows along the values of one column.

    Args:
        name: The column.
        values: Along it, numbers or levels.
        mean: The mean prediction, of classes the probability of one.
        sd: Its epistemic standard deviation: of the mean, not of a row.
    """

    name: str
    values: list[Any]
    mean: list[float]
    sd: list[float]


@dataclass(frozen=True)
class Effects:
    """What each column does to each row.

    Args:
        names: The columns.
        said: The predictions, (N,): a quantity, or the probability of the predicted class.
        doubt: Their epistemic parts, (N,).
        prediction: The effect of each column on the prediction, (N, columns).
        uncertainty: Its effect on the epistemic part, (N, columns).
    """

    names: list[str]
    said: Matrix
    doubt: Matrix
    prediction: Matrix
    uncertainty: Matrix

    def frame(self) -> pd.DataFrame:
        """A line for each row: what is predicted, and what each column adds to it."""
        moved = {f"effect_{name}": self.prediction[:, at] for at, name in enumerate(self.names)}
        doubt = {f"doubt_{name}": self.uncertainty[:, at] for at, name in enumerate(self.names)}
        return pd.DataFrame({"value": self.said, "epistemic": self.doubt, **moved, **doubt})


def known_profiles(run: TableRun) -> tuple[ColumnProfile, ...]:
    """What training rows hold in each column; refuses a run that does not know."""
    if run.familiarity is None:
        raise HeadstartError(
            "This run is of version 0.1, which kept nothing of its training rows: fit it again."
        )
    return run.familiarity.profiles


def explain_rows(run: TableRun, frame: pd.DataFrame, draws: int = STAND_INS) -> Effects:
    """The effect of every column on each row."""
    profiles = known_profiles(run)
    pred = run.predict(frame)
    classes = pred.probs.argmax(1) if run.schema.target.classes else None
    said, doubt = _said(pred, classes), epistemic(pred, run.schema.target)
    moved, doubted = [], []
    for column, profile in zip(run.schema.columns, profiles, strict=True):
        other = run.predict(_with_each_value(frame, column, profile.draws(draws)))
        choice = None if classes is None else classes.repeat_interleave(draws)
        moved.append(said - _mean_of_draws(_said(other, choice), draws))
        doubted.append(doubt - _mean_of_draws(epistemic(other, run.schema.target), draws))
    names = [column.name for column in run.schema.columns]
    return Effects(
        names,
        said.numpy(),
        doubt.numpy(),
        torch.stack(moved, 1).numpy(),
        torch.stack(doubted, 1).numpy(),
    )


def explain_table(
    run: TableRun, frame: pd.DataFrame, y: Tensor | None = None, *, seed: int = 0
) -> list[Importance]:
    """The importance of every column, the most important first, from rows not learned from.

    Each cell of a column is replaced by one of another training row, drawn at random.

    Args:
        run: What predicts.
        frame: The rows, of which a few hundred are used.
        y: Their labels, as the likelihood takes them.
        seed: Seeds the draws.
    """
    profiles, rng = known_profiles(run), np.random.default_rng(seed)
    count = min(len(frame), MAX_EXPLAINED_ROWS, max(20, MAX_EXPLAINED_CELLS // len(profiles)))
    frame, y = evenly(frame, y, count)
    # Of a few rows a single draw each would tell of that draw.
    again = math.ceil(MIN_DRAWS / count)
    frame = frame.iloc[np.arange(count).repeat(again)]
    y, count = None if y is None else y.repeat_interleave(again), count * again
    pred, target = run.predict(frame), run.schema.target
    classes = pred.probs.argmax(1) if target.classes else None
    said, doubt = _said(pred, classes), epistemic(pred, target)
    changed = [
        _with_cells(frame, column, rng.permutation(profile.draws(count)))
        for column, profile in zip(run.schema.columns, profiles, strict=True)
    ]
    # All columns together: many small predictions take longer than a large one.
    other, times = run.predict(_together(changed)), len(changed)
    choice = None if classes is None else classes.repeat(times)
    moved = (_said(other, choice).reshape(times, -1) - said).abs().mean(1)
    doubted = (epistemic(other, target).reshape(times, -1) - doubt).abs().mean(1)
    rises: list[float | None] = [None] * times
    if y is not None:
        fallen = other.log_prob(y.repeat(times)).reshape(times, -1)
        rises = [*(pred.log_prob(y) - fallen).mean(1).tolist()]
    each = zip(profiles, moved.tolist(), doubted.tolist(), rises, strict=True)
    found = [Importance(profile.name, *numbers) for profile, *numbers in each]
    return sorted(found, key=lambda each: -each.prediction)


def evenly(frame: pd.DataFrame, y: Tensor | None, count: int) -> tuple[pd.DataFrame, Tensor | None]:
    """So many rows from all over a table, whatever its order, and their labels."""
    places = np.linspace(0, len(frame) - 1, min(count, len(frame))).round().astype(int)
    return frame.iloc[places], None if y is None else y[torch.from_numpy(places)]


def dependence(run: TableRun, frame: pd.DataFrame, name: str, label: int = 0) -> DependenceCurve:
    """The mean prediction along the values of a column, and its epistemic sd.

    Args:
        run: What predicts.
        frame: Rows over which the mean is taken, at most 40 of them.
        name: The column.
        label: Of classes, whose probability.
    """
    return dependence_curves(run, frame, [name], label)[0]


def dependence_curves(
    run: TableRun, frame: pd.DataFrame, names: Sequence[str], label: int = 0
) -> list[DependenceCurve]:
    """The curves of several columns, by one prediction of all of their rows."""
    frame, _ = evenly(frame, None, CURVE_ROWS)
    known = {
        column.name: (column, profile)
        for column, profile in zip(run.schema.columns, known_profiles(run), strict=True)
    }
    along = [_values_along(known[name][1]) for name in names]
    changed = [
        _with_each_value(frame, known[name][0], values)
        for name, values in zip(names, along, strict=True)
    ]
    pred = run.predict(_together(changed))
    means = pred.likelihood.mean(pred.draws)[:, :, label]
    parts = means.split([len(rows) for rows in changed], 1)
    curves = []
    for name, values, part in zip(names, along, parts, strict=True):
        column, profile = known[name]
        # Rows stand one after another, each with all values.
        part = part.reshape(len(part), len(frame), len(values)).mean(1)
        shown = values.tolist()
        shown = shown if column.kind == "number" else [profile.show(value) for value in shown]
        curves.append(DependenceCurve(name, shown, part.mean(0).tolist(), part.std(0).tolist()))
    return curves


def _values_along(profile: ColumnProfile) -> Matrix:
    """Values of a column from its lowest to its highest, or its levels."""
    drawn = profile.draws(10 * CURVE_POINTS)
    values = list(dict.fromkeys(value for value in drawn.tolist() if value == value))
    if len(values) > CURVE_POINTS:
        places = np.linspace(0, len(values) - 1, CURVE_POINTS).round().astype(int)
        values = [values[place] for place in places]
    return np.array(values, object if isinstance(values[0], str) else float)


def explanation(run: TableRun, frame: pd.DataFrame, y: Tensor) -> dict[str, Any]:
    """What a report shows: importances, and curves of the columns that matter most."""
    if not len(frame):
        return {}
    importances = explain_table(run, frame, y)
    label = 0
    if run.schema.target.classes:
        # Of two classes the second is the one that is asked for; of more, the commonest.
        counts = torch.bincount(y, minlength=len(run.schema.target.classes))
        label = 1 if len(counts) == 2 else int(counts.argmax())
    names = [each.name for each in importances[:MAX_CURVES]]
    curves = dependence_curves(run, frame, names, label)
    return {
        "importances": [asdict(each) for each in importances],
        "curves": [asdict(curve) for curve in curves],
        "curves_of": run.schema.target.classes[label] if run.schema.target.classes else None,
    }


def _said(pred: Predictive, classes: Tensor | None) -> Tensor:
    if classes is None:
        return pred.mean[:, 0]
    return pred.probs.gather(1, classes.unsqueeze(1))[:, 0]


def _mean_of_draws(values: Tensor, draws: int) -> Tensor:
    return values.reshape(-1, draws).mean(1)


def _together(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Tables of the same columns one after another, each cell as it is."""
    return pd.concat([frame.astype(object) for frame in frames], ignore_index=True)


def _with_each_value(frame: pd.DataFrame, column: Column, values: Matrix) -> pd.DataFrame:
    """Every row once for each of the values of a column."""
    repeated = frame.loc[frame.index.repeat(len(values))].reset_index(drop=True)
    return _with_cells(repeated, column, np.tile(values, len(frame)))


def _with_cells(frame: pd.DataFrame, column: Column, values: Matrix) -> pd.DataFrame:
    return frame.reset_index(drop=True).assign(**{column.name: column.cells(values)})


def most_moving(effects: Effects, row: int, limit: int = 3) -> Sequence[tuple[str, float]]:
    """The columns that move a row's prediction most, and by how much."""
    order = np.argsort(-np.abs(effects.prediction[row]))[:limit]
    return [(effects.names[at], float(effects.prediction[row, at])) for at in order]
