"""Time to quality: seconds until test rows are predicted as well as by a deterministic ensemble.

    python benchmarks/quality.py install
    python benchmarks/quality.py target --task energy
    python benchmarks/quality.py run --task energy
    python benchmarks/quality.py page --out docs/results/quality.md

A target is the NLL that a deep ensemble of five has on validation rows when it no longer improves;
it stands in benchmarks/quality_targets.json before any other run. A run counts from the first
evaluation on test rows after which all are at the target or below; evaluations do not count as
time. Other libraries stop at ten times headstart's time, and count as that where they miss it.
Every run has a process of its own and every library a folder of its own, below out/quality. Rows
that are there are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from quality_methods import METHODS
from quality_tasks import TASKS, nll, read
from tables import table, write_page

HERE, OUT = Path(__file__).resolve().parent, Path("out/quality")
TARGETS = HERE / "quality_targets.json"
SEEDS, LIMIT, GROWTH = (0, 1, 2), 10.0, 1.2
"""Runs; others' time over ours at the most; the time between evaluations grows by that factor."""
FIRST_EVALUATION, PATIENCE = 0.2, 12
TARGET_SECONDS = 600.0
Curve = list[dict[str, float]]


def trained(task: str, library: str, seed: int, rate: float, seconds: float, rows: str) -> Curve:
    """Scores on these rows as training goes on."""
    torch.manual_seed(seed)
    parts = read(TASKS[task])
    begun, cpu = time.perf_counter(), time.process_time()
    paused = paused_cpu = 0.0
    trainer = METHODS[library].make(TASKS[task], parts, rate)
    batches, due, found = parts.batches(), 0.0, []
    while True:
        spent = time.perf_counter() - begun - paused
        if spent >= due:
            before, before_cpu = time.perf_counter(), time.process_time()
            score = nll(trainer.score(getattr(parts, rows)))
            used = before_cpu - cpu - paused_cpu
            found.append({"seconds": spent, "cpu": used, "nll": score})
            paused += time.perf_counter() - before
            paused_cpu += time.process_time() - before_cpu
            due = max(spent * GROWTH, spent + FIRST_EVALUATION)
        if spent > seconds:
            return found
        trainer.step(next(batches))


def reached(curve: Curve, target: float) -> dict[str, float] | None:
    """The first evaluation from which on all are at the target or below."""
    found = None
    for point in reversed(curve):
        if not point["nll"] <= target:
            break
        found = point
    return found


def target_of(curve: Curve) -> float:
    """The lowest score before `PATIENCE` evaluations without a better one."""
    best, since = float("inf"), 0
    for point in curve:
        since = 0 if point["nll"] < best else since + 1
        best = min(best, point["nll"])
        if since == PATIENCE:
            break
    return best


def alone(library: str, threads: int, **job: Any) -> dict[str, Any]:
    """A run in a process of its own."""
    package = METHODS[library].package
    folders = [str(HERE), *([str((OUT / "libs" / package).resolve())] if package else [])]
    path = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
    given = {"PYTHONPATH": path, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    words = [sys.executable, __file__, "one", json.dumps({"library": library, **job})]
    done = subprocess.run(words, env={**os.environ, **given}, capture_output=True, text=True)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def one(job: dict[str, Any]) -> None:
    """What the process of a run does: print its curve and its memory."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    curve = trained(**job)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"curve": curve, "memory": memory}))


def install() -> None:
    """Every library into a folder of its own, without dependencies: torch is that of this one."""
    for method in METHODS.values():
        if method.package and not (OUT / "libs" / method.package).exists():
            words = ["--no-deps", "--target", str(OUT / "libs" / method.package), method.package]
            subprocess.run([sys.executable, "-m", "pip", "install", "-q", *words], check=True)


def set_target(task: str, threads: int, seconds: float) -> None:
    """Write the target of a task, unless it is there."""
    known = json.loads(TARGETS.read_text()) if TARGETS.exists() else {}
    if task in known:
        raise SystemExit(f"{TARGETS.name} has the target of {task}: {known[task]['nll']:.4f}.")
    job = {"task": task, "seed": 1000, "rate": 1e-3, "seconds": seconds, "rows": "valid"}
    found = alone("deep ensemble", threads, **job)
    if "failed" in found:
        raise SystemExit(f"The ensemble failed: {found['failed']}")
    known[task] = {"nll": round(target_of(found["curve"]), 4), "seconds": seconds}
    TARGETS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def stored(task: str) -> Path:
    return OUT / f"{task.replace('/', '-')}.jsonl"


def lines_of(task: str) -> list[dict[str, Any]]:
    """The runs of a task so far."""
    path = stored(task)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def jobs(task: str, libraries: list[str]) -> Iterator[tuple[str, int, float]]:
    """Runs in turn: headstart first, whose time bounds the others'."""
    for seed in SEEDS:
        for library in sorted(libraries, key=lambda name: name != "headstart"):
            for rate in METHODS[library].rates:
                yield library, seed, rate


def run(task: str, libraries: list[str], threads: int, seconds: float | None) -> None:
    """All runs of a task that are not stored."""
    if task not in (json.loads(TARGETS.read_text()) if TARGETS.exists() else {}):
        raise SystemExit(f"First: python benchmarks/quality.py target --task {task}")
    target = json.loads(TARGETS.read_text())[task]["nll"]
    OUT.mkdir(parents=True, exist_ok=True)
    for library, seed, rate in jobs(task, libraries):
        known = {(line["library"], line["seed"], line["rate"]): line for line in lines_of(task)}
        if (library, seed, rate) in known:
            continue
        limit = seconds or TASKS[task].seconds
        ours = known.get(("headstart", seed, 0.0))
        if library != "headstart" and ours and ours["reached"]:
            limit = LIMIT * ours["reached"]["seconds"]
        job = {"task": task, "seed": seed, "rate": rate, "seconds": limit, "rows": "test"}
        found = alone(library, threads, **job)
        found["reached"] = reached(found.get("curve", []), target)
        line = {"library": library, "seed": seed, "rate": rate, "limit": limit, **found}
        with stored(task).open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(task, library, seed, rate, found["reached"] or found.get("failed", "missed"))


def page(out: Path) -> None:
    """The page of all tasks that were run."""
    targets = json.loads(TARGETS.read_text())
    text = ["# Time to quality", "", (__doc__ or "").split("\n\n", 2)[2]]
    for task in targets:
        lines = [
            row
            for library, method in METHODS.items()
            for rate in method.rates
            if (row := line_of(lines_of(task), library, rate))
        ]
        head = ["library", "rate", "seconds to target", "CPU seconds", "reached", "MB"]
        text += [f"\n## {task}\n", f"Target NLL {targets[task]['nll']}.\n", table(head, lines, 2)]
    write_page(out, "\n".join(text) + "\n")


def line_of(lines: list[dict[str, Any]], library: str, rate: float) -> list[str] | None:
    """Medians of a library at a rate, over seeds."""
    mine = [line for line in lines if line["library"] == library and line["rate"] == rate]
    if not mine:
        return None
    name = [library, f"{rate:g}" if rate else "own"]
    if any("failed" in line for line in mine):
        return [*name, "failed", "", f"0/{len(mine)}", ""]
    hit = [line["reached"] for line in mine]
    wall, cpu = (
        [point[key] if point else line["limit"] for point, line in zip(hit, mine, strict=True)]
        for key in ("seconds", "cpu")
    )
    memory = statistics.median(line["memory"] for line in mine) / 2**20
    cells = [
        f"{statistics.median(part):.3g} ({min(part):.3g}–{max(part):.3g})" for part in (wall, cpu)
    ]
    return [*name, *cells, f"{sum(map(bool, hit))}/{len(mine)}", f"{memory:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["install", "target", "run", "page", "one"])
    parser.add_argument("job", nargs="?", help="of `one`: JSON")
    parser.add_argument("--task", choices=sorted(TASKS))
    parser.add_argument("--libraries", nargs="+", choices=sorted(METHODS), default=list(METHODS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="bounds a run (default: the task's own)")
    parser.add_argument("--out", type=Path, default=OUT / "quality.md")
    given = parser.parse_args()
    if given.command in ("target", "run") and not given.task:
        parser.error(f"{given.command} needs --task")
    if given.command == "install":
        install()
    elif given.command == "target":
        set_target(given.task, given.threads, given.seconds or TARGET_SECONDS)
    elif given.command == "run":
        run(given.task, given.libraries, given.threads, given.seconds)
    elif given.command == "page":
        page(given.out)
    else:
        one(json.loads(given.job))


if __name__ == "__main__":
    main()
