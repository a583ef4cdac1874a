"""Decimal commas, and points between thousands, in the cells of text tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
"""What may be thousands as well as decimals is no sign of a decimal comma."""
_COMMA_NUMBER = re.compile(r"[+-]?(\d+,\d+|\d+)([eE][+-]?\d+)?")
_POINT_GROUPED = re.compile(r"([^\d,.]*[+-]?[1-9]\d{0,2}(?:\.\d{3})+)(,\d+)?([^\d,.]*)")
"""Thousands with points between them, which only a decimal comma leaves room for."""
_POINT_DECIMAL = re.compile(r"[+-]?(0?\.\d+|\d+\.(\d{1,2}|\d{4,}))")
_PLAIN_NUMBER = re.compile(r"[+-]?[\d.]+")


def decimal_mark(lines: list[str], separator: str) -> str:
    """A comma where some cell is a number with one that cannot separate thousands.

    Args:
        lines: The lines below the header.
        separator: What is between their cells.
    """
    cells = (cell.strip().strip('"') for line in lines for cell in line.split(separator))
    with_comma = separator != "," and any(
        "," in cell and _COMMA_NUMBER.fullmatch(cell) and not _GROUPED.fullmatch(cell)
        for cell in cells
    )
    return "," if with_comma else "."


def points_group(lines: list[str], separator: str) -> bool:
    """Whether points stand between thousands, and nowhere as a decimal mark.

    Args:
        lines: The lines below the header.
        separator: What is between their cells.
    """
    cells = [cell.strip().strip('"') for line in lines for cell in line.split(separator)]
    return any(_POINT_GROUPED.fullmatch(cell) for cell in cells) and not any(
        _POINT_DECIMAL.fullmatch(cell) for cell in cells
    )


def is_decimal(cell: str) -> bool:
    """Whether a cell is a number, with a comma or a point for its decimals.

    Args:
        cell: The cell.

    Example:
        >>> is_decimal("1,5"), is_decimal("1.50"), is_decimal("price")
        (True, True, False)
    """
    return bool(_COMMA_NUMBER.fullmatch(cell) or _POINT_DECIMAL.fullmatch(cell))


def with_points_(frame: pd.DataFrame, thousands: str) -> dict[str, dict[str, str]]:
    """Write the numbers of a table with points for commas, and nothing between thousands, in place.

    Args:
        frame: The cells of a table with decimal commas.
        thousands: The mark between thousands, if there is one.

    Returns:
        By column, the texts of numbers with a unit that are written differently now.
    """
    written = {}
    for name in frame.columns:
        cells = frame[name].astype(object)
        frame[name] = plain = cells.map(lambda cell: with_point(cell, thousands))
        if thousands and (texts := with_units(cells, plain)):
            written[name] = texts
    return written


def with_point(cell: Any, thousands: str) -> Any:
    """A cell with a decimal point for a comma, and nothing between thousands.

    Args:
        cell: A cell of a table with decimal commas; what is no text stays as it is.
        thousands: The mark between thousands, if there is one.

    Example:
        >>> with_point("1,5", ""), with_point("63.345 €", ".")
        ('1.5', '63345 €')
    """
    if not isinstance(cell, str):
        return cell
    if "," in cell and _COMMA_NUMBER.fullmatch(cell):
        return cell.replace(",", ".")
    if thousands and (grouped := _POINT_GROUPED.fullmatch(cell)):
        whole, rest, unit = grouped[1].replace(".", ""), grouped[2] or "", grouped[3]
        return f"{whole}{rest.replace(',', '.')}{unit}"
    return cell


def with_units(cells: Iterable[Any], plain: Iterable[Any]) -> dict[str, str]:
    """The texts of numbers with a unit that are written differently now, by what they are now.

    Args:
        cells: The cells as the file has them.
        plain: The same cells as `with_point` has them.

    Example:
        >>> with_units(["63.345 €", "1.234", None], ["63345 €", "1234", None])
        {'63345 €': '63.345 €'}
    """
    return {
        now: was
        for was, now in zip(cells, plain, strict=True)
        if isinstance(was, str) and was != now and not _PLAIN_NUMBER.fullmatch(now)
    }
