"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headstart.errors import HeadstartError

RunArgument = Annotated[Path, typer.Argument(help="A folder that fit has written.")]
NewRunOption = Annotated[
    Path | None, typer.Option(help="Another folder to write to (default: the same one).")
]
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

QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
PredictDeviceOption = Annotated[str, typer.Option("--device", help="Where to compute: cpu, cuda.")]
DeviceOption = Annotated[str, typer.Option(help="Where each run computes: cpu, cuda, cuda:1.")]
PrecisionOption = Annotated[
    str, typer.Option(help="float32, or bfloat16: the net trains in mixed precision.")
]

TorchThreadsOption = Annotated[int, typer.Option(min=1, help="Threads of torch.")]


def levels_of(text: str) -> tuple[float, ...]:
    """Levels of intervals, as fractions or in percent, in rising order.

    Example:
        >>> levels_of("90, 0.5")
        (0.5, 0.9)
    """
    try:
        values = [float(word.rstrip("% ")) for word in listed(text)]
    except ValueError as error:
        raise HeadstartError(f"--levels takes numbers, as in 80,95; not {text!r}.") from error
    return tuple(sorted({value / 100 if value >= 1 else value for value in values}))


def listed(names: str) -> list[str]:
    """Names separated by commas, each once."""
    return list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
