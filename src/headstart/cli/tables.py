"""Commands of tables: fit, predict, explain, and living with what was fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headstart.cli.options import (
    JsonOption,
    NewRunOption,
    PredictDeviceOption,
    QuietOption,
    RunArgument,
    TorchThreadsOption,
    levels_of,
    listed,
)


def cli_fit(
    table: Annotated[
        str,
        typer.Argument(
            help="A csv, csv.gz, tsv, parquet, json, jsonl or xlsx file with a header; "
            "- is standard input."
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
    members: Annotated[
        int | None,
        typer.Option(min=1, help="Posteriors of the weights, as a mixture (default: by effort)."),
    ] = None,
    refine: Annotated[
        bool, typer.Option("--refine", help="Solve the last layer again after training.")
    ] = False,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds that the whole command aims at.")
    ] = None,
    conformal: Annotated[
        bool,
        typer.Option("--conformal", help="Cross-conformal (CV+) intervals, from held-out rows."),
    ] = False,
    noise: Annotated[
        str | None,
        typer.Option(
            help="The noise model. Quantities: constant, varying or student-t, positive ones also "
            "power or power-varying; counts: poisson or negative-binomial "
            "(default: chosen by held-out rows)."
        ),
    ] = None,
    trees: Annotated[
        bool | None,
        typer.Option(
            "--trees/--no-trees",
            help="Use predictions of boosted trees as features (default: chosen by held-out rows).",
        ),
    ] = None,
    effort: Annotated[
        str | None,
        typer.Option(help="quick, default or best: how many models are tried, and how long."),
    ] = None,
    ignore: Annotated[str, typer.Option(help="Columns not to use, separated by commas.")] = "",
    group: Annotated[
        str | None,
        typer.Option(help="A column whose rows with the same value stay together in every split."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(help="A column of numbers or dates: the latest rows are tested on."),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="A column of sample weights, numbers from 0 on."),
    ] = None,
    test_share: Annotated[
        float,
        typer.Option(help="The fraction of rows in the test set; 0: scores by held-out rows."),
    ] = 0.1,
    config: Annotated[
        Path | None,
        typer.Option(
            help="More settings from a .json or .toml file: lr, samples, batch_size, prior, ..."
        ),
    ] = None,
    threads: TorchThreadsOption = 1,
    device: Annotated[
        str | None,
        typer.Option(help="Where nets are trained: cpu, cuda, cuda:1 (default: cpu)."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier run in that folder.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a fit that was interrupted.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="The random seed; the same seed gives the same numbers.")
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Learn to predict a column of a table, with calibrated uncertainty.

    Predict and report take the folder that it writes.
    """
    from headstart.tabular import command

    given = {
        "model": model,
        "steps": steps,
        "members": members,
        # Where nothing is said, the configuration may.
        "refine": refine or None,
        "time_limit": time_limit,
        "trees": trees,
        "effort": effort,
        "seed": seed,
        "device": device,
    }
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
        group=group,
        time=time,
        weights=weights,
        test_share=test_share,
        threads=threads,
        overwrite=overwrite,
        resume=resume,
        quiet=quiet,
        as_json=as_json,
    )


def cli_predict(
    folder: RunArgument,
    table: Annotated[str, typer.Argument(help="The rows to predict; - is standard input.")],
    out: Annotated[
        str, typer.Option(help="The csv file to write (.gz is compressed); - is standard output.")
    ] = "-",
    with_inputs: Annotated[
        bool, typer.Option("--with-inputs", help="Repeat the table's own columns.")
    ] = False,
    levels: Annotated[
        str | None,
        typer.Option(
            help="Levels of the intervals of a quantity, in percent, with commas (default: 50,95)."
        ),
    ] = None,
    abstain: Annotated[
        float | None,
        typer.Option(
            help="Mark rows better not answered, by the cost of abstaining: of a class as a "
            "fraction of an error's, of a quantity as an error of that size."
        ),
    ] = None,
    threads: TorchThreadsOption = 1,
    device: PredictDeviceOption = "cpu",
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Predict the rows of a table, with uncertainty in parts and intervals, or class probabilities.

    Files may be larger than memory.
    """
    from headstart.tabular.command import predict_command
    from headstart.tabular.predict import PredictionOptions

    wanted = None if levels is None else levels_of(levels)
    options = PredictionOptions(wanted, abstain, with_inputs)
    predict_command(
        folder,
        table,
        out,
        options,
        threads=threads,
        device=device,
        quiet=quiet,
        as_json=as_json,
    )


def cli_explain(
    folder: RunArgument,
    table: Annotated[str, typer.Argument(help="The rows to explain; - is standard input.")],
    out: Annotated[
        str | None, typer.Option(help="A csv file to write: what each column does to each row.")
    ] = None,
    threads: TorchThreadsOption = 1,
    device: PredictDeviceOption = "cpu",
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say which columns move predictions and which their uncertainty, of a table and of its rows.

    In each row a column is given the values that it had in the training rows: the effect of a
    column is the prediction less the mean of those.
    """
    from headstart.tabular.explain_command import explain_command

    explain_command(
        folder,
        table,
        out,
        threads=threads,
        device=device,
        quiet=quiet,
        as_json=as_json,
    )


def cli_monitor(
    folder: RunArgument,
    table: Annotated[str, typer.Argument(help="New rows, with labels where they have arrived.")],
    check: Annotated[
        bool, typer.Option("--check", help="End with exit code 1 if anything has changed.")
    ] = False,
    threads: TorchThreadsOption = 1,
    device: PredictDeviceOption = "cpu",
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say what has changed since the training: columns, strange rows, calibration."""
    from headstart.tabular.upkeep_command import monitor_command

    monitor_command(
        folder,
        table,
        check=check,
        threads=threads,
        device=device,
        quiet=quiet,
        as_json=as_json,
    )


def cli_recalibrate(
    folder: RunArgument,
    table: Annotated[str, typer.Argument(help="Labeled rows that the model has not learned from.")],
    out: NewRunOption = None,
    threads: TorchThreadsOption = 1,
    device: PredictDeviceOption = "cpu",
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set intervals (conformal) or probabilities (temperature) right by newly labeled rows."""
    from headstart.tabular.upkeep_command import recalibrate_command

    recalibrate_command(
        folder,
        table,
        out=out,
        threads=threads,
        device=device,
        quiet=quiet,
        as_json=as_json,
    )


def cli_update(
    folder: RunArgument,
    table: Annotated[str, typer.Argument(help="New labeled rows to learn from.")],
    out: NewRunOption = None,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 300,
    threads: TorchThreadsOption = 1,
    device: PredictDeviceOption = "cpu",
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Learn from new rows, what was known before as the prior."""
    from headstart.tabular.upkeep_command import update_command

    update_command(
        folder,
        table,
        out=out,
        steps=steps,
        threads=threads,
        device=device,
        quiet=quiet,
        as_json=as_json,
    )
