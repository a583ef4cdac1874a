"""Module paths that moved: an old one gives the new module, with a warning, for one release."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "affine": "linalg.affine",
    "allocator": "kernels.allocator",
    "batches": "batching",
    "blm": "linalg.blm",
    "checkpoints": "storage.checkpoints",
    "convert": "network.convert",
    "data.forms": "data.specs",
    "fabric": "distributed.fabric",
    "files": "storage.files",
    "fitting": "training.fit",
    "fused": "kernels.fused",
    "gaussians": "linalg.gaussians",
    "layers": "network.layer",
    "learner": "training.recipe",
    "noise": "kernels.noise",
    "passes": "network.forward",
    "persistence": "storage.model",
    "ranks": "distributed.collectives",
    "sampling": "network.samplers",
    "shares": "distributed.sharding",
    "streams": "distributed.stream",
    "tabular.fitting": "tabular.fit",
    "tabular.predicting": "tabular.predict",
}
"""Where the modules of version 0.1 are now."""


class _Moved(MetaPathFinder, Loader):
    """Finds the modules of `MOVED` under their old paths."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, old = fullname.partition(".")
        return ModuleSpec(fullname, self) if package == "headstart" and old in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = f"headstart.{MOVED[spec.name.partition('.')[2]]}"
        message = f"{spec.name} is now {new}; the old path goes with the next release."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return import_module(new)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to do: the module has run under its new path."""


def install() -> None:
    """Let old paths be imported.

    Example:
        >>> install()
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     from headstart.batches import Sharded
        >>> Sharded.__module__
        'headstart.batching'
    """
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())
