"""The snippets of README and guide run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md"])
def test_the_snippets_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / page).read_text()
    snippets = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert snippets
    code = "\n".join(snippets).replace("steps=2000", "steps=20")  # the same calls, fewer steps
    exec(compile(code, page, "exec"), {})
    assert "KL" in capsys.readouterr().out  # the step-0 report was printed


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md", "docs/method.md", "CONTRIBUTING.md"])
def test_every_file_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]+)`", text))
    linked = set(re.findall(r"\]\((?!http)([\w./-]+)\)", text))
    for name in named:
        assert (ROOT / name).exists(), name
    for link in linked:
        assert ((ROOT / page).parent / link).exists(), link
