"""Downloads from a real server on the loopback interface: right, wrong, cut short, absent."""

from __future__ import annotations

import hashlib
import io
import shutil
import socket
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import openpyxl
import pytest

from headstart.data import fetch, load, verify
from headstart.data.datasets import Located, find, read
from headstart.data.download import download
from headstart.data.paths import read_bytes
from headstart.data.readers import read_csv
from headstart.data.registry import SPECS
from headstart.data.specs import File
from headstart.errors import HeadstartError

CONTENT = b"1,2\n3,4\n" * 40_000
PATH = "/pub/tiny%20table.csv"
MIRROR = "/mirror/tiny.csv"
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
TINY = File(
    "tiny table.csv", (f"https://example.org{PATH}", f"https://example.net{MIRROR}"), content=DIGEST
)
WITHOUT_DIGEST = File(TINY.name, TINY.urls)

# Status, body, the length that is announced.
Answer = tuple[int, bytes, int]


def right(body: bytes = CONTENT) -> Answer:
    return 200, body, len(body)


def cut_short(body: bytes = CONTENT) -> Answer:
    return 200, body[: len(body) // 2], len(body)


ABSENT: Answer = (404, b"no", 2)
WRONG = right(b"<html>Sign in to this network</html>")


class Server(ThreadingHTTPServer):
    """Gives the answers of a path in turn, the last for ever, and notes what it was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, list[Answer]] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        answers = self.server.answers.get(self.path, [ABSENT])
        status, body, length = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """The tests' output is no place for an access log."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "*")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def get(
    server: Server, folder: Path, file: File = TINY, read: Callable[[Path], object] = read_csv
) -> Path:
    return download(file, folder, read, base_url=server.url + "/")


@pytest.mark.parametrize("file", [TINY, WITHOUT_DIGEST], ids=["digest", "contents"])
@pytest.mark.parametrize(
    ("first", "mirror", "asked"),
    [
        pytest.param([right()], [], [PATH], id="right"),
        pytest.param([ABSENT], [right()], [PATH, MIRROR], id="absent, mirror right"),
        pytest.param([cut_short()], [right()], [PATH, MIRROR], id="cut short, mirror right"),
        pytest.param([WRONG], [right()], [PATH, MIRROR], id="wrong, mirror right"),
        pytest.param(
            [cut_short(), right()], [ABSENT], [PATH, MIRROR, PATH], id="right on the second round"
        ),
    ],
)
def test_the_right_bytes_arrive(
    server: Server,
    tmp_path: Path,
    file: File,
    first: list[Answer],
    mirror: list[Answer],
    asked: list[str],
) -> None:
    server.answers = {PATH: list(first), MIRROR: list(mirror)}
    path = get(server, tmp_path / "new" / "tiny", file)
    assert path.read_bytes() == CONTENT
    assert server.asked == asked
    assert files_in(tmp_path) == ["new", "new/tiny", f"new/tiny/{TINY.name}"]
    assert get(server, path.parent, file) == path
    # What is there and right is not asked for again.
    assert server.asked == asked


@pytest.mark.parametrize("file", [TINY, WITHOUT_DIGEST], ids=["digest", "contents"])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [(ABSENT, "answered 404"), (cut_short(), "broke off before the end"), (WRONG, "sent ")],
)
def test_a_failure_is_one_sentence_and_leaves_nothing(
    server: Server, tmp_path: Path, file: File, answer: Answer, reason: str
) -> None:
    server.answers = {PATH: [answer], MIRROR: [answer]}
    with pytest.raises(HeadstartError) as caught:
        get(server, tmp_path, file)
    message = str(caught.value)
    assert message.startswith(f"Could not download {TINY.name}: {server.url}{PATH} {reason}")
    assert message.endswith(f"try again later, or put the file into {tmp_path} yourself.")
    assert message.count(server.url) == 2
    assert server.asked == [PATH, MIRROR] * 2
    assert files_in(tmp_path) == []


def test_a_closed_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(HeadstartError, match=r"gave no answer \(ConnectionError\)"):
        download(TINY, tmp_path, read_csv, base_url=f"http://127.0.0.1:{port}")
    assert files_in(tmp_path) == []


def test_a_wrong_file_is_replaced_only_by_the_right_one(server: Server, tmp_path: Path) -> None:
    path = tmp_path / TINY.name
    path.write_bytes(b"stale")
    with pytest.raises(HeadstartError):
        get(server, tmp_path)
    assert path.read_bytes() == b"stale"
    server.answers = {PATH: [right()]}
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_a_folder_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HeadstartError, match=r"Cannot write to .*tiny"):
        get(server, tmp_path / "file" / "tiny")
    assert server.asked == []


def test_an_interrupted_download_leaves_nothing(server: Server, tmp_path: Path) -> None:
    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    server.answers = {PATH: [right()]}
    with pytest.raises(KeyboardInterrupt):
        get(server, tmp_path, WITHOUT_DIGEST, interrupted)
    assert files_in(tmp_path) == []


def test_the_progress_bar_goes_to_standard_error(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers = {PATH: [right()]}
    download(TINY, tmp_path, read_csv, base_url=server.url, progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert TINY.name in captured.err
    assert "320.0/320.0 kB" in captured.err


def test_built_in_and_unknown_sets() -> None:
    with pytest.raises(HeadstartError, match="'toy' is built in"):
        fetch("toy")
    with pytest.raises(HeadstartError, match="no data set 'nothing'"):
        fetch("nothing")


UCI = "/ml/machine-learning-databases/"


def found_in(real_data: Path, name: str) -> Located:
    found = find(SPECS[name], [real_data])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "public"),
    [("credit", "statlog/german/german.data-numeric"), ("eeg", "00264/EEG%20Eye%20State.arff")],
)
def test_fetch_then_load(
    server: Server, real_data: Path, nowhere: Path, name: str, public: str
) -> None:
    server.answers = {UCI + public: [right(read_bytes(found_in(real_data, name).paths[0]))]}
    target = nowhere / "new"
    assert fetch(name, target, base_url=server.url, progress=False) == target / name
    assert all(check.ok for check in verify(name, target))
    fetch(name, target, base_url=server.url, progress=False)
    assert server.asked == [UCI + public]


def test_fetch_resumes_a_set_of_several_files_from_the_second_mirror(
    server: Server, real_data: Path, nowhere: Path
) -> None:
    names = [
        f"{part}-ubyte.gz"
        for part in (
            "train-images-idx3",
            "train-labels-idx1",
            "t10k-images-idx3",
            "t10k-labels-idx1",
        )
    ]
    contents = {name: (real_data / "mnist" / name).read_bytes() for name in names}
    server.answers = {f"/cvdf-datasets/mnist/{name}": [right(contents[name])] for name in names[:2]}
    with pytest.raises(HeadstartError, match="Could not download t10k-images"):
        fetch("mnist", nowhere, base_url=server.url, progress=False)
    assert files_in(nowhere / "mnist") == names[:2]
    server.asked.clear()
    server.answers = {f"/cvdf-datasets/mnist/{name}": [right(contents[name])] for name in names}
    fetch("mnist", nowhere, base_url=server.url, progress=False)
    assert server.asked == [
        f"/{mirror}/{name}" for name in names[2:] for mirror in ("mnist", "cvdf-datasets/mnist")
    ]
    assert load("mnist", nowhere).x.shape == (60_000, 1, 28, 28)


def test_what_is_there_in_another_form_is_not_fetched(server: Server, real_data: Path) -> None:
    assert fetch("protein", real_data, base_url=server.url) == real_data / "protein"
    assert server.asked == []


def test_a_subset_does_not_stand_for_the_whole(
    server: Server, real_data: Path, nowhere: Path
) -> None:
    shutil.copytree(
        real_data / "notmnist", nowhere / "notmnist", ignore=shutil.ignore_patterns("*.tar*")
    )
    with pytest.raises(HeadstartError, match=r"notMNIST_small\.tar\.gz"):
        fetch("notmnist", nowhere, base_url=server.url, progress=False)
    assert load("notmnist", nowhere).x.shape == (10_000, 1, 28, 28)


def powerplant_zip(real_data: Path, first: float | None = None) -> bytes:
    """The public archive rebuilt; with its first number changed to `first`."""
    table = np.hstack(read(SPECS["powerplant"], found_in(real_data, "powerplant"))[:2])
    if first is not None:
        table[0, 0] = first
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Sheet1")
    for row in [["AT", "V", "AP", "RH", "PE"], *table.tolist()]:
        sheet.append(row)
    workbook, archive = io.BytesIO(), io.BytesIO()
    book.save(workbook)
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("CCPP/Folds5x2_pp.xlsx", workbook.getvalue())
    return archive.getvalue()


def test_powerplant_is_checked_by_its_numbers(
    server: Server, real_data: Path, nowhere: Path
) -> None:
    server.answers = {
        UCI + "00294/CCPP.zip": [
            right(powerplant_zip(real_data, 14.97)),
            right(powerplant_zip(real_data)),
        ]
    }
    fetch("powerplant", nowhere, base_url=server.url, progress=False)
    assert len(server.asked) == 2
    assert files_in(nowhere / "powerplant") == ["CCPP.zip"]
    assert load("powerplant", nowhere).y.equal(load("powerplant", real_data).y)


def test_powerplant_with_other_numbers_is_refused(
    server: Server, real_data: Path, nowhere: Path
) -> None:
    server.answers = {UCI + "00294/CCPP.zip": [right(powerplant_zip(real_data, 14.97))]}
    with pytest.raises(
        HeadstartError, match=r"sent something else \(other numbers than the published ones\)"
    ):
        fetch("powerplant", nowhere, base_url=server.url, progress=False)
    assert files_in(nowhere / "powerplant") == []
