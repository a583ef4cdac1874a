"""Loading, verifying and listing: built-in sets, real ones, and what is said of wrong files."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from headstart.data import NAMES, Dataset, catalogue, load, verify
from headstart.data.paths import read_bytes
from headstart.data.registry import SPECS
from headstart.errors import HeadstartError

BUILT_IN = ("toy", "digits", "diabetes")


# CIFAR10 takes seconds to decompress.
SMALL = tuple(name for name in NAMES if name != "cifar10")


def check_against_spec(data: Dataset, rows: int) -> None:
    spec = SPECS[data.name]
    images = len(spec.shape) == 3
    assert data.x.shape == (rows, *spec.shape)
    assert data.x.dtype == (torch.uint8 if images else torch.float32)
    assert data.feature_names == spec.features
    assert len(data.feature_names) == (0 if images else spec.shape[0])
    assert (data.test is not None) == (spec.test_rows > 0)
    if data.task == "regression":
        assert (data.y.shape, data.y.dtype, data.num_classes) == ((rows, 1), torch.float32, None)
    else:
        assert (data.y.shape, data.y.dtype, data.num_classes) == (
            (rows,),
            torch.int64,
            len(spec.classes),
        )


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_sets_need_no_files(name: str, nowhere: Path) -> None:
    check_against_spec(load(name), sum(SPECS[name].counts))
    assert all(check.ok for check in verify(name))


@pytest.mark.parametrize("name", [name for name in SMALL if name not in BUILT_IN])
def test_real_sets(name: str, real_data: Path) -> None:
    results = verify(name, real_data)
    assert all(check.ok for check in results), results
    rows = int(results[-1].detail.split()[0])
    check_against_spec(load(name, real_data), rows)


def test_real_values(real_data: Path) -> None:
    powerplant, protein, credit = (
        load(name, real_data) for name in ("powerplant", "protein", "credit")
    )
    assert powerplant.x[0].tolist() == pytest.approx([14.96, 41.76, 1024.07, 73.17])
    assert powerplant.y[0].item() == pytest.approx(463.26)
    assert protein.y[0].item() == pytest.approx(17.284)
    assert protein.x[0, :2].tolist() == pytest.approx([13558.3, 4305.35])
    assert credit.y[:3].tolist() == [0, 1, 0]
    letters = load("notmnist", real_data)
    assert ("subset of 10000" in letters.title) == (len(letters.x) == 10_000)


def test_cifar10(real_data: Path) -> None:
    data = load("cifar10", real_data)
    check_against_spec(data, 50_000)
    assert data.test is not None
    assert data.test[0].shape == (10_000, 3, 32, 32)
    assert data.test[1].bincount().tolist() == [1000] * 10
    assert [data.class_names[k] for k in data.y[:3]] == ["frog", "truck", "truck"]


def test_plain_and_compressed_copies_load_alike(real_data: Path, nowhere: Path) -> None:
    (nowhere / "credit").mkdir()
    plain = read_bytes(next((real_data / "credit").glob("german.data-numeric*")))
    compressions: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        ".gz": gzip.compress,
        ".xz": lzma.compress,
    }
    for suffix, compress in compressions.items():
        path = nowhere / "credit" / f"german.data-numeric{suffix}"
        path.write_bytes(compress(plain))
        assert torch.equal(load("credit", nowhere).x, load("credit", real_data).x)
        assert [check.file for check in verify("credit", nowhere) if check.ok] == [
            str(path),
            "credit",
        ]
        path.unlink()


def test_the_catalogue_speaks_of_what_is_there(real_data: Path) -> None:
    rows = {row.name: row for row in catalogue(real_data)}
    assert tuple(rows) == NAMES
    assert (rows["eeg"].n, rows["eeg"].d, rows["eeg"].classes) == (14976, 14, 2)
    assert (rows["cifar10"].n, rows["cifar10"].d, rows["protein"].classes) == (50_000, 3072, None)
    assert "10.24432/C5002N" in rows["powerplant"].citation


def test_unknown_name() -> None:
    for call in (load, verify):
        with pytest.raises(
            HeadstartError, match="There is no data set 'minst'; did you mean 'mnist'"
        ):
            call("minst")


def test_missing_files_say_where_and_how(nowhere: Path) -> None:
    (nowhere / "mnist").mkdir()
    (nowhere / "mnist" / "train-images-idx3-ubyte").touch()
    with pytest.raises(HeadstartError) as caught:
        load("mnist", nowhere)
    assert str(nowhere / "mnist") in str(caught.value)
    assert "`headstart data fetch mnist`" in str(caught.value)
    assert "t10k-labels-idx1-ubyte.gz" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b"1 2 3\n", "1 × 2 values and 1 targets instead of 1000 × 24"),
        (b"1 " * 25 + b"\n", "instead of 1000 × 24"),
        ((b"1 " * 25 + b"\n") * 1000, "class counts 1000/0 instead of 700/300"),
        ((b"nan " * 24 + b"1\n") * 700 + (b"0 " * 24 + b"2\n") * 300, "missing or infinite values"),
        (b"<html>", "could not convert"),
    ],
)
def test_wrong_contents(nowhere: Path, content: bytes, detail: str) -> None:
    (nowhere / "credit").mkdir()
    path = nowhere / "credit" / "german.data-numeric"
    path.write_bytes(content)
    with pytest.raises(HeadstartError) as caught:
        load("credit", nowhere)
    assert str(caught.value).startswith(f"Cannot read {path} (")
    assert detail in str(caught.value)
    first, second = verify("credit", nowhere)
    assert not first.ok
    assert "instead of sha256:2752" in first.detail
    assert not second.ok
    assert detail in second.detail


def test_verify_reports_a_file_that_cannot_be_decompressed(nowhere: Path) -> None:
    (nowhere / "spam").mkdir()
    (nowhere / "spam" / "spambase.data.gz").write_bytes(b"nothing of the kind")
    results = verify("spam", nowhere)
    assert [check.ok for check in results] == [False, False]
    assert "Not a gzipped file" in results[0].detail


def test_the_license_has_its_old_name_for_a_while(nowhere: Path) -> None:
    row = next(row for row in catalogue(nowhere) if row.name == "digits")
    with pytest.warns(DeprecationWarning, match="licence is now license"):
        assert row.licence == row.license
    assert "license" in row._asdict()
    assert "licence" not in row._asdict()


def test_eeg_is_there_with_its_spikes_and_without(real_data: Path) -> None:
    kept, dropped = load("eeg-spikes", real_data), load("eeg", real_data)
    assert (len(kept.x), len(dropped.x)) == (14980, 14976)
    spikes = [898, 10386, 11509, 13179]
    stays = torch.ones(len(kept.x), dtype=torch.bool)
    stays[spikes] = False
    assert torch.equal(kept.x[stays], dropped.x)
    assert float(kept.x[spikes].max()) > 1e5
