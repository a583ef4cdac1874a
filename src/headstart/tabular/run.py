"""A fitted table: its model, the way from columns to numbers, and what was found; a folder on disk, written whole or not at all."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from headstart.errors import HeadstartError, untrusted
from headstart.likelihoods import Likelihood
from headstart.predictive import Predictive, predict
from headstart.storage import model as persistence
from headstart.storage.files import read_json, write_json
from headstart.tabular.frames import plain
from headstart.tabular.schema import Schema

MODEL, TABLE, FOUND = "model.safetensors", "table.json", "found.json"
PAGE = "report.html"
OWN = {MODEL, TABLE, FOUND, PAGE}
"""All that a run's folder holds."""
LEVELS = (0.5, 0.95)
PREDICT_SAMPLES = 128


@dataclass
class TableRun:
    """What predicts: model, likelihood and schema; `stretch` widens intervals (conformal), `familiar` bounds the epistemic part.

    `found` is what the report shows and nothing that a prediction needs.
    """

    model: nn.Module
    likelihood: Likelihood
    schema: Schema
    stretch: dict[float, float]
    familiar: float
    seed: int
    found: dict[str, Any]

    @property
    def warnings(self) -> list[str]:
        """What there is to warn of, in the whole table and in what its columns were taken for."""
        return [*self.found.get("warnings", []), *self.schema.warnings]

    def predict(self, frame: pd.DataFrame) -> Predictive:
        """The predictive distribution of every row; the same row is predicted alike whatever stands beside it."""
        x = torch.from_numpy(self.schema.encode(plain(frame, "the table")))
        found = predict(
            self.model, self.likelihood, x, PREDICT_SAMPLES, sampler="weights", seed=self.seed
        )
        return Predictive(
            found.draws.double(), found.likelihood
        )  # a price of 1e8 ± 1 needs its digits

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        """Write the folder; one that holds something else is never touched."""
        refuse_folder(folder, overwrite=overwrite)
        folder = folder.resolve()  # a link stays one
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            persistence.save(temporary / MODEL, self.model, self.likelihood)
            description = {
                "schema": self.schema.to_json(),
                "stretch": {str(level): factor for level, factor in self.stretch.items()},
                "familiar": self.familiar,
                "seed": self.seed,
            }
            write_json(temporary / TABLE, _plain(description))
            write_json(temporary / FOUND, _plain(self.found))
            temporary.chmod(0o755)
            put_in_place(temporary, folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise

    @classmethod
    def load(cls, folder: Path) -> TableRun:
        """Read back what `save` wrote."""
        description = read_part(folder, TABLE)
        with untrusted(folder / TABLE, "is damaged"):
            schema = Schema.from_json(description["schema"])
            stretch = {
                float(level): float(factor) for level, factor in description["stretch"].items()
            }
            familiar, seed = float(description["familiar"]), int(description["seed"])
            if not 0 <= seed < 2**63:
                raise ValueError(f"its seed is {seed}")
        model, likelihood = persistence.load(folder / MODEL)
        outputs = len(schema.target.classes) or 1
        with untrusted(folder, "holds a model and a table that are not of one run"):
            x = torch.zeros(1, sum(len(column.features) for column in schema.columns))
            if predict(model, likelihood, x, samples=1).mean.shape[1] != outputs:
                raise ValueError(f"the table needs {outputs} outputs")
        found = read_part(folder, FOUND)
        return cls(model.eval(), likelihood, schema, stretch, familiar, seed, found)


def put_in_place(new: Path, folder: Path) -> None:
    """Move a folder to its place; what was there is gone only when the new one is there, and back if that fails."""
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
    return (folder / TABLE).is_file() and (folder / MODEL).is_file()


def refuse_folder(folder: Path, *, overwrite: bool) -> None:
    """Say so where the folder must not be written: before hours of work rather than after."""
    if folder.exists() and not folder.is_dir():
        raise HeadstartError(f"{folder} is a file; name a folder to write to.")
    foreign = sorted({path.name for path in folder.iterdir()} - OWN) if folder.is_dir() else []
    if overwrite and is_run(folder) and foreign:
        raise HeadstartError(
            f"The folder {folder} holds {foreign[0]!r} besides an earlier run: move that away, or name another folder."
        )
    if folder.is_dir() and any(folder.iterdir()) and not (overwrite and is_run(folder)):
        kind = (
            "holds an earlier run: add --overwrite to replace it"
            if is_run(folder)
            else "is not empty"
        )
        raise HeadstartError(f"The folder {folder} {kind}, or name another one.")


def read_part(folder: Path, name: str) -> dict[str, Any]:
    """What a JSON file of a run holds."""
    if not (folder / name).is_file():
        raise HeadstartError(
            f"{folder} is not a folder that `headstart fit` has written: it has no {name}."
        )
    return read_json(folder / name, "run")


def _plain(value: Any) -> Any:
    """What JSON can hold: no infinities, no arrays."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
