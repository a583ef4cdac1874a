"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[Path, typer.Argument(help="A folder that fit has written.")]
SeedOption = Annotated[
    int, typer.Option(help="The random seed; the same seed gives the same numbers.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON on standard output, for machines.")
]
OutOption = Annotated[Path, typer.Option(help="The folder to write to.")]
DataDirOption = Annotated[
    Path | None,
    typer.Option(help="Where the data sets are (default: HEADSTART_DATA, then the user cache)."),
]
JobsOption = Annotated[
    int | None, typer.Option(min=1, help="Runs side by side (default: as many as there are cores).")
]
BackendOption = Annotated[
    str,
    typer.Option(
        help="Where: processes of this machine, or ray (the cluster that RAY_ADDRESS names, "
        "or a local one)."
    ),
]
ThreadsOption = Annotated[
    int, typer.Option(min=1, help="Threads of each run; part of what makes its numbers identical.")
]

DeviceOption = Annotated[str, typer.Option(help="Where each run computes: cpu, cuda, cuda:1.")]
PrecisionOption = Annotated[
    str, typer.Option(help="float32, or bfloat16: the net trains in mixed precision.")
]

TorchThreadsOption = Annotated[int, typer.Option(min=1, help="Threads of torch.")]


def listed(names: str) -> list[str]:
    """Names separated by commas, each once."""
    return list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
