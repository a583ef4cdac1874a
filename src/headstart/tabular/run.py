"""A fitted table: model, schema, calibration and scores; a folder on disk, written whole or not."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError, untrusted
from headstart.likelihoods import Likelihood
from headstart.predictive import Predictive, predict
from headstart.storage import model as persistence
from headstart.storage.files import read_json, write_json
from headstart.tabular.calibration import Calibration
from headstart.tabular.conformal import FoldModel, fold_interval
from headstart.tabular.familiarity import (
    MAX_PROFILE_ROWS,
    Familiarity,
    Strangeness,
    features_of,
)
from headstart.tabular.frames import plain_frame
from headstart.tabular.places import refuse_new_folder
from headstart.tabular.schema import Schema
from headstart.training.derived import DERIVED_FILES, Derived
from headstart.training.tree_arrays import Boosting

MODEL_FILE, TABLE_FILE, FOUND_FILE = "model.safetensors", "table.json", "found.json"
PAGE_FILE, FAMILIARITY_FILE = "report.html", "familiarity.json"
RUN_FILES = {MODEL_FILE, TABLE_FILE, FOUND_FILE, PAGE_FILE, FAMILIARITY_FILE, *DERIVED_FILES}
"""All that a run's folder holds."""
FORMER_FOUND = {"initialisation": "initialization", "class_shares": "class_fractions"}
"""Names that version 0.1 wrote into `found.json`, and what they are now."""
FOLD_PREFIX = "fold-"
"""How the names of the files of the folds' nets begin."""
PREDICT_SAMPLES = 128


@dataclass
class TableRun:
    """What a fit of a table leaves: all that predicts, and what the report shows.

    Args:
        model: The trained Bayesian net.
        likelihood: What makes labels of its outputs, in the units of the table.
        schema: What each column is, and how it becomes numbers.
        calibration: How wide intervals are, and which rows are called unlike the training data.
        seed: Of the draws that predict, so that the same row is always predicted alike.
        found: Scores and whatever else the report shows, as JSON has it; no prediction needs it.
        derived: What makes the features that the net takes behind those of the columns.
        folds: The nets of the folds, whose held-out rows make intervals cross-conformal, if any.
        familiarity: What training rows look like; version 0.1 did not keep it.
        temperature: What the logits of classes are divided by, after `headstart recalibrate`.
        samples: Draws of the weights for predictions.
    """

    model: nn.Module
    likelihood: Likelihood
    schema: Schema
    calibration: Calibration
    seed: int
    found: dict[str, Any]
    derived: Derived = field(default_factory=Derived)
    folds: tuple[FoldModel, ...] = ()
    familiarity: Familiarity | None = None
    temperature: float = 1.0
    samples: int = PREDICT_SAMPLES

    @property
    def trees(self) -> Boosting | None:
        """The trees whose features the net takes, if any."""
        return self.derived.trees

    @property
    def conformal(self) -> bool:
        """Whether held-out rows say how wide intervals are."""
        return bool(self.folds or self.calibration.factors)

    @property
    def warnings(self) -> list[str]:
        """What there is to warn of, in the whole table and in what its columns are taken for."""
        return [*self.found.get("warnings", []), *self.schema.warnings]

    def inputs(self, frame: pd.DataFrame) -> Tensor:
        """What the net takes of each row: features of its columns, then derived ones.

        Args:
            frame: A table with at least the columns of the schema.
        """
        return self._extended(frame, self.derived)

    def _extended(self, frame: pd.DataFrame, derived: Derived) -> Tensor:
        frame = plain_frame(frame, "the table")
        return torch.from_numpy(derived.extend(self.schema.encode(frame), self.schema.keys(frame)))

    def predict(self, frame: pd.DataFrame) -> Predictive:
        """The predictive distribution of every row, whatever stands beside it.

        Args:
            frame: A table with at least the columns of the schema.

        Returns:
            Its mean, intervals, class probabilities and parts of the uncertainty, as tensors.
        """
        return self._draw(self.model, self.likelihood, self.inputs(frame))

    def _draw(self, model: nn.Module, likelihood: Likelihood, x: Tensor) -> Predictive:
        found = predict(model, likelihood, x, self.samples, sampler="weights", seed=self.seed)
        # A price of 1e8 ± 1 needs its digits.
        return replace(found, draws=found.draws.double().cpu() / self.temperature)

    def intervals(
        self, frame: pd.DataFrame, pred: Predictive, levels: Iterable[float]
    ) -> dict[float, tuple[Tensor, Tensor]]:
        """Central intervals of a quantity: cross-conformal ones where there are nets of folds.

        Args:
            frame: The rows.
            pred: What `predict` says of them.
            levels: The levels of the intervals, between 0 and 1.

        Returns:
            By level the lower and the upper ends, each (rows,).
        """
        ends = partial(self.calibration.interval, pred)
        if self.folds:
            each = [
                self._draw(fold.model, fold.likelihood, self._extended(frame, fold.derived))
                for fold in self.folds
            ]
            ends = partial(fold_interval, self.folds, each)
        found, lowest = {level: ends(level) for level in levels}, self.likelihood.lowest
        return {level: (low.clamp_min(lowest), high) for level, (low, high) in found.items()}

    def learn_familiarity_(self, learned: pd.DataFrame) -> None:
        """Learn what training rows look like, for `compare`."""
        some = learned.sample(min(len(learned), MAX_PROFILE_ROWS), random_state=self.seed % 2**32)
        self.familiarity = Familiarity.fit(self.schema.columns, some, self._features(some))

    def compare(self, frame: pd.DataFrame) -> Strangeness | None:
        """How unlike the training data rows are, and in which columns; None for a run of 0.1."""
        if self.familiarity is None:
            return None
        frame = plain_frame(frame, "the table")
        return self.familiarity.compare(self.schema.columns, frame, self._features(frame))

    def _features(self, frame: pd.DataFrame) -> dict[str, np.ndarray]:
        return features_of(self.model, self.schema.columns, frame, self.inputs(frame))

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        """Write the folder, whole or not at all.

        Args:
            folder: Where to write; one that holds something else is never touched.
            overwrite: Whether an earlier run may be replaced.
        """
        refuse_folder(folder, overwrite=overwrite)
        # A link stays one.
        folder = folder.resolve()
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            persistence.save(temporary / MODEL_FILE, self.model, self.likelihood)
            self.derived.save(temporary)
            for number, fold in enumerate(self.folds):
                persistence.save(temporary / fold_file(number), fold.model, fold.likelihood)
                fold.derived.save(temporary, fold_file(number, ""))
            description = {
                "schema": self.schema.to_json(),
                "calibration": self.calibration.to_json(),
                "seed": self.seed,
                "temperature": self.temperature,
                **self.derived.files,
                "folds": [fold.scores.tolist() for fold in self.folds],
            }
            write_json(temporary / TABLE_FILE, jsonable(description))
            write_json(temporary / FOUND_FILE, jsonable(self.found))
            if self.familiarity is not None:
                write_json(temporary / FAMILIARITY_FILE, jsonable(self.familiarity.to_json()))
            temporary.chmod(0o755)
            put_in_place(temporary, folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise

    @classmethod
    def load(cls, folder: Path) -> TableRun:
        """Read back what `save` wrote, now or in version 0.1.

        Args:
            folder: A folder that `save` or `headstart fit` has written.

        Raises:
            HeadstartError: If it is none, or damaged.
        """
        description = read_part(folder, TABLE_FILE)
        with untrusted(folder / TABLE_FILE, "is damaged"):
            schema = Schema.from_json(description["schema"])
            calibration, seed = _read_calibration(description), int(description["seed"])
            if not 0 <= seed < 2**63:
                raise ValueError(f"its seed is {seed}")
        model, likelihood = persistence.load(folder / MODEL_FILE)
        outputs = len(schema.target.classes) or 1
        with untrusted(folder, "holds a model and a table that are not of one run"):
            derived = Derived.load(folder, description)
            row = derived.checked_row(len(schema.feature_names), len(schema.key_columns))
            tried = predict(model, likelihood, torch.from_numpy(row), samples=1)
            if tried.mean.shape[1] != outputs:
                raise ValueError(f"the table needs {outputs} outputs")
        found = read_part(folder, FOUND_FILE)
        found = {FORMER_FOUND.get(name, name): value for name, value in found.items()}
        folds = _read_folds(folder, description)
        return cls(
            model.eval(),
            likelihood,
            schema,
            calibration,
            seed,
            found,
            derived,
            folds,
            familiarity=_read_familiarity(folder),
            temperature=_read_temperature(description),
        )


def fold_file(number: int, name: str = MODEL_FILE) -> str:
    """What a file of the net of a fold is called.

    Args:
        number: Which fold.
        name: What the same file of the run is called.
    """
    return f"{FOLD_PREFIX}{number}-{name}"


def _read_folds(folder: Path, description: Mapping[str, Any]) -> tuple[FoldModel, ...]:
    """The nets of the folds, with the scores of the rows that were held out from them."""
    found = []
    for number, scores in enumerate(description.get("folds", [])):
        model, likelihood = persistence.load(folder / fold_file(number))
        derived = Derived.load(folder, description, fold_file(number, ""))
        with untrusted(folder / TABLE_FILE, "is damaged"):
            values = torch.tensor(scores, dtype=torch.float64)
        found.append(FoldModel(model.eval(), likelihood, derived, values))
    return tuple(found)


def _read_calibration(description: Mapping[str, Any]) -> Calibration:
    """From an entry of its own, or as version 0.1 has it: beside the schema, under other names."""
    former = {"factors": description.get("stretch"), "threshold": description.get("familiar")}
    return Calibration.from_json(description.get("calibration", former))


def _read_temperature(description: Mapping[str, Any]) -> float:
    """1 where a version has written none."""
    value = description.get("temperature", 1.0)
    if not (isinstance(value, (int, float)) and 0 < value < math.inf):
        raise HeadstartError(f"The temperature of a run is positive, not {value}.")
    return float(value)


def _read_familiarity(folder: Path) -> Familiarity | None:
    """None where version 0.1 has written the folder."""
    if not (folder / FAMILIARITY_FILE).is_file():
        return None
    entry = read_part(folder, FAMILIARITY_FILE)
    with untrusted(folder / FAMILIARITY_FILE, "is damaged"):
        return Familiarity.from_json(entry)


def put_in_place(new: Path, folder: Path) -> None:
    """Move a folder to its place; what was there goes only then, and comes back if that fails."""
    old = (
        Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        if folder.exists()
        else None
    )
    try:
        if old is not None:
            folder.replace(old)
        new.replace(folder)
    except BaseException:
        if old is not None and not folder.exists():
            old.replace(folder)
        raise
    if old is not None:
        shutil.rmtree(old)


def is_run(folder: Path) -> bool:
    """Whether `headstart fit` has written this folder."""
    return (folder / TABLE_FILE).is_file() and (folder / MODEL_FILE).is_file()


def refuse_folder(folder: Path, *, overwrite: bool) -> None:
    """Say so where the folder must not be written: before hours of work rather than after."""
    refuse_new_folder(folder)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise HeadstartError(f"{folder} is a file; name a folder to write to.")
    names = {path.name for path in folder.iterdir()}
    if not names:
        return
    if not is_run(folder):
        raise HeadstartError(f"The folder {folder} is not empty: name another one.")
    if not overwrite:
        raise HeadstartError(
            f"The folder {folder} holds an earlier run: add --overwrite to replace it, "
            "or name another one."
        )
    if foreign := sorted(n for n in names - RUN_FILES if not n.startswith(FOLD_PREFIX)):
        raise HeadstartError(
            f"The folder {folder} holds {foreign[0]!r} besides an earlier run: "
            "move that away, or name another folder."
        )


def read_part(folder: Path, name: str) -> dict[str, Any]:
    """What a JSON file of a run holds."""
    if not (folder / name).is_file():
        raise HeadstartError(
            f"{folder} is not a folder that `headstart fit` has written: it has no {name}."
        )
    return read_json(folder / name, "run")


def jsonable(value: Any) -> Any:
    """What JSON can hold: no infinities, no arrays."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
