"""From a start to a converged posterior."""

from __future__ import annotations

import warnings
from importlib import import_module

_OLD_NAMES = {
    "LR_SCHEDULES": "training.schedules",
    "Step": "training.history",
    "Training": "training.loop",
    "steps": "training.loop",
}
"""What version 0.1 had in a module of this name."""


def __getattr__(name: str) -> object:
    """A name of version 0.1, with a warning, for one release."""
    if name not in _OLD_NAMES:
        raise AttributeError(f"module 'headstart.training' has no attribute {name!r}")
    new = f"headstart.{_OLD_NAMES[name]}"
    message = f"headstart.training.{name} is now {new}.{name}; it goes with the next release."
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return getattr(import_module(new), name)
