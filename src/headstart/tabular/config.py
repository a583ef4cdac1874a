"""Settings of a fit from a file and from the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headstart.errors import HeadstartError, unknown
from headstart.training.recipe import Recipe


def read_config(path: Path) -> dict[str, Any]:
    """Fields of a recipe from a JSON or TOML file."""
    if not path.is_file():
        raise HeadstartError(f"There is no file {path}.")
    try:
        if path.suffix == ".json":
            found = json.loads(path.read_text(encoding="utf-8"))
        else:
            import tomllib

            found = tomllib.loads(path.read_text(encoding="utf-8"))
    except ImportError as error:
        # Python 3.10 has no tomllib.
        raise HeadstartError(
            "This Python reads no TOML: write the configuration as JSON."
        ) from error
    except (ValueError, OSError) as error:
        raise HeadstartError(f"{path} is neither JSON (.json) nor TOML: {error}.") from error
    if not isinstance(found, dict):
        raise HeadstartError(f"{path} holds no settings by name.")
    return found


def make_recipe(config: Mapping[str, Any], given: Mapping[str, Any]) -> Recipe:
    """A recipe from a configuration, and what was said on the command line over it.

    Example:
        >>> make_recipe({"steps": 50, "lr": 0.01}, {"steps": 100, "model": None}).steps
        100
    """
    options = {**config, **{name: value for name, value in given.items() if value is not None}}
    known = Recipe.__dataclass_fields__
    for name in options:
        if name not in known:
            raise unknown("setting", name, known)
    return Recipe(**options)
