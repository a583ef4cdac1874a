"""The sentences about results in README.md, from the rows in docs/results: `make pages`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from headstart.experiments.pages.optimizers import judged_optimizers
from headstart.experiments.paired import AHEAD, BEHIND, LEVEL
from headstart.experiments.paper_cells import paper_cells, paper_sentence
from headstart.experiments.published import read_published
from headstart.experiments.results import by_page

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- results: written by `make pages` -->", "<!-- end of results -->"
QUOTED = ("gained-",)
"""Pages whose verdict README.md quotes: those of suites whose names begin so."""


def sentences(results: Path) -> list[str]:
    """What README.md says about the rows of a folder of pages, a sentence a line."""
    pages = by_page(read_published(results))
    lines = [paper_sentence(paper_cells(pages)), ""]
    for name, found in pages.items():
        if found.suite.startswith(QUOTED):
            verdicts = Counter(cell.verdict for cell in judged_optimizers(found).values())
            counts = ", ".join(f"{word} in {verdicts[word]}" for word in (AHEAD, LEVEL, BEHIND))
            lines.append(
                f"- The library's training against Adam at 1e-3 from the same start: {counts} of "
                f"{verdicts.total()} comparisons ([{name}](docs/results/{name}.md))."
            )
    return lines


def with_results(readme: str, lines: list[str]) -> str:
    """README.md with these lines between its two marks."""
    before, begun, rest = readme.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise ValueError(f"README.md lacks {BEGIN} or {END}.")
    return "\n".join([before + BEGIN, *lines, END + after])


def main() -> int:
    path = ROOT / "README.md"
    path.write_text(with_results(path.read_text(), sentences(ROOT / "docs" / "results")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
