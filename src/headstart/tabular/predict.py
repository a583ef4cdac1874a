"""`headstart predict`: a row of predictions for each row of a table, piece by piece."""

from __future__ import annotations

import gzip
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

import pandas as pd

from headstart.errors import HeadstartError
from headstart.storage.files import atomic_write
from headstart.tabular.fit import epistemic, interval
from headstart.tabular.frames import STDIN, read_chunks
from headstart.tabular.run import LEVELS, TableRun


@dataclass
class Told:
    """What was predicted: how many rows, how many unlike the training data, and columns with values never seen."""

    rows: int = 0
    unlike: int = 0
    strange: Counter[str] = field(default_factory=Counter)


def predictions(run: TableRun, frame: pd.DataFrame) -> pd.DataFrame:
    """The prediction of each row, its uncertainty in parts, and whether the row is unlike the training data.

    A quantity gets its mean, its standard deviation split into noise (aleatoric) and ignorance (epistemic), and intervals; a
    class gets probabilities, their entropy and the mutual information. A row is unlike the training data where its epistemic
    part is larger than for 99 % of the rows that training was checked on.
    """
    pred, target = run.predict(frame), run.schema.target
    doubt = epistemic(pred, run.schema)
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
        for level in LEVELS:
            low, high = interval(run, pred, level)
            columns |= {
                f"lower_{level * 100:.0f}": low.tolist(),
                f"upper_{level * 100:.0f}": high.tolist(),
            }
    return pd.DataFrame({**columns, "unlike_training": (doubt > run.familiar).tolist()})


def predict_table(
    run: TableRun, source: str | Path, out: str | Path, *, with_inputs: bool = False
) -> Told:
    """Write a csv file of predictions (`-`: standard output), in memory that does not grow with the table."""
    told = Told()
    if (
        str(out) != STDIN
        and Path(out).exists()
        and str(source) != STDIN
        and Path(out).samefile(source)
    ):
        raise HeadstartError(f"{out} is the table itself: write the predictions to another file.")
    with _sink(out) as sink:
        for chunk in read_chunks(source):
            found = predictions(run, chunk)
            told.strange.update(run.schema.strange(chunk))
            told.unlike += int(found["unlike_training"].sum())
            if with_inputs:
                clash = sorted(set(chunk.columns) & set(found.columns))
                if clash:
                    raise HeadstartError(
                        f"The table has a column {clash[0]!r} of its own: rename it, or leave out --with-inputs."
                    )
                found = pd.concat([chunk, found], axis=1)
            found.to_csv(sink, index=False, header=told.rows == 0, float_format="%.10g")
            told.rows += len(chunk)
    return told


@contextmanager
def _sink(out: str | Path) -> Iterator[IO[str]]:
    """Where the lines go: standard output, or a neighbour of the file that takes its place when all is written."""
    if str(out) == STDIN:
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(out)
    with atomic_write(path) as temporary:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(temporary, "wt", newline="", encoding="utf-8") as sink:
            yield cast(IO[str], sink)
