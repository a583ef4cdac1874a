"""Data sets: find them, fetch them, read them, split them, scale them; plain tensors.

Example:
    >>> from headstart import data
    >>> parts, scaling = data.standardize(data.split(data.load("toy"), 0), targets=True)
    >>> parts.x_train.shape
    torch.Size([461, 1])
"""

import warnings
from typing import Any

from headstart.data.datasets import CatalogueRow, Dataset, FileCheck, catalogue, load, verify
from headstart.data.download import fetch
from headstart.data.images import Images
from headstart.data.registry import NAMES
from headstart.data.splits import Scaling, Split, fit_scaling, split, standardize
from headstart.data.synthetic import toy_function

__all__ = [
    "NAMES",
    "Images",
    "CatalogueRow",
    "Dataset",
    "FileCheck",
    "Scaling",
    "Split",
    "catalogue",
    "fetch",
    "fit_scaling",
    "load",
    "split",
    "standardize",
    "toy_function",
    "verify",
]

_RENAMED = {"Check": FileCheck, "Row": CatalogueRow}
"""Names of version 0.1, for one release."""


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = _RENAMED[name]
    warnings.warn(
        f"headstart.data.{name} is now headstart.data.{new.__name__}; "
        "the old name goes with the next release.",
        DeprecationWarning,
        stacklevel=2,
    )
    return new
