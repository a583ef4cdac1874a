"""The wheel builds, installs by itself, and carries its types and its data."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(*arguments: str, **options: object) -> str:
    result = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=300, check=False, **options
    )  # type: ignore[call-overload]
    assert result.returncode == 0, result.stderr
    return str(result.stdout)


def test_the_wheel_is_whole(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    run("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(source))
    (wheel,) = tmp_path.glob("headstart-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"headstart/py.typed", "headstart/experiments/paper.json", "headstart/posteriors/mean_field.py"} <= names
    assert not any(name.startswith("tests/") for name in names)
    site = tmp_path / "site"
    run("-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel))
    where = run(
        "-c", "import headstart; print(headstart.__file__)", env={"PYTHONPATH": str(site), "PATH": ""}, cwd=tmp_path
    )
    assert Path(where.strip()).is_relative_to(site)
