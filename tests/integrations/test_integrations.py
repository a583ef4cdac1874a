"""Classes of other libraries are found by name, and say what to install where it is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headstart import HeadstartError, integrations

SOURCE = Path(integrations.__file__).parent


def test_every_class_has_a_module_of_its_library() -> None:
    assert sorted(integrations.LIBRARIES) == integrations.__all__
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    assert modules == set(integrations.LIBRARIES.values())
    assert set(integrations.__all__) <= set(dir(integrations))


@pytest.mark.parametrize("name", integrations.__all__)
def test_a_class_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = integrations.LIBRARIES[name]
    for module in [key for key in sys.modules if key.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, f"headstart.integrations.{library}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(vars(integrations), name, raising=False)
    with pytest.raises(HeadstartError, match=rf"pip install 'headstart\[{library}\]'"):
        getattr(integrations, name)


def test_other_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match="no attribute 'BayesianTrainer'"):
        integrations.BayesianTrainer  # noqa: B018
