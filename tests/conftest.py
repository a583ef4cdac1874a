"""Every test begins with the same random state, on one thread, without data or a network."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Two workers share two cores, and so do the processes that a test starts: one thread each.
for threads in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[threads] = "1"

ALONE = {
    "tests/cli/test_data_sets.py",
    "tests/cli/test_experiments.py",
    "tests/cli/test_program.py",
    "tests/distributed/test_collectives.py",
    "tests/distributed/test_read_out.py",
    "tests/experiments/test_execute.py",
    "tests/experiments/test_store.py",
    "tests/experiments/test_two_nodes.py",
    "tests/experiments/test_workers.py",
    "tests/hostile/test_full_disk.py",
    "tests/storage/test_locks.py",
    "tests/tabular/test_command.py",
    "tests/test_imports.py",
    "tests/test_package.py",
    "tests/training/test_fit_checkpoint.py",
}
"""Files of tests that start processes and wait for them: on one worker, one after another."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile` the tests of a file share a worker; all of ALONE share one too."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "alone" if file in ALONE else file

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`data` for tests that use `real_data`, also through a fixture; `slow` for those of ALONE."""
    for item in items:
        if "real_data" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.data)
        if item.nodeid.partition("::")[0] in ALONE:
            item.add_marker(pytest.mark.slow)


# Fixtures import torch: the process that only hands tests to workers has no use for it.
@pytest.fixture(autouse=True)
def _seeded() -> None:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c() -> Iterator[None]:
    """Ctrl-C is Python's own: a shell starts what runs in the background with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def float64() -> Iterator[None]:
    """Closed forms are tested in double precision."""
    import torch

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
    from headstart.kernels import private as torch_private

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


@pytest.fixture(scope="session", autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | None]:
    """What HEADSTART_DATA names; tests do not find it in their environment, but in `real_data`."""
    folder = os.environ.get("HEADSTART_DATA")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HEADSTART_DATA", raising=False)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield folder


@pytest.fixture(scope="session")
def real_data(data_folder: str | None) -> Path:
    """The folder of real data sets; tests that use it skip where there is none."""
    if not data_folder:
        pytest.skip("HEADSTART_DATA is not set: no real data here")
    return Path(data_folder)


@pytest.fixture(scope="session", autouse=True)
def _no_network() -> Iterator[None]:
    """A connection to another machine fails the test, even where the code catches exceptions."""

    def guarded(connect: Any) -> Any:
        def checked(self: socket.socket, address: Any) -> Any:
            if self.family in (socket.AF_INET, socket.AF_INET6) and not is_here(self, address[0]):
                pytest.fail(f"A test connects to {address[0]}: tests reach this machine only.")
            return connect(self, address)

        return checked

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
        yield


def is_here(connection: socket.socket, host: str) -> bool:
    """Whether a host is this machine: only its own addresses can be bound to."""
    # To connect a datagram socket sends nothing; Ray finds this machine's address so.
    if connection.type == socket.SOCK_DGRAM:
        return True
    with socket.socket(connection.family) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True
