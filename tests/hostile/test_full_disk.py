"""A disk that fills up: a sentence, and what was there before is as it was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import headstart as hs
from tests.hostile.conftest import command, tree

FIT = """
import resource, sys, torch, headstart as hs
if int(sys.argv[2]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
torch.manual_seed(0)
x = torch.randn(50, 3)
model = hs.bayesianize(hs.models.create("mlp-1x200", 3, 1))
data = x, x.sum(1)
options = dict(steps=8, every=2, progress=False, seed=0)
hs.fit(model, hs.Gaussian(), data, checkpoint=sys.argv[1], resume=True, **options)
print(float(sum(p.sum() for p in model.parameters())))
"""


def fit(folder: Path, max_bytes: int = 0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", FIT, str(folder), str(max_bytes)],
        capture_output=True,
        text=True,
        timeout=300,
    )


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
    ended = fit(tmp_path / "c", max_bytes=2000)
    assert ended.returncode != 0
    assert "could not be written" in ended.stderr.splitlines()[-1]
    assert list((tmp_path / "c").iterdir()) == []


def test_checkpoints_on_a_full_disk(small_disk: Path) -> None:
    """Two checkpoints fit, a third does not: the good ones stay, and with room the fit goes on."""
    whole = fit(small_disk / "whole")
    assert whole.returncode == 0, whole.stderr
    subprocess.run(["rm", "-r", str(small_disk / "whole")], check=True)
    ballast = fill(small_disk, but=60_000)
    ended = fit(small_disk / "c")
    assert ended.returncode != 0
    assert "could not be written" in ended.stderr.splitlines()[-1]
    assert "No space left" in ended.stderr
    kept = [path.name for path in (small_disk / "c").iterdir()]
    assert kept
    assert all(name.startswith("step-") for name in kept)
    ballast.unlink()
    again = fit(small_disk / "c")
    assert again.returncode == 0, again.stderr
    assert again.stdout == whole.stdout


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
