"""Blocks of a document in HTML and in Markdown: whatever a name holds, it is never markup."""

from __future__ import annotations

import pytest

from headstart.reporting.document import (
    Block,
    Code,
    Entry,
    Figure,
    Group,
    Heading,
    Links,
    Table,
    Text,
    to_html,
    to_markdown,
)

EVIL = "<script>alert('x')</script> *b* | _c_"
BLOCKS: dict[str, Block] = {
    "heading": Heading(2, EVIL, anchor='"><b>'),
    "links": Links([(EVIL, "#there", EVIL)]),
    "text": Text(EVIL),
    "code": Code([EVIL]),
    "table": Table([Entry(EVIL)], [[Entry(EVIL, strong=True)], [Entry(EVIL, quiet=True)]]),
    "figure": Figure("curves", "<svg></svg>", EVIL),
    "group": Group([[Text(EVIL)], [Text(EVIL)]]),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_names_are_escaped(name: str) -> None:
    page = to_html(EVIL, [BLOCKS[name]])
    assert "<script>" not in page
    assert "<b>" not in page
    if name != "code":
        assert "\\*b\\* \\| \\_c\\_" in to_markdown([BLOCKS[name]])


def test_a_figure_is_a_file_of_its_own_in_markdown() -> None:
    figure = Figure("curves", "<svg></svg>", "Curves.")
    assert figure.files() == {"curves.svg": "<svg></svg>"}
    assert to_markdown([figure]) == "![Curves.](curves.svg)\n\n*Curves.*\n"
    assert "<svg></svg><figcaption>Curves.</figcaption>" in to_html("t", [figure])
