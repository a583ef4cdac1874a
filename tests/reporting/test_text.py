"""Numbers and names as sentences have them."""

from __future__ import annotations

import pytest

from headstart.reporting.text import listing, plural


@pytest.mark.parametrize(("count", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows")])
def test_a_count_has_its_noun(count: int, text: str) -> None:
    assert plural(count, "row") == text


@pytest.mark.parametrize(
    ("names", "text"),
    [([], ""), (["a"], "'a'"), (["a", "b"], "'a', 'b'"), (list("abcd"), "'a', 'b' and 2 more")],
)
def test_long_lists_are_cut(names: list[str], text: str) -> None:
    assert listing(iter(names), limit=2) == text
