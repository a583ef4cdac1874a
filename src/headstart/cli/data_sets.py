"""Commands of data sets: list, fetch and verify."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from headstart.cli.options import (
    DataDirOption,
    JsonOption,
)


def cli_data_list(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """What there is, where it was found, and under which license."""
    from headstart import data

    rows = data.catalogue(data_dir)
    if as_json:
        typer.echo(json.dumps([row._asdict() for row in rows]))
        return
    table = Table("name", "what, where, license and citation", show_lines=True)
    for row in rows:
        labels = f"{row.classes} classes" if row.classes else row.task
        facts = (
            f"{row.n} × {row.d}, {labels} · {row.where}",
            row.title,
            f"{row.license} · {row.citation}",
        )
        table.add_row(row.name, "\n".join(facts))
    Console().print(table, markup=False)


def cli_data_fetch(
    names: Annotated[list[str], typer.Argument(help="Data sets to download.")],
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Download data sets from their public addresses, with checksums."""
    from headstart import data

    folders = {name: str(data.fetch(name, data_dir)) for name in names}
    typer.echo(
        json.dumps(folders)
        if as_json
        else "\n".join(f"{name}: {path}" for name, path in folders.items())
    )


def cli_data_verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="Data sets (default: all that are here).")
    ] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
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
