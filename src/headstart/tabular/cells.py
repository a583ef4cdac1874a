"""Cells of a table as numbers, days or labels, each cell for itself."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd

MAX_NUMBER = 1e100
"""Numbers from here on count as infinite, and infinite ones as missing."""
MISSING_LEVEL = "(missing)"
LONG_NUMBER = re.compile(r"\s*[+-]?\d{16,}\s*")
"""Digits that a float cannot tell apart."""
_BOOLEAN = {
    "true": 1.0,
    "false": 0.0,
    "yes": 1.0,
    "no": 0.0,
    "t": 1.0,
    "f": 0.0,
    "y": 1.0,
    "n": 0.0,
}


def to_numbers(values: pd.Series) -> np.ndarray:
    """Floats, each cell for itself; what is no finite number is NaN."""
    if values.dtype == object or isinstance(values.dtype, pd.StringDtype):
        text = values.astype("string").str.strip().str.lower()
        flags = text.map(_BOOLEAN).to_numpy(dtype=float, na_value=np.nan)
        numbers = np.where(np.isnan(flags), _floats(text), flags)
        odd = np.isnan(numbers) & values.notna().to_numpy()
        if odd.any():
            numbers[odd] = _floats(text[odd].map(_without_marks))
    else:
        numbers = _floats(values)
    if values.dtype == object:
        # A number beside a word keeps all of its digits, which the way through text may not.
        exact = np.array([_exact(cell) for cell in values], float)
        numbers = np.where(np.isnan(exact), numbers, exact)
    return np.where(np.abs(numbers) < MAX_NUMBER, numbers, np.nan)


_CURRENCY = r"(?:€|\$|£|¥|eur|usd|gbp|chf)"
_MONEY = re.compile(
    rf"([+-]?)\s*(?:{_CURRENCY}\s*)?([+-]?\d[\d.,'’ \u00a0\u202f]*?)\s*{_CURRENCY}?"
)
_GROUPED_DIGITS = re.compile(
    r"[+-]?[1-9]\d{0,2}(?:([,'’ \u00a0\u202f])\d{3})(?:\1\d{3})*(?:\.\d+)?"
)


def _without_marks(text: str) -> str:
    """A number without currency and without marks between thousands; anything else as it is."""
    money = _MONEY.fullmatch(text)
    if not money:
        return text
    digits = money[1] + money[2]
    if _GROUPED_DIGITS.fullmatch(digits):
        return re.sub(r"[,'’ \u00a0\u202f]", "", digits)
    return digits


MAX_MARKED_ROWS = 10_000
"""Cells among which a number with marks is looked for."""


def marked_number(values: pd.Series) -> str | None:
    """The first cell that is a number only without its currency or its marks between thousands."""
    if values.dtype != object and not isinstance(values.dtype, pd.StringDtype):
        return None
    text = values.dropna()[:MAX_MARKED_ROWS].astype(str).str.strip().str.lower()
    odd = text[np.isnan(_floats(text)) & ~text.isin(_BOOLEAN)]
    found = odd[np.isfinite(_floats(odd.map(_without_marks)))]
    return str(values[found.index[0]]) if len(found) else None


def _floats(values: pd.Series) -> np.ndarray:
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=float, na_value=np.nan)


def _exact(cell: Any) -> float:
    """The number that a cell is, not in text; NaN where it is none."""
    cell = cell.item() if isinstance(cell, np.number) else cell
    return float(cell) if isinstance(cell, (int, float)) and abs(cell) < MAX_NUMBER else math.nan


DATE_FORMS = ("ISO8601", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d")
"""How dates may be written; of two that fit, the earlier."""


def are_long_numbers(known: pd.Series) -> bool:
    """Whether cells of a file are long whole numbers.

    Not those of a table in memory: a test row of another kind would write them all anew there.
    """
    return all(isinstance(cell, str) and LONG_NUMBER.fullmatch(cell) for cell in known)


def to_days(values: pd.Series, form: str) -> np.ndarray:
    """Days since 1970; what is not text, or not a date in this form, is NaN."""
    cells = [cell if isinstance(cell, str) else None for cell in values]
    moments = pd.to_datetime(cells, errors="coerce", utc=True, format=form)
    seconds = moments.tz_localize(None).to_numpy().astype("datetime64[s]")
    return np.where(np.isnat(seconds), np.nan, seconds.astype(np.int64) / 86_400)


def labels_of(values: pd.Series) -> pd.Series:
    """Values as text, the same whether a file held them as 1, "1" or, among missing ones, 1.0."""
    return values.map(lambda value: MISSING_LEVEL if pd.isna(value) else _label_text(value)).astype(
        object
    )


def _label_text(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        value = float(value)
        return str(int(value)) if value.is_integer() else str(value)
    return str(value).strip()
