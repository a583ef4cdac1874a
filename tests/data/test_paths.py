"""Where data sets are sought, and digests of what is found there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headstart.data import catalogue, load
from headstart.data.paths import file_digest, variants
from headstart.data.registry import SPECS
from headstart.errors import HeadstartError


def test_cifar10_digest_is_of_the_decompressed_batch(real_data: Path) -> None:
    expected = {file.name: file.content for file in SPECS["cifar10"].forms[1].files}
    path = next(
        real_data / "cifar10" / name
        for name in variants("test_batch.bin")
        if (real_data / "cifar10" / name).exists()
    )
    assert file_digest(path, "md5") == expected["test_batch.bin"]


def test_folders_are_tried_in_order(
    real_data: Path, nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = {row.name: row.where for row in catalogue(nowhere)}
    assert where["credit"] == "not here: headstart data fetch credit"
    assert where["toy"] == "built in"
    monkeypatch.setenv("HEADSTART_DATA", str(real_data))
    assert {row.name: row.where for row in catalogue(nowhere)}["credit"] == str(
        real_data / "credit"
    )
    shutil.copytree(real_data / "credit", nowhere / "credit")
    assert {row.name: row.where for row in catalogue(nowhere)}["credit"] == str(nowhere / "credit")


def test_missing_folder(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        HeadstartError, match=r"There is no folder .*absent \(the data folder given\)"
    ):
        load("spam", nowhere / "absent")
    monkeypatch.setenv("HEADSTART_DATA", str(nowhere / "absent"))
    with pytest.raises(HeadstartError, match="HEADSTART_DATA"):
        load("spam")
    load("toy")
