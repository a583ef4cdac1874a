"""The command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headstart.errors import HeadstartError

app = typer.Typer(
    help="Deep networks that know what they do not know.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Seed = Annotated[int, typer.Option(help="The random seed; the same seed gives the same numbers.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, for machines.")]
Out = Annotated[Path, typer.Option(help="The folder to write to.")]


@app.callback()
def headstart() -> None:
    """Deep networks that know what they do not know."""


@app.command()
def demo(
    out: Out = Path("headstart-demo"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps for each initialiser.")] = 600,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Race six initialisers on a toy function: a live table, and a picture of predictions and learning curves."""
    from headstart.experiments.demo import demo as race
    from headstart.experiments.demo import summary

    console = Console(stderr=as_json)
    racers = race(out, total=steps, seed=seed, console=console)
    if as_json:
        typer.echo(json.dumps(summary(racers)))
    console.print(f"The picture: {out / 'demo.png'}")


def main() -> None:
    """Run the command line; what the user can mend is one sentence on standard error, never a stack trace."""
    try:
        app(standalone_mode=True)
    except HeadstartError as error:
        Console(stderr=True).print(f"headstart: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("headstart: interrupted.", style="red")
        sys.exit(130)
    except OSError as error:
        Console(stderr=True).print(f"headstart: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
