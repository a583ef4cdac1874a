"""Errors say what is wrong, where, and how to mend it."""

from __future__ import annotations

import pytest

from headstart.errors import HeadstartError, printable, unknown, untrusted


def test_a_name_that_is_near_none_gets_all_choices_and_no_guess() -> None:
    said = str(unknown("sampler", "qqq", ["weights", "local"]))
    assert said == "There is no sampler 'qqq'. Choose from: local, weights."


def test_what_a_terminal_would_obey_is_spelled_out() -> None:
    assert printable("a\x1b[31mb\n") == "a\\x1b[31mb\\n"
    assert printable("größe") == "größe"


def test_an_error_that_names_the_file_is_not_wrapped_again() -> None:
    with pytest.raises(HeadstartError, match=r"^the file is damaged$"), untrusted("file", "fails"):
        raise HeadstartError("the file is damaged")
    with (
        pytest.raises(HeadstartError, match=r"^file fails: KeyError\.$"),
        untrusted("file", "fails"),
    ):
        raise KeyError
    with pytest.raises(HeadstartError, match=r"^file fails: first\.$"), untrusted("file", "fails"):
        raise RuntimeError("first.\nsecond")
