"""Classes for other libraries; each is an optional extra, imported when its class is first used.

| class | for | install |
|---|---|---|
| `BayesianModule` | Lightning's Trainer | `pip install 'headstart[lightning]'` |
| `BotorchModel` | BoTorch's acquisition functions | `pip install 'headstart[botorch]'` |
| `SkproRegressor` | skpro's probabilistic regressors | `pip install 'headstart[skpro]'` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headstart.errors import HeadstartError

if TYPE_CHECKING:
    from headstart.integrations.botorch import BotorchModel
    from headstart.integrations.lightning import BayesianModule
    from headstart.integrations.skpro import SkproRegressor

__all__ = ["BayesianModule", "BotorchModel", "SkproRegressor"]

LIBRARIES = {"BayesianModule": "lightning", "BotorchModel": "botorch", "SkproRegressor": "skpro"}
"""The library of each class, which is the name of its extra and of its module here too."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """A class, imported with its library when it is first used."""
        from importlib import import_module

        if name not in LIBRARIES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        library = LIBRARIES[name]
        try:
            value = getattr(import_module(f"{__name__}.{library}"), name)
        except ModuleNotFoundError as error:
            raise HeadstartError(
                f"{name} needs {library}, which could not be imported ({error}): "
                f"pip install 'headstart[{library}]'."
            ) from error
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
