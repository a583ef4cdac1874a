"""Every test starts from the same random state, on one thread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

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


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets."""
    folder = os.environ.get("HEADSTART_DATA")
    if not folder:
        pytest.skip("HEADSTART_DATA is not set: no real data here")
    return Path(folder)
