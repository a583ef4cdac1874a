"""Whether memory stays flat over a long training, and over predictions for a long table.

    python benchmarks/memory.py --steps 10000 --rows 1000000 --out docs/results/memory.md

Each runs in a process of its own; what it holds is read from outside, again and again, while it
works.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from tables import TRAINING, table, write_page

TRAIN = """
import sys, torch, headstart as hs
torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(2000, 8)
model, lik = hs.bayesianize(hs.models.create("mlp-2x50", 8, 1)), hs.Gaussian()
hs.initialize_(model, "iblm", lik, (x, x.sin().sum(1)), seed=0)
y = x.sin().sum(1)
hs.fit(model, lik, (x, y), validation=(x[:200], y[:200]), steps=int(sys.argv[1]), samples=4,
       checkpoint=sys.argv[2], progress=False, seed=0)
"""


def memory_over_time(words: list[str]) -> tuple[list[float], float]:
    """The megabytes that a process held, ten times a second, and its seconds."""
    start, held = time.perf_counter(), []
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        if found := re.search(r"VmRSS:\s+(\d+) kB", status.read_text()):
            held.append(int(found[1]) / 1024)
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(process.stderr.read() if process.stderr else "a process failed")
    return held, time.perf_counter() - start


def write_table(path: Path, rows: int) -> None:
    """A quantity that depends on three numbers and a word."""
    rng = np.random.default_rng(0)
    with path.open("w") as stream:
        stream.write("a,b,c,kind,y\n")
        for start in range(0, rows, 50_000):
            x = rng.normal(size=(min(50_000, rows - start), 3))
            kind = rng.integers(3, size=len(x))
            y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + kind + 0.1 * rng.normal(size=len(x))
            stream.writelines(
                f"{a:.5g},{b:.5g},{c:.5g},{'xyz'[k]},{v:.5g}\n"
                for (a, b, c), k, v in zip(x, kind, y, strict=True)
            )


def line(name: str, held: list[float], seconds: float) -> list[str]:
    """The second and the last fifth: all has been loaded by then, and nothing has ended."""
    fifth = max(1, len(held) // 5)
    early, late = (
        statistics.median(held[fifth : 2 * fifth]),
        statistics.median(held[-fifth:-1] or held[-1:]),
    )
    return [
        name,
        f"{early:.0f}",
        f"{late:.0f}",
        f"{late / early:.3f}",
        f"{max(held):.0f}",
        f"{seconds:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    command = [sys.executable, "-m", "headstart.cli"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trained = memory_over_time(
            [sys.executable, "-c", TRAIN, str(args.steps), str(folder / "checkpoints")]
        )
        write_table(folder / "train.csv", 3000)
        write_table(folder / "new.csv", args.rows)
        fit = [
            *command,
            "fit",
            str(folder / "train.csv"),
            "--target",
            "y",
            "--out",
            str(folder / "run"),
            "--steps",
            "500",
        ]
        subprocess.run(fit, check=True, capture_output=True)
        predict = [
            *command,
            "predict",
            str(folder / "run"),
            str(folder / "new.csv"),
            "--out",
            str(folder / "p.csv"),
        ]
        predicted = memory_over_time([*predict, "--threads", "1"])
        with (folder / "p.csv").open() as stream:
            lines = sum(1 for _ in stream) - 1
        assert lines == args.rows
    head = ["what", "MB, second fifth", "MB, last fifth", "ratio", "MB at most", "seconds"]
    page = "\n".join(
        [
            "# Memory over time",
            "",
            "What a process holds while it works, read ten times a second: "
            "the medians over the second and the last fifth of its time.",
            "",
            f"    python benchmarks/memory.py --steps {args.steps} --rows {args.rows} "
            "--out docs/results/memory.md",
            "",
            table(
                head,
                [
                    line(
                        f"`fit`, {args.steps} steps, validation and checkpoints every 100", *trained
                    ),
                    line(f"`headstart predict`, {args.rows} rows, 128 samples each", *predicted),
                ],
            ),
            "",
        ]
    )
    print(page)
    if args.out:
        write_page(args.out, page, TRAINING)


if __name__ == "__main__":
    main()
