"""What the pages of the benchmarks share."""

from __future__ import annotations

import json
import lzma
import re
import resource
import statistics
from pathlib import Path
from typing import Any

from headstart.experiments.code import RUN_MODULE, code_hash
from headstart.experiments.provenance import page_stamp

TRAINING = "headstart.training.fit"
"""The module that stands for the code of pages about training."""


def table(head: list[str], lines: list[list[str]], left: int = 1) -> str:
    """A Markdown table whose first columns, `left` of them, hold words."""
    rule = ["---"] * left + ["--:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *lines])


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a file, a line each, compressed or not; none where there is no file."""
    if not path.exists():
        return []
    text = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    return [json.loads(line) for line in text.decode().splitlines()]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows to a compressed file, a line each, as `read_rows` reads them."""
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def write_page(path: Path, text: str, entry: str = RUN_MODULE, code: str = "") -> None:
    """Write a page that names its code below its title: the modules that `entry` imports.

    Args:
        path: The page.
        text: What it says, its title first.
        entry: The module that the hash of the code begins with.
        code: The hash in the rows of the page; empty: that of today's code.
    """
    title, _, rest = text.partition("\n")
    stamp = page_stamp(code or code_hash(entry), entry=entry)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{title}\n\n{stamp}\n{rest}", encoding="utf-8")


def spread(values: list[float]) -> str:
    """Median and range."""
    return f"{statistics.median(values):.3g} ({span(values)})"


def span(values: list[float]) -> str:
    return f"{min(values):.3g}–{max(values):.3g}"


def peak() -> float:
    """Peak memory of this process in GB; a child's `ru_maxrss` would begin with its parent's."""
    status = Path("/proc/self/status")
    if status.is_file() and (found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(found[1]) * 1024 / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
