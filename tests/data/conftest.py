"""An empty user cache, and small files of our own making."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No HEADSTART_DATA and an empty user cache; returns an empty data folder."""
    monkeypatch.delenv("HEADSTART_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    return folder
