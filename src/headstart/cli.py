"""The command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from headstart.errors import HeadstartError, printable
from headstart.kernels.allocator import keep_freed

app = typer.Typer(
    help="Deep networks that know what they do not know.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
data_app = typer.Typer(help="List, fetch and verify data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")

Seed = Annotated[int, typer.Option(help="The random seed; the same seed gives the same numbers.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON on standard output, for machines.")
]
Out = Annotated[Path, typer.Option(help="The folder to write to.")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Where the data sets are (default: HEADSTART_DATA, then the user cache)."),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Runs side by side (default: as many as there are cores).")
]
Backend = Annotated[
    str,
    typer.Option(
        help="Where: processes of this machine, or ray (the cluster that RAY_ADDRESS names, or a local one)."
    ),
]
Threads = Annotated[
    int, typer.Option(min=1, help="Threads of each run; part of what makes its numbers identical.")
]

Device = Annotated[str, typer.Option(help="Where each run computes: cpu, cuda, cuda:1.")]
Precision = Annotated[
    str, typer.Option(help="float32, or bfloat16: the net trains in mixed precision.")
]


def listed(names: str) -> list[str]:
    """Names separated by commas, each once."""
    return list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))


def show_version(wanted: bool) -> None:
    """Print the version of the package and end, if it is asked for."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"headstart {version('headstart')}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=show_version, is_eager=True, help="Print the version."),
]


@app.callback()
def headstart(version: Version = False) -> None:
    """Deep networks that know what they do not know."""


@app.command()
def demo(
    out: Out = Path("headstart-demo"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps for each initialiser.")] = 600,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Race six initialisers on a toy function: a live table, and a picture of predictions and learning curves."""
    import torch

    from headstart.experiments.demo import demo as race
    from headstart.experiments.demo import summary

    torch.set_num_threads(
        1
    )  # small nets gain nothing from more, and lose much where the machine is busy
    console = Console(stderr=as_json)
    racers = race(out, total=steps, seed=seed, console=console)
    if as_json:
        typer.echo(json.dumps(summary(racers)))
    console.print(f"The picture: {out / 'demo.png'}")


@app.command()
def reproduce(
    suite: Annotated[str, typer.Argument(help="A suite of the paper's experiments, or 'all'.")],
    budget: Annotated[
        str,
        typer.Option(
            help="quick (the tables in docs: minutes to an hour a suite on two cores) or paper (100 epochs, five splits)."
        ),
    ] = "quick",
    out: Out = Path("headstart-results"),
    jobs: Jobs = None,
    backend: Backend = "processes",
    seed: Seed = 0,
    data_dir: DataDir = None,
    splits: Annotated[
        int | None, typer.Option(min=1, help="Splits, instead of the budget's.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps, instead of the budget's.")
    ] = None,
    threads: Threads = 1,
    device: Device = "cpu",
    precision: Precision = "float32",
    as_json: AsJson = False,
) -> None:
    """Run an experiment of the paper; interrupted, the same command goes on where it stopped."""
    from headstart.experiments import command, suites

    machine = {"threads": threads, "device": device, "precision": precision}
    runs = suites.plan(suite, budget, seed=seed, splits=splits, steps=steps, **machine)
    command.do(runs, out, jobs=jobs, backend=backend, data_dir=data_dir, as_json=as_json)


@app.command()
def compare(
    dataset: Annotated[str, typer.Option(help="A data set by name, or a csv file with --target.")],
    model: Annotated[
        str, typer.Option(help="A network by name, e.g. mlp-5x100 or lenet.")
    ] = "mlp-5x100",
    init: Annotated[
        str, typer.Option(help="Initialisers, separated by commas.")
    ] = "orthogonal,lsuv,iblm",
    method: Annotated[
        str,
        typer.Option(
            help="svi, noisy-kfac or mc-dropout (which brings its own start); several separated by commas."
        ),
    ] = "svi",
    target: Annotated[str, typer.Option(help="The csv column to predict.")] = "",
    steps: Annotated[int, typer.Option(min=0, help="Training steps.")] = 1000,
    splits: Annotated[int, typer.Option(min=1, help="How many train/test splits.")] = 1,
    out: Out = Path("headstart-compare"),
    jobs: Jobs = None,
    backend: Backend = "processes",
    seed: Seed = 0,
    data_dir: DataDir = None,
    threads: Threads = 1,
    device: Device = "cpu",
    precision: Precision = "float32",
    as_json: AsJson = False,
) -> None:
    """Compare initialisers on one data set, yours or a known one: numeric columns; a numeric target with more than 20 distinct values is a quantity, any other a class."""
    from headstart.experiments import command

    runs = command.comparison(
        dataset,
        model,
        listed(init),
        methods=listed(method),
        target=target,
        steps=steps,
        splits=splits,
        seed=seed,
        threads=threads,
        device=device,
        precision=precision,
    )
    command.do(runs, out, jobs=jobs, backend=backend, data_dir=data_dir, as_json=as_json)


@app.command()
def fit(
    table: Annotated[
        str,
        typer.Argument(
            help="A csv, csv.gz, tsv or parquet file with a header; - is standard input."
        ),
    ],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    out: Annotated[
        Path, typer.Option(help="The folder to write the model to; it must be new or empty.")
    ],
    task: Annotated[str, typer.Option(help="auto, regression or classification.")] = "auto",
    model: Annotated[
        str | None,
        typer.Option(help="A network by name, e.g. mlp-2x100 (default: by the number of rows)."),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Training steps at most (default: by the number of rows)."),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds for the training, about.")
    ] = None,
    conformal: Annotated[
        bool,
        typer.Option(
            "--conformal", help="Recalibrate intervals on held-out rows (split conformal)."
        ),
    ] = False,
    noise: Annotated[
        str,
        typer.Option(
            help="Of a quantity: constant, or varying with the row (better intervals, some RMSE lost)."
        ),
    ] = "constant",
    ignore: Annotated[str, typer.Option(help="Columns not to use, separated by commas.")] = "",
    test_share: Annotated[
        float, typer.Option(help="The share of rows kept for the numbers that are reported.")
    ] = 0.1,
    config: Annotated[
        Path | None,
        typer.Option(
            help="More settings from a .json or .toml file: lr, samples, batch_size, prior, ..."
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch.")] = 1,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier run in that folder.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a fit that was interrupted.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="The random seed; the same seed gives the same numbers.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Learn to predict a column of a table, with calibrated uncertainty; then predict and report with the folder it writes."""
    from headstart.tabular import command

    given = {"model": model, "steps": steps, "time_limit": time_limit, "seed": seed}
    command.fit_command(
        table,
        target,
        out,
        task=task,
        given=given,
        config=config,
        conformal=conformal,
        noise=noise,
        ignore=listed(ignore),
        test_share=test_share,
        threads=threads,
        overwrite=overwrite,
        resume=resume,
        as_json=as_json,
    )


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(help="A folder that fit has written.")],
    table: Annotated[str, typer.Argument(help="The rows to predict; - is standard input.")],
    out: Annotated[
        str, typer.Option(help="The csv file to write (.gz is compressed); - is standard output.")
    ] = "-",
    with_inputs: Annotated[
        bool, typer.Option("--with-inputs", help="Repeat the table's own columns.")
    ] = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Predict the rows of a table: mean, uncertainty in parts and intervals, or class probabilities; files may be larger than memory."""
    from headstart.tabular import command

    command.predict_command(
        folder, table, out, with_inputs=with_inputs, threads=threads, as_json=as_json
    )


@app.command()
def report(
    folder: Annotated[
        Path, typer.Argument(help="A folder that fit, reproduce or compare has filled.")
    ],
    markdown: Annotated[
        Path | None, typer.Option(help="Write Markdown pages with pictures here too, one a suite.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write report.html, one self-contained page, from a fitted table or (with report.md) from the rows of experiments."""
    from headstart.experiments.report import write
    from headstart.tabular.page import write_page
    from headstart.tabular.run import TableRun, is_run

    if not folder.is_dir():
        raise HeadstartError(f"There is no folder {folder}.")
    if is_run(folder):
        page = str(write_page(TableRun.load(folder), folder))
        typer.echo(json.dumps([page]) if as_json else page)
        return
    paths = [str(path) for path in write(folder, markdown)]
    typer.echo(json.dumps(paths) if as_json else "\n".join(paths))


@app.command()
def bench(
    case: Annotated[
        str, typer.Option(help="Nets, separated by commas.")
    ] = "mlp-5x100,mlp-1x100,lenet,vgg16",
    library: Annotated[
        str, typer.Option(help="Libraries, separated by commas (default: all that are installed).")
    ] = "",
    rounds: Annotated[int, typer.Option(min=1, help="How often each takes its turn.")] = 7,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch.")] = 2,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Time a training step beside plain torch and beside other libraries, in turn, in one process."""
    import torch

    from headstart.bench import command

    torch.manual_seed(seed)
    shown = Console(stderr=True).is_terminal
    rows = command.bench(
        listed(case), listed(library) or None, rounds=rounds, threads=threads, progress=shown
    )
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        console = Console()
        command.show(rows, console if console.is_terminal else Console(width=command.WIDTH))


@data_app.command("list")
def data_list(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """What there is, where it was found, and under which licence."""
    from headstart import data

    rows = data.catalogue(data_dir)
    if as_json:
        typer.echo(json.dumps([row._asdict() for row in rows]))
        return
    table = Table("name", "what, where, licence and citation", show_lines=True)
    for row in rows:
        labels = f"{row.classes} classes" if row.classes else row.task
        facts = (
            f"{row.n} × {row.d}, {labels} · {row.where}",
            row.title,
            f"{row.licence} · {row.citation}",
        )
        table.add_row(row.name, "\n".join(facts))
    Console().print(table, markup=False)


@data_app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(help="Data sets to download.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Download data sets from their public addresses, with checksums."""
    from headstart import data

    folders = {name: str(data.fetch(name, data_dir)) for name in names}
    typer.echo(
        json.dumps(folders)
        if as_json
        else "\n".join(f"{name}: {path}" for name, path in folders.items())
    )


@data_app.command()
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="Data sets (default: all that are here).")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Check digests, shapes and class counts; exit code 1 if something is wrong."""
    from headstart import data

    here = [row.name for row in data.catalogue(data_dir) if not row.where.startswith("not here")]
    checks = [check for name in names or here for check in data.verify(name, data_dir)]
    if as_json:
        typer.echo(json.dumps([check._asdict() for check in checks]))
    else:
        typer.echo(
            "\n".join(
                f"{'ok   ' if check.ok else 'WRONG'}  {check.file}  {check.detail}"
                for check in checks
            )
        )
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def main() -> None:
    """Run the command line; what the user can mend is one sentence on standard error, never a stack trace."""
    keep_freed()
    try:
        app(standalone_mode=True)
    except (HeadstartError, OSError, MemoryError) as error:
        line = f"headstart: {printable(str(error))}"
        Console(stderr=True).print(line, style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
