"""`headstart predict`: a row of predictions for each row of a table, chunk by chunk."""

from __future__ import annotations

import gzip
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

import pandas as pd

from headstart.errors import HeadstartError
from headstart.storage.files import atomic_write
from headstart.tabular.calibration import LEVELS, epistemic
from headstart.tabular.frames import STDIN, read_chunks
from headstart.tabular.run import TableRun


@dataclass
class PredictionCounts:
    """What was predicted.

    Args:
        rows: How many rows.
        unlike: How many of them are unlike the training data.
        unseen: By column, how many values are of a kind that training has not seen.
    """

    rows: int = 0
    unlike: int = 0
    unseen: Counter[str] = field(default_factory=Counter)


def prediction_frame(
    run: TableRun, frame: pd.DataFrame, levels: Sequence[float] = LEVELS
) -> pd.DataFrame:
    """The prediction of each row, its uncertainty in parts, and whether the row is unlike.

    A quantity gets its mean, its standard deviation split into noise (aleatoric) and ignorance
    (epistemic), and intervals; a class gets probabilities, their entropy and the mutual
    information. A row is unlike the training data where its epistemic part is larger than for 99 %
    of the validation rows.
    """
    pred, target = run.predict(frame), run.schema.target
    doubt = epistemic(pred, target)
    if target.classes:
        best = pred.probs.argmax(1)
        columns = {
            "prediction": [target.classes[index] for index in best.tolist()],
            **{
                f"p_{label}": pred.probs[:, index].tolist()
                for index, label in enumerate(target.classes)
            },
            "entropy": pred.entropy.tolist(),
            "mutual_information": pred.mutual_information.tolist(),
        }
    else:
        columns = {
            "prediction": pred.mean[:, 0].tolist(),
            "sd": pred.std[:, 0].tolist(),
            "sd_aleatoric": pred.aleatoric_std[:, 0].tolist(),
            "sd_epistemic": pred.epistemic_std[:, 0].tolist(),
        }
        for level, (low, high) in run.intervals(frame, pred, levels).items():
            name = f"{100 * level:.6g}"
            columns |= {f"lower_{name}": low.tolist(), f"upper_{name}": high.tolist()}
    return pd.DataFrame(
        {**columns, "unlike_training": (doubt > run.calibration.threshold).tolist()}
    )


def predict_table(
    run: TableRun,
    source: str | Path,
    out: str | Path,
    *,
    with_inputs: bool = False,
    levels: Sequence[float] = LEVELS,
) -> PredictionCounts:
    """Write a csv file of predictions, in memory that does not grow with the table.

    Args:
        run: What predicts.
        source: The table; `-` is standard input.
        out: The file to write; `-` is standard output.
        with_inputs: Whether the table's own columns stand before the predictions.
        levels: The levels of the intervals, between 0 and 1.
    """
    if wrong := [level for level in levels if not 0 < level < 1]:
        raise HeadstartError(
            f"The level of an interval lies between 0 and 100 %, not at {100 * wrong[0]:g}."
        )
    counts = PredictionCounts()
    in_files = str(out) != STDIN and str(source) != STDIN
    if in_files and Path(out).exists() and Path(out).samefile(source):
        raise HeadstartError(f"{out} is the table itself: write the predictions to another file.")
    with _open_sink(out) as sink:
        for chunk in read_chunks(source):
            found = prediction_frame(run, chunk, levels)
            counts.unseen.update(run.schema.unseen(chunk))
            counts.unlike += int(found["unlike_training"].sum())
            if with_inputs:
                clash = sorted(set(chunk.columns) & set(found.columns))
                if clash:
                    raise HeadstartError(
                        f"The table has a column {clash[0]!r} of its own: rename it, "
                        "or leave out --with-inputs."
                    )
                found = pd.concat([chunk, found], axis=1)
            found.to_csv(sink, index=False, header=counts.rows == 0, float_format="%.10g")
            counts.rows += len(chunk)
    return counts


@contextmanager
def _open_sink(out: str | Path) -> Iterator[IO[str]]:
    """Where the lines go: standard output, or a file that is there only when it is whole."""
    if str(out) == STDIN:
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(out)
    with atomic_write(path) as temporary:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(temporary, "wt", newline="", encoding="utf-8") as sink:
            yield cast(IO[str], sink)
