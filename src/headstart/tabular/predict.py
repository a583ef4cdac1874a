"""`headstart predict`: a row of predictions for each row of a table, chunk by chunk."""

from __future__ import annotations

import gzip
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import pandas as pd

from headstart.errors import HeadstartError
from headstart.predictive import Predictive
from headstart.storage.files import atomic_write
from headstart.tabular.calibration import LEVELS, epistemic
from headstart.tabular.decisions import abstains, check_cost
from headstart.tabular.familiarity import Strangeness
from headstart.tabular.frames import STDIN, read_chunks
from headstart.tabular.places import refuse_file
from headstart.tabular.run import TableRun


@dataclass
class PredictionCounts:
    """What was predicted.

    Args:
        rows: How many rows.
        unlike: How many of them are unlike the training data.
        unlike_in: By column, how many rows are unlike the training data in it.
        abstained: For how many of them abstaining is better.
        unseen: By column, how many values are of a kind that training has not seen.
    """

    rows: int = 0
    unlike: int = 0
    unlike_in: Counter[str] = field(default_factory=Counter)
    abstained: int = 0
    unseen: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class PredictionOptions:
    """What predictions come with.

    Args:
        levels: The levels of the intervals of a quantity; None: 50 and 95 %.
        abstain: The cost of abstaining: rows where an answer is expected to cost more are marked.
        with_inputs: Whether the table's own columns stand before the predictions.
    """

    levels: tuple[float, ...] | None = None
    abstain: float | None = None
    with_inputs: bool = False

    @property
    def of_intervals(self) -> tuple[float, ...]:
        """The levels of the intervals that a quantity gets."""
        return LEVELS if self.levels is None else self.levels

    def check(self, run: TableRun) -> None:
        """Refuse what the run cannot give, before anything is written."""
        if self.abstain is not None:
            check_cost(self.abstain, run.schema.target)
        if run.schema.target.classes:
            if self.levels is not None:
                raise HeadstartError(
                    f"--levels are those of intervals of numbers, and {run.schema.target.name!r} "
                    "holds classes, which have none: leave it out."
                )
            return
        known = run.calibration.factors
        for level in self.of_intervals:
            if not 0 < level < 1:
                raise HeadstartError(
                    "The level of an interval lies between 0 and 100 %, "
                    f"not at {100 * level:.10g} %."
                )
            if known and level not in known:
                given = " and ".join(f"{each:.0%}" for each in sorted(known))
                raise HeadstartError(
                    f"The intervals of this run were recalibrated, at {given}: at "
                    f"{100 * level:.10g}% there is none; the run as it was before has other levels."
                )


PLAIN = PredictionOptions()


def prediction_frame(
    run: TableRun, frame: pd.DataFrame, options: PredictionOptions = PLAIN
) -> pd.DataFrame:
    """The prediction of each row, its uncertainty in parts, and whether the row is unlike.

    A quantity gets its mean, its standard deviation split into noise (aleatoric) and ignorance
    (epistemic), and intervals; a class gets probabilities, their entropy and the mutual
    information. Of a row that is unlike the training data, the last column says in what.
    """
    options.check(run)
    return _frame_of(run, frame, run.compare(frame), options)


def _frame_of(
    run: TableRun, frame: pd.DataFrame, strange: Strangeness | None, options: PredictionOptions
) -> pd.DataFrame:
    pred, target = run.predict(frame), run.schema.target
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
        for level, (low, high) in run.intervals(frame, pred, options.of_intervals).items():
            columns |= {
                f"lower_{level * 100:.10g}": low.tolist(),
                f"upper_{level * 100:.10g}": high.tolist(),
            }
    if options.abstain is not None:
        columns["abstain"] = _abstentions(run, pred, strange, options.abstain)
    return pd.DataFrame({**columns, **_flag_columns(run, pred, strange)})


def _abstentions(
    run: TableRun, pred: Predictive, strange: Strangeness | None, cost: float
) -> list[bool]:
    """Rows whose answer is expected to cost more, and rows unlike the training data.

    What is expected of the latter cannot be trusted.
    """
    found = abstains(pred, run.schema.target, cost).numpy()
    return (found if strange is None else found | strange.flags).tolist()


def _flag_columns(
    run: TableRun, pred: Predictive, strange: Strangeness | None
) -> dict[str, list[Any]]:
    """Which rows are unlike the training data, and in what."""
    if strange is None:
        # As version 0.1 told them: by an epistemic part larger than for 99 % of validation rows.
        doubt = epistemic(pred, run.schema.target)
        return {"unlike_training": (doubt > run.calibration.threshold).tolist()}
    return {"unlike_training": strange.flags.tolist(), "unlike_because": strange.reasons}


def predict_table(
    run: TableRun, source: str | Path, out: str | Path, options: PredictionOptions = PLAIN
) -> PredictionCounts:
    """Write a csv file of predictions, in memory that does not grow with the table.

    Args:
        run: What predicts.
        source: The table; `-` is standard input.
        out: The file to write; `-` is standard output.
        options: What the predictions come with.
    """
    options.check(run)
    counts = PredictionCounts()
    if str(out) != STDIN:
        refuse_file(Path(out))
    refuse_source(out, source, "the predictions")
    with open_sink(out) as sink:
        for chunk in read_chunks(source):
            strange = run.compare(chunk)
            found = _frame_of(run, chunk, strange, options)
            counts.unlike_in.update(strange.by_column if strange else {})
            counts.unseen.update(run.schema.unseen(chunk))
            counts.unlike += int(found["unlike_training"].sum())
            counts.abstained += int(found["abstain"].sum()) if options.abstain else 0
            if options.with_inputs:
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


def refuse_source(out: str | Path, source: str | Path, what: str) -> None:
    """Refuse to write over the table that is read.

    Args:
        out: The file to write.
        source: The table.
        what: What is written, in words.
    """
    in_files = str(out) != STDIN and str(source) != STDIN
    if in_files and Path(out).exists() and Path(source).exists() and Path(out).samefile(source):
        raise HeadstartError(f"{out} is the table itself: write {what} to another file.")


@contextmanager
def open_sink(out: str | Path) -> Iterator[IO[str]]:
    """Where the lines go: standard output, or a file that is there only when it is whole.

    Args:
        out: The file; `-` is standard output, and one that ends in .gz is compressed.
    """
    if str(out) == STDIN:
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(out)
    with atomic_write(path) as temporary:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(temporary, "wt", newline="", encoding="utf-8") as sink:
            yield cast(IO[str], sink)
