"""Loading, verifying and listing: built-in sets, real ones, and what is said of wrong files."""

from __future__ import annotations

import gzip
import lzma
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from headstart.data import NAMES, Dataset, catalogue, load, toy_function, verify
from headstart.data.paths import file_digest, read_bytes, variants
from headstart.data.readers import has_spike, read_arff
from headstart.data.registry import SPECS
from headstart.errors import HeadstartError

BUILT_IN = ("toy", "digits", "diabetes")
SMALL = tuple(name for name in NAMES if name != "cifar10")  # which takes seconds to decompress


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


def test_every_name_has_a_spec_in_order() -> None:
    assert (
        " ".join(NAMES)
        == "toy powerplant protein spam eeg credit mnist cifar10 notmnist digits diabetes"
    )
    assert all(len(spec.counts) == (len(spec.classes) or 1) for spec in SPECS.values())


def test_every_original_can_be_fetched_and_checked() -> None:
    for spec in SPECS.values():
        for file in spec.forms[0].files:
            assert file.urls
            # Without a digest the contents decide, and they can only if the file is the whole set.
            assert file.stored or file.content or (spec.values and len(spec.forms[0].files) == 1)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_sets_need_no_files(name: str, nowhere: Path) -> None:
    check_against_spec(load(name), sum(SPECS[name].counts))
    assert all(check.ok for check in verify(name))


def test_toy_is_the_function_with_its_noise() -> None:
    data = load("toy")
    residual = (data.y - toy_function(data.x)).double()
    assert data.x.abs().max() <= 10
    n, var = 512, math.exp(-4.0)
    assert abs(residual.mean().item()) < 4 * math.sqrt(var / n)
    assert abs(residual.square().mean().item() - var) < 4 * var * math.sqrt(2 / n)
    x = torch.tensor(math.pi, dtype=torch.float64)
    torch.testing.assert_close(toy_function(x).item(), 1 + math.sqrt(3) / 2 - math.sqrt(2) / 2)
    assert torch.equal(load("toy").x, data.x)


@pytest.mark.parametrize("name", [name for name in SMALL if name not in BUILT_IN])
def test_real_sets(name: str, real: Path) -> None:
    results = verify(name, real)
    assert all(check.ok for check in results), results
    rows = int(results[-1].detail.split()[0])
    check_against_spec(load(name, real), rows)


def test_real_values(real: Path) -> None:
    powerplant, protein, credit = (load(name, real) for name in ("powerplant", "protein", "credit"))
    assert powerplant.x[0].tolist() == pytest.approx([14.96, 41.76, 1024.07, 73.17])
    assert powerplant.y[0].item() == pytest.approx(463.26)
    assert protein.y[0].item() == pytest.approx(17.284)
    assert protein.x[0, :2].tolist() == pytest.approx([13558.3, 4305.35])
    assert credit.y[:3].tolist() == [0, 1, 0]
    letters = load("notmnist", real)
    assert ("subset of 10000" in letters.title) == (len(letters.x) == 10_000)


def test_cifar10(real: Path) -> None:
    data = load("cifar10", real)
    check_against_spec(data, 50_000)
    assert data.test is not None
    assert data.test[0].shape == (10_000, 3, 32, 32)
    assert data.test[1].bincount().tolist() == [1000] * 10
    assert [data.class_names[k] for k in data.y[:3]] == ["frog", "truck", "truck"]


def test_cifar10_digest_is_of_the_decompressed_batch(real: Path) -> None:
    expected = {file.name: file.content for file in SPECS["cifar10"].forms[1].files}
    path = next(
        real / "cifar10" / name
        for name in variants("test_batch.bin")
        if (real / "cifar10" / name).exists()
    )
    assert file_digest(path, "md5") == expected["test_batch.bin"]


def test_eeg_spikes_are_the_four_known_rows(real: Path) -> None:
    path = next(path for path in sorted((real / "eeg").iterdir()) if ".arff" in path.name)
    table = read_arff(path)
    assert table.shape == (14980, 15)
    assert np.flatnonzero(has_spike(table[:, :-1])).tolist() == [898, 10386, 11509, 13179]
    for threshold in (20.0, 300.0):  # the gap is wide: the choice of 100 does not matter
        assert np.array_equal(
            has_spike(table[:, :-1], threshold=threshold), has_spike(table[:, :-1])
        )
    assert load("eeg", real).x.shape == (14976, 14)


def test_plain_and_compressed_copies_load_alike(real: Path, nowhere: Path) -> None:
    (nowhere / "credit").mkdir()
    plain = read_bytes(next((real / "credit").glob("german.data-numeric*")))
    compressions: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        ".gz": gzip.compress,
        ".xz": lzma.compress,
    }
    for suffix, compress in compressions.items():
        path = nowhere / "credit" / f"german.data-numeric{suffix}"
        path.write_bytes(compress(plain))
        assert torch.equal(load("credit", nowhere).x, load("credit", real).x)
        assert [check.file for check in verify("credit", nowhere) if check.ok] == [
            str(path),
            "credit",
        ]
        path.unlink()


def test_folders_are_tried_in_order(
    real: Path, nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = {row.name: row.where for row in catalogue(nowhere)}
    assert where["credit"] == "not here: headstart data fetch credit"
    assert where["toy"] == "built in"
    monkeypatch.setenv("HEADSTART_DATA", str(real))
    assert {row.name: row.where for row in catalogue(nowhere)}["credit"] == str(real / "credit")
    shutil.copytree(real / "credit", nowhere / "credit")
    assert {row.name: row.where for row in catalogue(nowhere)}["credit"] == str(nowhere / "credit")


def test_the_catalogue_speaks_of_what_is_there(real: Path) -> None:
    rows = {row.name: row for row in catalogue(real)}
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


def test_missing_folder(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        HeadstartError, match=r"There is no folder .*absent \(the data folder given\)"
    ):
        load("spam", nowhere / "absent")
    monkeypatch.setenv("HEADSTART_DATA", str(nowhere / "absent"))
    with pytest.raises(HeadstartError, match="HEADSTART_DATA"):
        load("spam")
    load("toy")


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
