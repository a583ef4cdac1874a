"""Memory that one step frees serves the next."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headstart.kernels.allocator import keep_freed

STEPS = """
import resource
import torch
from headstart import *  # the heap of a process that trains: a younger one finds other places
from headstart.kernels.allocator import keep_freed

def steps(n):
    for _ in range(n):
        parts = [torch.ones(5_000_000) for _ in range(4)]  # 20 MB each
        del parts

keep_freed()
steps(3)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
steps(10)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10)
"""


@pytest.mark.slow
@pytest.mark.skipif(not keep_freed(), reason="not a Linux with glibc")
def test_pages_are_not_asked_for_again() -> None:
    """Page faults of a step; without it most processes have 20 000, or 40 where pages are huge."""
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, check=True, text=True)
    assert float(done.stdout) < 5
