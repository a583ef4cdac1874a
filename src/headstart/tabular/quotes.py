"""Notes that quote a cell of the table, as the file has it."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from headstart.tabular.cells import marked_number, to_numbers

Written = Mapping[str, Mapping[str, str]]
"""By column, what a file has in place of cells that reading has written differently."""


def as_written(name: str, cell: str, written: Written | None) -> str:
    """A cell as the file has it.

    Args:
        name: Its column.
        cell: The cell as the table has it.
        written: What the file has in place of some cells.

    Example:
        >>> as_written("price", "63345 €", {"price": {"63345 €": "63.345 €"}})
        '63.345 €'
    """
    return (written or {}).get(name, {}).get(cell, cell)


def warn_of_marks(
    name: str, values: pd.Series, warnings: list[str], written: Written | None
) -> None:
    """Say how a number with a currency or with marks between thousands is read.

    Args:
        name: The column.
        values: Its cells.
        warnings: Where it is said.
        written: What the file has in place of some cells.
    """
    if (marked := marked_number(values)) is not None:
        number, text = to_numbers(pd.Series([marked]))[0], as_written(name, marked, written)
        warnings.append(f"The column {name!r} holds {text!r}, which is read as {number:.10g}.")
