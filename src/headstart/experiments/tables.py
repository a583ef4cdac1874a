"""A user's table as a data set."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch

from headstart import data
from headstart.errors import HeadstartError
from headstart.tabular.frames import read_frame
from headstart.tabular.schema import Schema


def read_table(path: Path, target: str) -> data.Dataset:
    """The rows of a table whose target is known, read as `headstart fit` reads them.

    What its columns are is decided on all rows, before they are split; scales are taken from
    training rows later.

    Args:
        path: The file.
        target: The column to predict.

    Returns:
        The table as a data set.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "rain.csv"
        ...     _ = path.write_text("wind,wet\\n" + "1.5,yes\\n2.5,no\\n" * 10)
        ...     table = read_table(path, "wet")
        >>> table.task, tuple(table.x.shape), table.class_names
        ('classification', (20, 1), ('no', 'yes'))
    """
    frame = read_frame(path)
    schema = Schema.learn(frame, target)
    labels = schema.target.encode(frame[target])
    known = np.isfinite(labels) & (labels >= 0 if schema.target.classes else True)
    frame, labels = frame[known].reset_index(drop=True), labels[known]
    y = (
        torch.from_numpy(labels)
        if schema.target.classes
        else torch.from_numpy(labels.astype(np.float32)).unsqueeze(1)
    )
    return data.Dataset(
        name=path.name,
        title=f"{path.name}, {len(frame)} rows",
        task="classification" if schema.target.classes else "regression",
        x=torch.from_numpy(schema.encode(frame)),
        y=y,
        test=None,
        feature_names=schema.feature_names,
        target_name=target,
        class_names=schema.target.classes,
    )


def content_digest(path: Path) -> str:
    """The sha256 of a file: a table that was edited is another data set."""
    if not path.is_file():
        raise HeadstartError(f"There is no file {path}.")
    return hashlib.sha256(path.read_bytes()).hexdigest()
