"""A real browser, to look at pages as users do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def browse(page: Path, profile: Path, *options: str, query: str = "") -> str:
    """What Chromium prints for a page, with a profile of its own."""
    browser = next(
        (
            path
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (path := shutil.which(name))
        ),
        None,
    )
    if browser is None:
        pytest.skip("no Chromium here")
    quiet = (
        "--headless --no-sandbox --disable-gpu --disable-background-networking "
        "--disable-component-update --no-first-run"
    )
    address = f"{page.resolve().as_uri()}?{query}" if query else page.resolve().as_uri()
    command = [browser, *quiet.split(), f"--user-data-dir={profile}", *options, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
