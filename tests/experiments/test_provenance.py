"""Pages name the code that made them, and can be compared with the code of today."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import HeadstartError
from headstart.experiments.code import code_hash
from headstart.experiments.provenance import NO_CODE, check_pages, page_stamp
from headstart.reporting.document import Heading, Text, to_markdown

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Pages of today's code, of other code, of a module that is gone, and of no code."""
    stamps = {
        "new": page_stamp(code_hash()),
        "old": page_stamp("0123456789ab", left_out=1),
        "gone": f"Code {code_hash()} (headstart.was_here, headstart 0.1).",
        "none": page_stamp(""),
    }
    for name, stamp in stamps.items():
        (tmp_path / f"{name}.md").write_text(to_markdown([Heading(2, name), Text(stamp)]))
    return tmp_path


def test_a_stamp_says_by_itself_that_the_code_has_changed() -> None:
    assert page_stamp(code_hash()).startswith(f"Code {code_hash()} (headstart.experiments.run, ")
    assert "changed" not in page_stamp(code_hash())
    assert page_stamp("0" * 12, 1).endswith("has changed since. 1 row of other code was left out.")
    assert page_stamp("") == NO_CODE


def test_pages_are_compared_with_the_code_of_today(pages: Path) -> None:
    found = {age.path.stem: (age.state, age.code) for age in check_pages(pages)}
    assert found == {
        "new": ("current", code_hash()),
        "old": ("older", "0123456789ab"),
        "gone": ("older", code_hash()),
        "none": ("unknown", ""),
    }
    with pytest.raises(HeadstartError, match="no Markdown pages"):
        check_pages(pages / "empty")


def test_the_command_lists_the_pages_that_are_not_todays(pages: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(pages), "--check"])
    assert result.exit_code == 1
    assert (
        f"{pages / 'old.md'}: made by code 0123456789ab, which has changed since" in result.stdout
    )
    assert f"{pages / 'none.md'}: names no code that made it" in result.stdout
    assert "1 of 4 pages were made by today's code." in result.stdout
    states = json.loads(CliRunner().invoke(app, ["report", str(pages), "--check", "--json"]).stdout)
    assert [page["state"] for page in states] == ["older", "current", "unknown", "older"]
    for name in ("old", "gone", "none"):
        (pages / f"{name}.md").unlink()
    assert CliRunner().invoke(app, ["report", str(pages), "--check"]).exit_code == 0


def test_every_committed_page_names_its_code_or_says_that_it_has_none() -> None:
    for age in check_pages(RESULTS):
        assert age.state != "unknown" or NO_CODE in age.path.read_text(), age.path
