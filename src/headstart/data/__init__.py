"""Data sets: find them, fetch them, read them, split them, scale them; plain tensors.

Example:
    >>> from headstart import data
    >>> parts, scaling = data.standardize(data.split(data.load("toy"), 0), targets=True)
    >>> parts.x_train.shape
    torch.Size([461, 1])
"""

from headstart.data.datasets import CatalogueRow, Dataset, FileCheck, catalogue, load, verify
from headstart.data.download import fetch
from headstart.data.images import Images
from headstart.data.registry import NAMES
from headstart.data.splits import Scaling, Split, fit_scaling, split, split_in_time, standardize
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
    "split_in_time",
    "standardize",
    "toy_function",
    "verify",
]
