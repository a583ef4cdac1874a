"""Commands of experiments: demo, reproduce, compare, report, bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headstart.cli.options import (
    BackendOption,
    DataDirOption,
    DeviceOption,
    JobsOption,
    JsonOption,
    OutOption,
    PrecisionOption,
    SeedOption,
    ThreadsOption,
    TorchThreadsOption,
    listed,
)
from headstart.errors import HeadstartError
from headstart.experiments.provenance import PageAge, check_pages


def cli_demo(
    out: OutOption = Path("headstart-demo"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps for each initializer.")] = 600,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Race six initializers on a toy function: a live table, and one picture of the race."""
    import torch

    from headstart.experiments.demo import race_initializers, race_summary

    # Small nets gain nothing from more threads, and lose much where the machine is busy.
    torch.set_num_threads(1)
    console = Console(stderr=as_json)
    racers = race_initializers(out, total=steps, seed=seed, console=console)
    if as_json:
        typer.echo(json.dumps(race_summary(racers)))
    console.print(f"The picture: {out / 'demo.png'}")


def cli_reproduce(
    suite: Annotated[str, typer.Argument(help="A suite of the paper's experiments, or 'all'.")],
    budget: Annotated[
        str,
        typer.Option(
            help="quick (the tables in docs: minutes to an hour a suite on two cores), "
            "paper (100 epochs, five splits) or long (20 epochs with one sample)."
        ),
    ] = "quick",
    out: OutOption = Path("headstart-results"),
    jobs: JobsOption = None,
    backend: BackendOption = "processes",
    seed: SeedOption = 0,
    data_dir: DataDirOption = None,
    splits: Annotated[
        int | None, typer.Option(min=1, help="Splits, instead of the budget's.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps, instead of the budget's.")
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(help="Only this data set of the suite; may be repeated.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Only this network of the suite; may be repeated.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Only the line of this label, as in --label iblm; may be repeated."),
    ] = None,
    threads: ThreadsOption = 1,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "float32",
    as_json: JsonOption = False,
) -> None:
    """Run an experiment of the paper; interrupted, the same command goes on where it stopped."""
    from headstart.experiments.command import do_runs
    from headstart.experiments.plan import plan

    runs = plan(
        suite,
        budget,
        seed=seed,
        splits=splits,
        steps=steps,
        threads=threads,
        device=device,
        precision=precision,
        datasets=dataset or [],
        models=model or [],
        labels=label or [],
    )
    do_runs(runs, out, jobs=jobs, backend=backend, data_dir=data_dir, as_json=as_json)


def cli_compare(
    dataset: Annotated[str, typer.Option(help="A data set by name, or a csv file with --target.")],
    model: Annotated[
        str, typer.Option(help="A network by name, e.g. mlp-5x100 or lenet.")
    ] = "mlp-5x100",
    init: Annotated[
        str, typer.Option(help="Initializers, separated by commas.")
    ] = "orthogonal,lsuv,iblm",
    method: Annotated[
        str,
        typer.Option(
            help="svi, noisy-kfac or mc-dropout (which has its own start), separated by commas."
        ),
    ] = "svi",
    optimizer: Annotated[
        str,
        typer.Option(
            help="Of svi: averaged (the default of fit) or adam (the paper's), with commas."
        ),
    ] = "averaged",
    target: Annotated[str, typer.Option(help="The csv column to predict.")] = "",
    members: Annotated[
        str,
        typer.Option(help="Posteriors of the weights, as a mixture: numbers, separated by commas."),
    ] = "1",
    steps: Annotated[int, typer.Option(min=0, help="Training steps.")] = 1000,
    splits: Annotated[int, typer.Option(min=1, help="How many train/test splits.")] = 1,
    out: OutOption = Path("headstart-compare"),
    jobs: JobsOption = None,
    backend: BackendOption = "processes",
    seed: SeedOption = 0,
    data_dir: DataDirOption = None,
    threads: ThreadsOption = 1,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "float32",
    as_json: JsonOption = False,
) -> None:
    """Compare initializers on one data set, yours or a known one.

    A numeric target with more than 20 distinct values is a quantity, any other a class.
    """
    from headstart.experiments.command import do_runs
    from headstart.experiments.plan import comparison

    runs = comparison(
        dataset,
        model,
        listed(init),
        methods=listed(method),
        optimizers=listed(optimizer),
        target=target,
        steps=steps,
        splits=splits,
        seed=seed,
        threads=threads,
        device=device,
        precision=precision,
        members=_counts(members),
    )
    do_runs(runs, out, jobs=jobs, backend=backend, data_dir=data_dir, as_json=as_json)


def _counts(text: str) -> list[int]:
    """Numbers of members."""
    words = listed(text)
    if not words or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise HeadstartError(f"--members takes whole numbers from 1 on, as in 1,4; not {text!r}.")
    return [int(word) for word in words]


def cli_report(
    folder: Annotated[
        Path,
        typer.Argument(
            help="A folder that fit, reproduce or compare has filled, or one of pages with their "
            "rows, which are made anew; with --check, one of pages."
        ),
    ],
    markdown: Annotated[
        Path | None,
        typer.Option(
            help="A folder of Markdown pages: put the rows there too, compressed, and make its "
            "pages anew, one a suite."
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Write nothing: list the Markdown pages of the folder that today's code did not "
            "make, and end with exit code 1 if there are any.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write report.html, one self-contained page, of a fitted table or of experiments."""
    if not folder.is_dir():
        raise HeadstartError(f"There is no folder {folder}.")
    if check:
        _say_ages(check_pages(folder), as_json)
        return
    from headstart.experiments.published import read_published
    from headstart.experiments.report import rebuild_pages, write_report
    from headstart.experiments.store import Store
    from headstart.tabular.page import write_page
    from headstart.tabular.places import refuse_place
    from headstart.tabular.run import PAGE_FILE, TableRun, is_run

    refuse_place(folder, folder / PAGE_FILE)
    if markdown is not None:
        refuse_place(markdown, markdown)
    if is_run(folder):
        page = str(write_page(TableRun.load(folder), folder))
        typer.echo(json.dumps([page]) if as_json else page)
        return
    has_pages = not Store(folder).path.is_file() and read_published(folder)
    made = rebuild_pages(folder) if has_pages else write_report(folder, markdown)
    paths = [str(path) for path in made]
    typer.echo(json.dumps(paths) if as_json else "\n".join(paths))


def _say_ages(ages: list[PageAge], as_json: bool) -> None:
    """Print which pages are not today's; exit code 1 if there are any."""
    old = [age for age in ages if age.state != "current"]
    if as_json:
        found = [{"page": str(age.path), "state": age.state, "code": age.code} for age in ages]
        typer.echo(json.dumps(found))
    else:
        count = f"{len(ages) - len(old)} of {len(ages)} pages were made by today's code."
        typer.echo("\n".join([*(age.sentence for age in old), count]))
    if old:
        raise typer.Exit(1)


def cli_bench(
    case: Annotated[
        str,
        typer.Option(
            help="Nets, or tasks of --time-to-quality, separated by commas (default: "
            "mlp-5x100,mlp-1x100,lenet,vgg16, or friedman,digits)."
        ),
    ] = "",
    library: Annotated[
        str, typer.Option(help="Libraries, separated by commas (default: all that are installed).")
    ] = "",
    time_to_quality: Annotated[
        bool,
        typer.Option(
            "--time-to-quality",
            help="Time to a given test NLL instead, each library in a process of its own.",
        ),
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="How often each takes its turn (default: 7; 3 seeds to quality)."),
    ] = None,
    threads: TorchThreadsOption = 2,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Time a training step beside plain torch and other libraries, in turn, in one process."""
    import torch

    from headstart.bench import command, quality_command

    torch.manual_seed(seed)
    shown, names = Console(stderr=True).is_terminal, listed(library) or None
    if time_to_quality:
        rows = quality_command.time_to_quality(
            listed(case) or None, names, seeds=rounds or 3, threads=threads, progress=shown
        )
    else:
        cases = listed(case) or list(command.CASES)
        rows = command.run_benchmarks(
            cases, names, rounds=rounds or 7, threads=threads, progress=shown
        )
    if as_json:
        typer.echo(json.dumps(rows))
        return
    console = Console()
    wide = console if console.is_terminal else Console(width=command.TABLE_WIDTH)
    (quality_command.print_quality if time_to_quality else command.print_tables)(rows, wide)
