"""Old module paths give the new modules, with a warning."""

from __future__ import annotations

import importlib
import sys

import pytest

from headstart.deprecated import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_warns_and_gives_the_new_module(old: str) -> None:
    sys.modules.pop(f"headstart.{old}", None)
    with pytest.warns(DeprecationWarning, match=f"headstart.{old} is now headstart.{MOVED[old]}"):
        found = importlib.import_module(f"headstart.{old}")
    assert found is importlib.import_module(f"headstart.{MOVED[old]}")
    assert found.__name__ == f"headstart.{MOVED[old]}"


def test_a_path_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("headstart.nowhere")


@pytest.mark.parametrize("name", ["Training", "Step", "steps", "LR_SCHEDULES"])
def test_a_name_of_the_old_training_module_warns_and_is_the_new_one(name: str) -> None:
    training = importlib.import_module("headstart.training")
    with pytest.warns(DeprecationWarning, match=f"headstart.training.{name} is now headstart"):
        found = getattr(training, name)
    homes = ("training.loop", "training.history", "training.schedules")
    assert any(
        found is vars(importlib.import_module(f"headstart.{home}")).get(name) for home in homes
    )
    with pytest.raises(AttributeError):
        training.nothing  # noqa: B018
