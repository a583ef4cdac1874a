"""A document of a few kinds of blocks, each of which knows how it looks in HTML and in Markdown."""

from __future__ import annotations

import html
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

STYLE = """
:root { color-scheme: light dark; --text: #1c2430; --soft: #57606f; --line: #e3e7ee;
  --shade: #f4f6fa; --strong: #b3282d; --good: #2c7a4b; --page: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ee; --soft: #a3adba; --line: #353c47;
  --shade: #20262f; --strong: #ff8a8e; --good: #6cc492; --page: #14181e; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--text); background: var(--page);
  max-width: 80rem; margin: 2.5rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.9rem; margin-bottom: .3rem; overflow-wrap: anywhere; }
h2 { margin-top: 3rem; border-bottom: 2px solid var(--line); padding-bottom: .3rem;
  overflow-wrap: anywhere; }
h3 { margin: 1.8rem 0 .5rem; font-size: 1.05rem; }
p, li { max-width: 56rem; overflow-wrap: anywhere; } li { margin: .35rem 0; }
p.notable { font-size: 1.15rem; border-left: .3rem solid var(--strong); padding: .4rem 1rem;
  background: var(--shade); }
p.good { border-color: var(--good); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .6rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { background: var(--shade); font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
table.words td, table.words th { text-align: left; white-space: normal; }
td.quiet, th.quiet { color: var(--soft); } td strong { color: var(--strong); }
pre { background: var(--shade); padding: .8rem 1rem; border-radius: .4rem; overflow-x: auto; }
.group { display: flex; flex-wrap: wrap; gap: 0 3.5rem; } .group section { max-width: 100%; }
figure { margin: 1.2rem 0; } figure svg { max-width: 100%; height: auto; }
figure svg text { fill: currentColor; }
figcaption { color: var(--soft); font-size: .9rem; max-width: 28rem;
  overflow-wrap: anywhere; }
@media (max-width: 40rem) { body { margin: 1rem auto; padding: 0 .8rem; } h1 { font-size: 1.5rem; }
  .group section { width: 100%; } figure svg { width: 100%; } }
""".strip()


class Block(ABC):
    """A piece of a document."""

    @abstractmethod
    def html(self) -> str:
        """Its HTML, everything escaped."""

    @abstractmethod
    def markdown(self) -> str:
        """Its Markdown, everything escaped."""

    def files(self) -> dict[str, str]:
        """The files its Markdown refers to, by name."""
        return {}


@dataclass(frozen=True)
class Heading(Block):
    """A heading of level 1, 2 or 3, to which `anchor` may link."""

    level: int
    text: str
    anchor: str = ""

    def html(self) -> str:
        mark = f' id="{html.escape(self.anchor)}"' if self.anchor else ""
        return f"<h{self.level}{mark}>{html.escape(self.text)}</h{self.level}>"

    def markdown(self) -> str:
        mark = f'<a id="{html.escape(self.anchor)}"></a>\n\n' if self.anchor else ""
        return f"{mark}{'#' * self.level} {escape_markdown(self.text)}"


@dataclass(frozen=True)
class Links(Block):
    """A list of links, each with what is to be said about it."""

    links: Sequence[tuple[str, str, str]]

    def html(self) -> str:
        items = (
            f'<li><a href="{html.escape(target)}">{html.escape(name)}</a>. {html.escape(text)}</li>'
            for name, target, text in self.links
        )
        return f"<ul>\n{chr(10).join(items)}\n</ul>"

    def markdown(self) -> str:
        return "\n".join(
            f"- [{escape_markdown(name)}]({target}). {escape_markdown(text)}"
            for name, target, text in self.links
        )


@dataclass(frozen=True)
class Text(Block):
    """A paragraph; a notable one stands out, in green if it is good news."""

    text: str
    notable: bool = False
    good: bool = False

    def html(self) -> str:
        kind = f' class="notable{" good" * self.good}"' if self.notable else ""
        return f"<p{kind}>{html.escape(self.text)}</p>"

    def markdown(self) -> str:
        return escape_markdown(self.text)


@dataclass(frozen=True)
class Code(Block):
    """Lines to be taken literally."""

    lines: Sequence[str]

    def html(self) -> str:
        return f"<pre>{html.escape(chr(10).join(self.lines))}</pre>"

    def markdown(self) -> str:
        return "\n".join(f"    {line}" for line in self.lines)


@dataclass(frozen=True)
class Entry:
    """A table's entry; `strong` is the best of its column, `quiet` is not ours."""

    text: str
    strong: bool = False
    quiet: bool = False

    def html(self, tag: str) -> str:
        inner = html.escape(self.text)
        inner = f"<strong>{inner}</strong>" if self.strong else inner
        kind = ' class="quiet"' if self.quiet else ""
        return f"<{tag}{kind}>{inner}</{tag}>"

    def markdown(self) -> str:
        inner = escape_markdown(self.text)
        return f"**{inner}**" if self.strong else inner


@dataclass(frozen=True)
class Table(Block):
    """A header and rows of entries, of numbers or of words; the first column holds names."""

    header: Sequence[Entry]
    rows: Sequence[Sequence[Entry]]
    words: bool = False

    def html(self) -> str:
        head = "".join(entry.html("th") for entry in self.header)
        body = "".join(
            f"<tr>{''.join(entry.html('td') for entry in row)}</tr>\n" for row in self.rows
        )
        kind = ' class="words"' if self.words else ""
        return (
            f'<div class="scroll"><table{kind}>\n<thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{body}</tbody></table></div>"
        )

    def markdown(self) -> str:
        rule = "|---|" + "--:|" * (len(self.header) - 1)
        lines = [
            "| " + " | ".join(entry.markdown() for entry in row) + " |"
            for row in [self.header, *self.rows]
        ]
        return "\n".join([lines[0], rule, *lines[1:]])


@dataclass(frozen=True)
class Figure(Block):
    """An svg picture with its caption; in Markdown, a file of its own."""

    name: str
    svg: str = field(repr=False)
    caption: str

    def html(self) -> str:
        caption = f"<figcaption>{html.escape(self.caption)}</figcaption>"
        return f'<figure id="{html.escape(self.name)}">{_themed(self.svg)}{caption}</figure>'

    def markdown(self) -> str:
        caption = escape_markdown(self.caption)
        return f"![{caption}]({self.name}.svg)\n\n*{caption}*"

    def files(self) -> dict[str, str]:
        return {f"{self.name}.svg": self.svg}


@dataclass(frozen=True)
class Group(Block):
    """Sections that may stand side by side where there is room."""

    sections: Sequence[Sequence[Block]]

    def html(self) -> str:
        inner = "\n".join(
            f"<section>{''.join(block.html() for block in blocks)}</section>"
            for blocks in self.sections
        )
        return f'<div class="group">\n{inner}\n</div>'

    def markdown(self) -> str:
        return "\n\n".join(block.markdown() for blocks in self.sections for block in blocks)


def _themed(svg: str) -> str:
    """The picture in the colors of the page: its black is the text's, and its white is none."""
    return svg.replace("#000000", "currentColor").replace("fill: #ffffff", "fill: none")


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """One page that needs nothing but itself.

    Example:
        >>> "<td>&lt;b&gt;</td>" in to_html("t", [Table([Entry("name")], [[Entry("<b>")]])])
        True
    """
    body = "\n".join(block.html() for block in blocks)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title>\n"
        f"<style>\n{STYLE}\n</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def to_markdown(blocks: Sequence[Block]) -> str:
    """The same as Markdown.

    Example:
        >>> table = Table([Entry("x"), Entry("y")], [[Entry("1"), Entry("2", strong=True)]])
        >>> print(to_markdown([Heading(1, "A_b"), table]))
        # A\\_b
        <BLANKLINE>
        | x | y |
        |---|--:|
        | 1 | **2** |
        <BLANKLINE>
    """
    return "\n\n".join(block.markdown() for block in blocks) + "\n"


def escape_markdown(text: str) -> str:
    """Text that Markdown leaves alone, on one line.

    Example:
        >>> print(escape_markdown("a|b *c* <d>"))
        a\\|b \\*c\\* \\<d\\>
    """
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
