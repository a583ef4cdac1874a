"""A user's csv file as a data set."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from headstart import data
from headstart.errors import HeadstartError, unknown

MOST_CLASSES = 20
"""A numeric target with more distinct values than this is a quantity; with fewer, a class."""


def read_table(path: Path, target: str) -> data.Dataset:
    """The rows of a csv file with a header: all other columns, numbers, predict the column `target`.

    Regression if the target holds more than 20 different numbers, classification otherwise.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "rain.csv"
        ...     _ = path.write_text("wind,wet\\n" + "1.5,yes\\n2.5,no\\n" * 10)
        ...     table = read_table(path, "wet")
        >>> table.task, tuple(table.x.shape), table.class_names
        ('classification', (20, 1), ('no', 'yes'))
    """
    frame = _read(path)
    if target not in frame.columns:
        raise unknown(f"column in {path.name}", target, map(str, frame.columns))
    features, labels = frame.drop(columns=target), frame[target]
    if text := [str(name) for name, kind in features.dtypes.items() if kind.kind not in "iufb"]:
        raise HeadstartError(
            f"{path.name} has columns that are not numbers ({', '.join(text)}): encode or drop them first."
        )
    if features.shape[1] == 0:
        raise HeadstartError(f"{path.name} has no column beside {target!r} to predict it from.")
    if holes := [str(name) for name in frame.columns if frame[name].isna().any()]:
        raise HeadstartError(f"{path.name} has missing values in {', '.join(holes)}: fill or drop them first.")
    quantity = labels.dtype.kind in "iuf" and labels.nunique() > MOST_CLASSES
    classes = () if quantity else tuple(sorted(map(str, labels.unique())))
    if not quantity and not 2 <= len(classes) <= len(labels) // 2:
        raise HeadstartError(
            f"The column {target!r} of {path.name} holds {len(classes)} different labels: not classes."
        )
    if quantity:
        y = torch.from_numpy(labels.to_numpy(np.float32, copy=True)).unsqueeze(1)
    else:
        y = torch.from_numpy(np.searchsorted(np.array(classes), labels.astype(str).to_numpy(dtype=str)))
    return data.Dataset(
        name=path.name,
        title=f"{path.name}, {len(frame)} rows",
        task="regression" if quantity else "classification",
        x=torch.from_numpy(features.to_numpy(np.float32, copy=True)),
        y=y,
        test=None,
        feature_names=tuple(map(str, features.columns)),
        target_name=target,
        class_names=classes,
    )


def content_digest(path: Path) -> str:
    """The sha256 of a file: a table that was edited is another data set."""
    if not path.is_file():
        raise HeadstartError(f"There is no file {path}.")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise HeadstartError(f"There is no file {path}.")
    try:
        return pd.read_csv(path)
    except (ValueError, UnicodeDecodeError) as error:  # pandas' parser errors are ValueErrors
        raise HeadstartError(f"Cannot read {path} as a csv file with a header: {error}.") from error
