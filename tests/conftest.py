"""Every test starts from the same random state, on one thread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from headstart.kernels import private as torch_private

torch.set_num_threads(1)  # busy neighbours make two threads slower than one


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    return


@pytest.fixture
def float64() -> Iterator[None]:
    """Closed forms are tested in double precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


TORCH_NAMES = {"private": None, "public": "", "public, fused": "transforming"}
"""None: torch has its private functions. Else it has none but this one.

Where `transforming` is missing too, plain expressions stand in for the fused ones.
"""


def go_public(monkeypatch: pytest.MonkeyPatch, but: str = "") -> None:
    """From here on torch has none of the private functions, but perhaps this one."""
    for name, public in vars(torch_private).copy().items():
        private = name.removeprefix("public_")
        if private not in (name, but):
            monkeypatch.setattr(torch_private, private, public)


@pytest.fixture(params=TORCH_NAMES)
def torch_names(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs with torch's private functions, and with the public ones in their place."""
    name: str = request.param
    but = TORCH_NAMES[name]
    if but is not None:
        go_public(monkeypatch, but)
    return name


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets."""
    folder = os.environ.get("HEADSTART_DATA")
    if not folder:
        pytest.skip("HEADSTART_DATA is not set: no real data here")
    return Path(folder)
