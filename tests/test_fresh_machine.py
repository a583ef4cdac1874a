"""What tests find: no data but through `real_data`, no network but this machine, one worker."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from headstart import data
from tests.conftest import ALONE

ROOT = Path(__file__).parent.parent

ELSEWHERE = "192.0.2.1"
"""An address that is reserved for documentation: nobody has it."""


def test_no_data_set_is_found_by_itself() -> None:
    here = {row.name for row in data.catalogue() if not row.where.startswith("not here")}
    assert here == {row.name for row in data.catalogue() if row.where == "built in"}


@pytest.mark.parametrize("connect", ["connect", "connect_ex"])
def test_another_machine_is_out_of_reach(connect: str) -> None:
    with (
        socket.socket() as caller,
        pytest.raises(pytest.fail.Exception, match="tests reach this machine only"),
    ):
        getattr(caller, connect)((ELSEWHERE, 80))


def test_this_machine_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as caller:
        caller.connect(server.getsockname())
        assert caller.getpeername() == server.getsockname()


def test_files_that_start_processes_share_a_worker() -> None:
    files = {
        path.relative_to(ROOT).as_posix(): path for path in (ROOT / "tests").rglob("test_*.py")
    }
    assert set(files) >= ALONE
    starts = re.compile(r"^from tests(\.processes import|.* import .*\bprocesses\b)", re.MULTILINE)
    assert {name for name, path in files.items() if starts.search(path.read_text())} <= ALONE
