"""The page of benchmarks/quality.py: a table and a picture for each task, and where we lose."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import matplotlib
from tables import span, table, write_page

from headstart.bench.learners import OURS, QUALITY_METHODS
from headstart.bench.quality_curve import STAY, stopped_early
from headstart.bench.quality_plan import TIMES_OURS, QualityFile
from headstart.bench.quality_rows import MAX_SCORED_ROWS, quality_task
from headstart.bench.quality_runs import TARGET_PATH, QualityRow
from headstart.bench.quality_summary import (
    QualitySummary,
    documented_ours,
    fastest,
    summarize_task,
)
from headstart.bench.variational_learners import DRAWS_SCORED

matplotlib.use("Agg")
# Text stays text, and the same rows give the same bytes.
matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "headstart"}
MADE_BY = "headstart.bench.quality_runs"
"""The module that stands for the code of the rows."""
SEEDS = 3
"""The seeds of the plan."""
FIRST_SHOWN = 0.05
"""Seconds at which pictures begin: before that nothing has learned."""
HEAD = ["library", "settings", "seconds", "CPU seconds", "times ours", "reached", "MB"]
HEAD += ["lowest NLL", "NLL at the end"]
PAGE = """# Time to quality

    python benchmarks/quality.py install
    HEADSTART_DATA=folder python benchmarks/quality.py run --clock {clock}
    python benchmarks/quality.py page --clock {clock} --out docs/results/quality.md

The time until test rows are predicted as well as a deep ensemble of five plain nets predicts
validation rows: the target is the lowest NLL that the ensemble had there when it no longer
improved, or when its time was over, and was written down before any run of headstart on test rows.

Every library stops early, ours and all others in the same way.
A tenth of the rows, the validation rows, is never trained on: the same rows for every library and
seed, which set the target and choose settings too.
Every evaluation scores validation and test rows; what a library has at a time is the test NLL of
the evaluation with the lowest validation NLL so far, as if its weights had been kept.
A run reaches the target with the first evaluation from which on what it has is at the target or
below.
It ends when that, and the lowest NLL of validation rows, have stayed at the target until
{stay:g} times the time to it, at its task's limit, or at {times:g} times headstart's time, and
counts as its limit where it missed the target ("> ").
Runs that went on for longer are judged up to there.

Evaluations take {draws} draws and do not count as time; images are scored on {rows} test rows.
Every run has a process of its own with one thread; imports do not count.
Seconds that bound runs and the column "times ours" are those of the {clock} clock.{busy}
The lowest NLL is that of test rows at any evaluation with seed 0, which nobody could have chosen;
the NLL at the end is what the library has then.

Each library has three settings, those of its documentation first.
The step sizes of headstart were chosen on validation rows of MNIST, CIFAR-10 and protein among
others, and its number of samples on those of four of these tasks; the settings of other libraries
were chosen by their authors, elsewhere.
All three run with seed 0, and validation rows choose one of them: the second line of a library, or
its only one, marked *.
Seeds 1 and 2 run with the documented and with the chosen settings where these reached the target
with seed 0; headstart always runs.
Where the documented settings fail, or finishing alone takes longer than a run may, no others run.
"Times ours" is the ratio to headstart at its defaults.
Trees, which only learn tables, are fitted from the start with twice as many trees each time, and
only the last fit counts.
Laplace's approximation is fitted to the net as it is at an evaluation; that time counts once.
EEG is split into a hundred blocks of time, every tenth for validation and, half-way between those,
every tenth for the test.
TabPFN is not among the rivals: its package comes without weights and downloads them.

{versions}
{codes}

{summary}

{lost}

{left_out}
"""


BUSY = """
The machine had other work: compare CPU seconds, not those of the wall."""


def ends_of(row: QualityRow | None) -> list[str]:
    """The lowest NLL of test rows in a run, and what early stopping has at its end."""
    if not row or "curve" not in row:
        return ["", ""]
    lowest = min(point["test"] for point in row["curve"])
    return [f"{lowest:.3f}", f"{stopped_early(row['curve'])[-1]['test']:.3f}"]


def line(
    each: QualitySummary, ours: QualitySummary | None, clock: str, ends: list[str]
) -> list[str]:
    """A line of a task's table."""
    name = [each.library, each.settings + (" *" if each.tuned else "")]
    if each.failed:
        return [*name, f"failed: {each.failed[:60].replace('|', '/')}", "", "", "", "", "", ""]
    sign = "" if each.reaches else "> "
    cells = [
        f"{sign}{statistics.median(part):.3g} ({span(list(part))})"
        for part in (each.wall, each.cpu)
    ]
    ratio = f"{sign}{_ratio(each, ours, clock)}" if ours else ""
    hits = f"{each.hits} of {len(each.wall)}"
    return [*name, *cells, ratio, hits, f"{each.memory / 1e6:.0f}", *ends]


def _ratio(each: QualitySummary, ours: QualitySummary, clock: str) -> str:
    """Times ours; marked where the two were not run in the same session of a machine."""
    apart = "" if each.sessions == ours.sessions else "~"
    return f"{apart}{each.seconds(clock) / ours.seconds(clock):.1f}"


def verdict(task: str, found: list[QualitySummary], clock: str) -> list[str]:
    """A line of the table of all tasks: ours, the first variational rival, who is ahead of us."""
    ours, best = documented_ours(found), fastest(found, clock)
    if ours is None:
        return [task, "not run", "", "", ""]
    rivals = [each for name, each in best.items() if name != OURS and not each.failed]
    variational = [r for r in rivals if QUALITY_METHODS[r.library].kind == "variational"]
    ahead = [
        r
        for r in rivals
        if r.reaches and (not ours.reaches or r.seconds(clock) < ours.seconds(clock))
    ]
    mine = f"{'' if ours.reaches else '> '}{ours.seconds(clock):.3g}"
    first = min(variational, key=lambda r: (not r.reaches, r.seconds(clock)), default=None)
    rival, ratio = "-", "-"
    if first is not None:
        sign = "" if first.reaches else "> "
        rival = f"{first.library}, {sign}{first.seconds(clock):.3g}"
        ratio = f"{sign}{_ratio(first, ours, clock)}" if ours.reaches else "-"
    nobody = "none of those run" if rivals else "no other was run"
    words = ", ".join(f"{r.library} ({r.seconds(clock):.3g})" for r in ahead) or nobody
    return [task, mine, rival, ratio, words]


def picture(file: QualityFile, task: str, target: float, path: Path) -> None:
    """Test NLL, stopped early, over seconds with seed 0, at the settings that were chosen."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.5))
    lowest, start = target, []
    for index, library in enumerate(QUALITY_METHODS):
        choice = file.chosen(task, library, target)
        row = None if choice is None else file.get(task, library, choice, 0)
        if row is None or "curve" not in row:
            continue
        stopped = stopped_early(row["curve"])
        points = [p for p in stopped if p[file.clock] > 0 and math.isfinite(p["test"])]
        x, y = ([point[key] for point in points] for key in (file.clock, "test"))
        lowest, start = min([lowest, *y]), [*start, *y[:1]]
        style = {"color": "black", "linewidth": 2.5} if library == OURS else {}
        dash = "-" if index < 10 else "--"
        # Between two evaluations a library has what the first of them found.
        shown = {"linewidth": 1, "drawstyle": "steps-post", "label": library, **style}
        axes.plot(x, y, dash, **shown)
    axes.axhline(target, color="gray", linestyle=":", label="target")
    top = sorted(start)[len(start) // 2] if start else target + 1
    room = 0.05 * max(1e-3, top - lowest)
    axes.set(xscale="log", ylim=(lowest - room, max(top, target) + 4 * room))
    if 0 < 3 * lowest < top:
        # What matters happens near the target, far below where most begin.
        axes.set(yscale="log", ylim=(0.9 * lowest, 1.2 * max(top, target)))
    axes.set_xlim(left=FIRST_SHOWN)
    axes.set(xlabel=f"seconds ({file.clock})", ylabel="NLL of test rows, stopped early", title=task)
    axes.legend(fontsize=7, ncol=2)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def versions_of(file: QualityFile) -> str:
    """The versions of the libraries that made the rows, and in how many sessions."""
    found = sorted({row["version"] for row in file.rows.values() if "version" in row})
    sessions = {row["session"] for row in file.rows.values()}
    said = f"Versions: {', '.join(found)}.\n"
    if len(sessions) == 1:
        return said + "All rows were made in one session of one machine."
    return said + (
        f"The rows were made in {len(sessions)} sessions of a machine, which need not be equally "
        "fast: ~ marks ratios of times from different ones."
    )


def codes_of(file: QualityFile) -> str:
    """Which code made the rows: that of headstart's is one, that of the others may be several."""
    others: dict[str, list[str]] = {}
    for (task, library, _, _), row in file.rows.items():
        if library != OURS and task not in others.setdefault(row["code"], []):
            others[row["code"]].append(task)
    words = "; ".join(f"{code} ({', '.join(tasks)})" for code, tasks in others.items())
    return (
        "Rows of headstart are of the code at the top of this page, and of no other.\n"
        "Rows of other libraries, whose code is that of their versions, were made with these codes "
        f"of headstart: {words or 'none'}."
    )


def task_section(file: QualityFile, task: str, target: float, out: Path) -> str:
    """The heading, the picture and the table of a task."""
    found = list(summarize_task(file, task, target))
    image = out.with_name(f"{out.stem}-{task.replace('/', '-')}.svg")
    picture(file, task, target, image)
    ours = documented_ours(found)
    most = max(row["limit"] for key, row in file.rows.items() if key[0] == task)
    lines = [
        line(each, ours, file.clock, ends_of(file.get(task, each.library, each.choice, 0)))
        for each in found
    ]
    net = quality_task(task).net
    words = f"Net {net}, target NLL {target:.4f}, at most {most:g} s a run."
    return f"## {task}\n\n{words}\n\n![{task}]({image.name})\n\n{table(HEAD, lines, 2)}"


def left_out(file: QualityFile, tasks: list[str]) -> str:
    """What the plan above has and the rows do not: tasks, seeds, settings and libraries."""
    lines = ["What was not run, for want of time; * says nothing where one setting was run:", ""]
    for task in tasks:
        made = [key for key in file.rows if key[0] == task]
        if not made:
            lines.append(f"- {task}: all of it.")
            continue
        ran, words = {key[1] for key in made}, []
        trees = not quality_task(task).net.startswith(("lenet", "mlp-5x100"))
        missing = [
            name
            for name, method in QUALITY_METHODS.items()
            if name not in ran and (trees or method.kind != "trees")
        ]
        if missing:
            words.append(", ".join(missing))
        if all(key[2] == 0 for key in made):
            words.append("settings beside those of the documentation")
        seeds = 1 + max(key[3] for key in made)
        if seeds < SEEDS:
            words.append("seeds beside the first" if seeds == 1 else f"seeds from {seeds} on")
        if words:
            lines.append(f"- {task}: {'; '.join(words)}.")
    return "\n".join(lines) if len(lines) > 2 else ""


def lost(file: QualityFile, targets: dict[str, float]) -> str:
    """Where headstart missed the target."""
    missed = [
        task
        for task, target in targets.items()
        if (ours := documented_ours(list(summarize_task(file, task, target)))) and not ours.reaches
    ]
    return f"headstart missed the target of {' and of '.join(missed)}." if missed else ""


def write_quality_page(out: Path, file: QualityFile, tasks: list[str]) -> None:
    """The page of these tasks, as far as they were run."""
    known = json.loads(TARGET_PATH.read_text())
    run = [task for task in tasks if any(key[0] == task for key in file.rows)]
    targets = {task: float(known[task]["nll"]) for task in run}
    head = ["task", "headstart", "first variational rival", "times ours", "ahead of headstart"]
    lines = [
        verdict(task, list(summarize_task(file, task, target)), file.clock)
        for task, target in targets.items()
    ]
    text = PAGE.format(
        clock=file.clock,
        stay=STAY,
        times=TIMES_OURS,
        draws=DRAWS_SCORED,
        rows=MAX_SCORED_ROWS,
        versions=versions_of(file),
        codes=codes_of(file),
        summary=table(head, lines),
        busy=BUSY if file.clock == "cpu" else "",
        lost=lost(file, targets),
        left_out=left_out(file, tasks),
    )
    parts = [task_section(file, task, target, out) for task, target in targets.items()]
    write_page(out, text + "\n" + "\n\n".join(parts) + "\n", MADE_BY)
