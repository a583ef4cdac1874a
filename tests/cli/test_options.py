"""What several commands share: lists of names."""

from __future__ import annotations

import pytest

from headstart.cli.options import listed


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("", []),
        ("iblm", ["iblm"]),
        (" xavier , iblm", ["xavier", "iblm"]),
        ("iblm,,xavier,iblm,", ["iblm", "xavier"]),
    ],
)
def test_names_between_commas_count_once_and_keep_their_order(names: str, found: list[str]) -> None:
    assert listed(names) == found
