"""The real data where there is some, an empty user cache, and small files of our own making."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real() -> Path:
    """The folder with the real data sets."""
    if not os.environ.get("HEADSTART_DATA"):
        pytest.skip("HEADSTART_DATA is not set: the real data sets are needed")
    return Path(os.environ["HEADSTART_DATA"])


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No HEADSTART_DATA and an empty user cache; returns an empty data folder."""
    monkeypatch.delenv("HEADSTART_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    return folder
