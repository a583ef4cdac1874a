"""The table of data sets: complete, and every original can be fetched and checked."""

from __future__ import annotations

from headstart.data import NAMES
from headstart.data.registry import SPECS


def test_every_name_has_a_spec_in_order() -> None:
    assert (
        " ".join(NAMES)
        == "toy powerplant protein spam eeg eeg-spikes credit mnist cifar10 notmnist digits "
        "diabetes"
    )
    assert all(len(spec.counts) == (len(spec.classes) or 1) for spec in SPECS.values())


def test_every_original_can_be_fetched_and_checked() -> None:
    for spec in SPECS.values():
        for file in spec.forms[0].files:
            assert file.urls
            # Without a digest the contents decide, and they can only if the file is the whole set.
            assert file.stored or file.content or (spec.values and len(spec.forms[0].files) == 1)
