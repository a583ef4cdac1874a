"""Each reader on small files of its format, plain and compressed, right and wrong."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import openpyxl
import pytest
from PIL import Image

from headstart.data import load
from headstart.data.readers import (
    has_spike,
    read_arff,
    read_cifar,
    read_cifar_tar,
    read_csv,
    read_idx,
    read_png_tar,
    read_workbook,
)
from headstart.errors import HeadstartError

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
}


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def tar_of(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def png(value: int, size: tuple[int, int] = (28, 28)) -> bytes:
    stream = io.BytesIO()
    Image.new("L", size, value).save(stream, "PNG")
    return stream.getvalue()


def workbook(rows: list[list[object]], sheet: str = "Sheet1") -> bytes:
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active.title = sheet
    for row in rows:
        book.active.append(row)
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


@pytest.mark.parametrize("suffix", COMPRESS)
def test_csv_in_every_compression(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path / f"t.csv{suffix}", COMPRESS[suffix](b'"a","b"\r\n0.1,2\r\n-3e5,4\r\n'))
    assert read_csv(path, header=True).tolist() == [[0.1, 2.0], [-3e5, 4.0]]


def test_whitespace_separated(tmp_path: Path) -> None:
    path = written(tmp_path / "t.data-numeric", b"   1   6   4 \n   2  48   2 \n")
    assert read_csv(path, delimiter=None).tolist() == [[1.0, 6.0, 4.0], [2.0, 48.0, 2.0]]


def test_one_row_is_a_table(tmp_path: Path) -> None:
    assert read_csv(written(tmp_path / "t.csv", b"1,2,3\n")).shape == (1, 3)


ARFF = (
    b"% a comment\n@RELATION eyes\n\n@attribute A NUMERIC\n@ATTRIBUTE eye {0,1}\n"
    b"@data \n1.5,0\n% more\n2.5,1\n\n"
)


def test_arff(tmp_path: Path) -> None:
    assert read_arff(written(tmp_path / "t.arff", ARFF)).tolist() == [[1.5, 0.0], [2.5, 1.0]]


def test_workbook_alone_and_in_a_zip(tmp_path: Path) -> None:
    content = workbook([["AT", "PE"], [14.96, 463.26], [5, 488.56]])
    expected = [[14.96, 463.26], [5.0, 488.56]]
    assert read_workbook(written(tmp_path / "t.xlsx", content), sheet="Sheet1").tolist() == expected
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("CCPP/t.xlsx", content)
        archive.writestr("CCPP/Readme.txt", "about")
    assert (
        read_workbook(tmp_path / "t.zip", member="CCPP/t.xlsx", sheet="Sheet1").tolist() == expected
    )


def test_idx_axes_are_big_endian(tmp_path: Path) -> None:
    values = np.arange(2 * 3 * 4, dtype=np.uint8)
    header = bytes([0, 0, 8, 3]) + np.array([2, 3, 4], dtype=">u4").tobytes()
    path = written(tmp_path / "images-idx3-ubyte.gz", gzip.compress(header + values.tobytes()))
    assert np.array_equal(read_idx(path), values.reshape(2, 3, 4))


def cifar_batch(first_label: int, rows: int = 2) -> bytes:
    """Images whose red, green and blue are label + 10, + 20, + 30."""
    planes = [
        [np.full(1024, k + shade, np.uint8) for shade in (10, 20, 30)]
        for k in range(first_label, rows + first_label)
    ]
    return b"".join(
        bytes([first_label + i]) + b"".join(p.tobytes() for p in planes[i]) for i in range(rows)
    )


def test_cifar_batches_in_files_and_in_a_tar(tmp_path: Path) -> None:
    batches = {"data_batch_1.bin": cifar_batch(0), "test_batch.bin": cifar_batch(5, rows=1)}
    one = written(tmp_path / "data_batch_1.bin.xz", lzma.compress(batches["data_batch_1.bin"]))
    two = written(tmp_path / "test_batch.bin", batches["test_batch.bin"])
    members = {
        f"cifar-10-batches-bin/{name}": content for name, content in reversed(batches.items())
    }
    archive = tar_of(
        tmp_path / "c.tar.gz", {**members, "cifar-10-batches-bin/readme.html": b"about"}
    )
    for x, y in [read_cifar([one, two]), read_cifar_tar(archive, tuple(batches))]:
        assert x.shape == (3, 3, 32, 32)
        assert y.tolist() == [0, 1, 5]
        assert x[:, :, 31, 0].tolist() == [[10, 20, 30], [11, 21, 31], [15, 25, 35]]


def test_png_folders_are_classes_and_empty_files_are_passed_over(tmp_path: Path) -> None:
    members = {
        "small/B/x.png": png(3),
        "small/A/z.png": png(2),
        "small/A/empty.png": b"",
        "small/A/a.png": png(1),
    }
    x, y = read_png_tar(tar_of(tmp_path / "n.tar.gz", members))
    assert x.shape == (3, 1, 28, 28)
    assert x[:, 0, 0, 0].tolist() == [1, 2, 3]
    assert y.tolist() == [0, 0, 1]


GZIPPED = gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 9]) * 50, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "read"),
    [
        pytest.param("a.gz", b"not gzip at all", read_idx, id="not gzip"),
        pytest.param("a.gz", GZIPPED[:-12], read_idx, id="gzip cut short"),
        pytest.param(
            "a.gz",
            GZIPPED[:12] + b"\xff\xff\xff" + GZIPPED[15:],
            read_idx,
            id="gzip with flipped bytes",
        ),
        pytest.param("a.xz", b"not xz", read_csv, id="not xz"),
        pytest.param("a.xz", lzma.compress(b"1,2\n" * 99)[:-20], read_csv, id="xz cut short"),
        pytest.param("a", b"", read_idx, id="empty idx"),
        pytest.param("a", bytes([0, 0, 8, 0, 7]), read_idx, id="idx without axes"),
        pytest.param("a", bytes([0, 0, 8, 3, 0, 0]), read_idx, id="idx header cut short"),
        pytest.param(
            "a", bytes([0, 0, 8, 1, 0, 0, 0, 3, 5]), read_idx, id="idx with too few bytes"
        ),
        pytest.param("a", b"", read_csv, id="empty csv"),
        pytest.param("a", b"1,2\n3\n", read_csv, id="ragged csv"),
        pytest.param("a", b"1,2\n3,\n", read_csv, id="missing value"),
        pytest.param("a", b"1,2\n3,x\n", read_csv, id="not a number"),
        pytest.param("a", b"\xff\xfe\x00", read_csv, id="not text"),
        pytest.param("a", b"@attribute A numeric\n1\n", read_arff, id="arff without data"),
        pytest.param(
            "a",
            ARFF.replace(b"@attribute A NUMERIC\n", b""),
            read_arff,
            id="arff with a column too many",
        ),
        pytest.param("a", b"<html>", lambda p: read_workbook(p, sheet="S"), id="not a workbook"),
        pytest.param(
            "a", workbook([["x"], [1]]), lambda p: read_workbook(p, sheet="S"), id="no such sheet"
        ),
        pytest.param(
            "a",
            workbook([["x"], ["b"]], "S"),
            lambda p: read_workbook(p, sheet="S"),
            id="words in a sheet",
        ),
        pytest.param(
            "a",
            workbook([]),
            lambda p: read_workbook(p, sheet="S", member="b"),
            id="no such member",
        ),
        pytest.param("a", b"abc", lambda p: read_cifar([p]), id="half a record"),
        pytest.param("a.tar", b"not a tar", lambda p: read_cifar_tar(p, ("b",)), id="not a tar"),
        pytest.param("a.tar", b"not a tar", read_png_tar, id="not a tar of images"),
    ],
)
def test_a_bad_file_is_one_sentence_that_names_it(
    tmp_path: Path, name: str, content: bytes, read: Callable[[Path], object]
) -> None:
    path = written(tmp_path / name, content)
    with pytest.raises(HeadstartError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(f"Cannot read {path} (")
    assert message.endswith("): delete it and fetch it again.")
    assert "\n" not in message


def test_bad_members_of_a_tar(tmp_path: Path) -> None:
    with pytest.raises(HeadstartError, match=r"no test_batch.bin in it"):
        read_cifar_tar(
            tar_of(tmp_path / "c.tar.gz", {"data_batch_1.bin": cifar_batch(0)}), ("test_batch.bin",)
        )
    for members in [
        {"A/a.png": b"no image"},
        {"A/a.png": png(0)[:45]},
        {"A/a.png": png(0), "B/b.png": png(0, (9, 9))},
        {},
    ]:
        with pytest.raises(HeadstartError, match="Cannot read"):
            read_png_tar(tar_of(tmp_path / "n.tar.gz", members))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(HeadstartError, match="No such file"):
        read_csv(tmp_path / "absent.csv")


def test_eeg_spikes_are_the_four_known_rows(real_data: Path) -> None:
    path = next(path for path in sorted((real_data / "eeg").iterdir()) if ".arff" in path.name)
    table = read_arff(path)
    assert table.shape == (14980, 15)
    assert np.flatnonzero(has_spike(table[:, :-1])).tolist() == [898, 10386, 11509, 13179]
    # The gap is wide: the choice of 100 does not matter.
    for threshold in (20.0, 300.0):
        assert np.array_equal(
            has_spike(table[:, :-1], threshold=threshold), has_spike(table[:, :-1])
        )
    assert load("eeg", real_data).x.shape == (14976, 14)
