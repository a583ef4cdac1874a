"""I-BLM's settings: what makes no sense is refused."""

from __future__ import annotations

from typing import Any

import pytest

import headstart as hs
from headstart.initializers.settings import DEFAULT_SETTINGS, IBLMSettings

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"last_rows": 0}, "last_rows is a whole number, at least 1, not 0"),
        ({"evidence_rows": 0}, "evidence_rows is a whole number"),
        ({"units_per_batch": -1}, "units_per_batch is a whole number"),
        ({"rows": 2.5}, "rows is a whole number, at least 2, not 2.5"),
        ({"patches": 1}, "patches is a whole number"),
        ({"variance_scale": 0.0}, "variance_scale is a positive number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        IBLMSettings(**options)


def test_the_defaults_are_documented_settings() -> None:
    assert IBLMSettings() == DEFAULT_SETTINGS
