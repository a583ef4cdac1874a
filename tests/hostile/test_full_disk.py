"""A disk that fills up: a sentence, and what was there before is as it was."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import headstart as hs
from tests import processes
from tests.hostile.conftest import command, tree


def train(folder: Path, most: int, said: Path) -> None:
    """What a process does that may write `most` bytes: its parameters, or why it stopped."""
    if most:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    torch.manual_seed(0)
    x = torch.randn(50, 3)
    model = hs.bayesianize(hs.models.create("mlp-1x200", 3, 1))
    options = {"steps": 8, "every": 2, "resume": True, "progress": False, "seed": 0}
    try:
        hs.fit(model, hs.Gaussian(), (x, x.sum(1)), checkpoint=folder, **options)
    except hs.HeadstartError as error:
        said.write_text(str(error))
        raise SystemExit(1) from error
    said.write_text(str(float(sum(p.sum() for p in model.parameters()))))


def fit(folder: Path, said: Path, most: int = 0) -> tuple[int, str]:
    """The exit code of a process that fits, and what it said."""
    code = processes.finish(processes.start(train, folder, most, said))
    return code, said.read_text()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for 256 kB; not everybody may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no right to mount a file system")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path, but: int) -> Path:
    """Leave so many bytes free."""
    ballast = disk / "ballast"
    free = (
        int(subprocess.check_output(["stat", "-f", "-c", "%a %S", str(disk)], text=True).split()[0])
        * 4096
    )
    ballast.write_bytes(b"x" * max(0, free - but))
    return ballast


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """A limit on the size of files, as quotas have it: no checkpoint, and a sentence about it."""
    code, said = fit(tmp_path / "c", tmp_path / "said", most=2000)
    assert code != 0
    assert "could not be written" in said
    assert list((tmp_path / "c").iterdir()) == []


def test_checkpoints_on_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """Two checkpoints fit, a third does not: the good ones stay, and with room the fit goes on."""
    code, whole = fit(small_disk / "whole", tmp_path / "said")
    assert code == 0, whole
    shutil.rmtree(small_disk / "whole")
    ballast = fill(small_disk, but=60_000)
    code, said = fit(small_disk / "c", tmp_path / "said")
    assert code != 0
    assert "could not be written" in said
    assert "No space left" in said
    kept = [path.name for path in (small_disk / "c").iterdir()]
    assert kept
    assert all(name.startswith("step-") for name in kept)
    ballast.unlink()
    assert fit(small_disk / "c", tmp_path / "said") == (0, whole)


def test_commands_on_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """`fit`, `predict`, `compare`: a sentence each, old results untouched, nothing half written."""
    table = tmp_path / "table.csv"
    table.write_text(
        "a,b,y\n" + "".join(f"{i % 7},{'xyz'[i % 3]},{i % 5 + 0.5}\n" for i in range(80))
    )
    run = tmp_path / "run"
    regression = ("--target", "y", "--task", "regression", "--steps", "3")
    assert command("fit", str(table), *regression, "--out", str(run))[0] == 0
    old = small_disk / "predictions.csv"
    old.write_text("results of old\n")
    fill(small_disk, but=0)
    before = tree(small_disk)
    compare = (
        "compare",
        "--dataset",
        "toy",
        "--model",
        "mlp-1x5",
        "--init",
        "xavier",
        "--steps",
        "2",
        "--jobs",
        "1",
    )
    for words in (
        ("fit", str(table), *regression, "--out", str(small_disk / "run")),
        ("predict", str(run), str(table), "--out", str(old)),
        (*compare, "--out", str(small_disk / "rows")),
    ):
        code, said = command(*words)
        assert code == 2, (words, said)
        assert said.splitlines()[-1].startswith("headstart: "), said
        assert "o space left" in said, said
    after = {
        name: digest
        for name, digest in tree(small_disk).items()
        if Path(small_disk / name).stat().st_size
    }
    assert after == before


def test_a_model_is_saved_whole_or_not_at_all(small_disk: Path) -> None:
    small = hs.bayesianize(hs.models.create("mlp-1x5", 3, 1))
    hs.save(small_disk / "model", small, hs.Gaussian())
    before = tree(small_disk)
    with pytest.raises(hs.HeadstartError, match=r"could not be written.*as it was"):
        hs.save(
            small_disk / "model", hs.bayesianize(hs.models.create("mlp-2x500", 3, 1)), hs.Gaussian()
        )
    assert tree(small_disk) == before
    again, _ = hs.load(small_disk / "model")
    assert torch.equal(again[1].posterior.mean, small[1].posterior.mean)
