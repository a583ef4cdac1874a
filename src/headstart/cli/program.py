"""The commands put together, and how the program ends."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console

from headstart.cli.data_sets import cli_data_fetch, cli_data_list, cli_data_verify
from headstart.cli.experiments import (
    cli_bench,
    cli_compare,
    cli_demo,
    cli_report,
    cli_reproduce,
)
from headstart.cli.tables import (
    cli_explain,
    cli_fit,
    cli_monitor,
    cli_predict,
    cli_recalibrate,
    cli_update,
)
from headstart.errors import HeadstartError, printable
from headstart.kernels.allocator import keep_freed

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": cli_demo,
    "reproduce": cli_reproduce,
    "compare": cli_compare,
    "fit": cli_fit,
    "predict": cli_predict,
    "explain": cli_explain,
    "monitor": cli_monitor,
    "recalibrate": cli_recalibrate,
    "update": cli_update,
    "report": cli_report,
    "bench": cli_bench,
}
DATA_COMMANDS: dict[str, Callable[..., None]] = {
    "list": cli_data_list,
    "fetch": cli_data_fetch,
    "verify": cli_data_verify,
}

app = typer.Typer(
    help="Deep networks that know what they do not know.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="List, fetch and verify data sets.", no_args_is_help=True)
for name, command in COMMANDS.items():
    app.command(name)(command)
for name, command in DATA_COMMANDS.items():
    data_app.command(name)(command)
app.add_typer(data_app, name="data")


def show_version(wanted: bool) -> None:
    """Print the version of the package and end, if it is asked for."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"headstart {version('headstart')}")
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option("--version", callback=show_version, is_eager=True, help="Print the version."),
]


@app.callback()
def headstart(version: VersionOption = False) -> None:
    """Deep networks that know what they do not know."""


def _sentence(error: Exception) -> str:
    """What went wrong, without the number that the system has for it."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename} cannot be read or written: {error.strerror}."
    return str(error)


def main() -> None:
    """Run the command line; what the user can mend is one sentence, never a stack trace."""
    keep_freed()
    # Importing torch and scikit-learn makes millions of objects, none of them garbage.
    gc.set_threshold(100_000, 20, 20)
    # On its way out the interpreter would look for garbage among all of them.
    atexit.register(gc.freeze)
    try:
        app(standalone_mode=True)
    except (HeadstartError, OSError, MemoryError) as error:
        line = f"headstart: {printable(_sentence(error))}"
        Console(stderr=True).print(line, style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
