"""Whether every link within a built site leads somewhere: `python tools/links.py out/site`."""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            if name in ("id", "name") and value:
                self.anchors.add(value)


page = cache(Page)


def broken(site: Path) -> list[str]:
    """Links that lead nowhere, each after the page that has it.

    Args:
        site: the folder of a built site.
    """
    found = []
    for path in sorted(site.rglob("*.html")):
        for link in sorted(page(path).links):
            if not leads_somewhere(path, link):
                found.append(f"{path.relative_to(site)}: {link}")
    return found


def leads_somewhere(path: Path, link: str) -> bool:
    """Whether a link is another site's, or leads to a file, and to an anchor where it names one.

    Args:
        path: the page that has it.
        link: as it stands there.
    """
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return False
    anchor = unquote(parts.fragment)
    return not anchor or target.suffix != ".html" or anchor in page(target).anchors


def main() -> int:
    site = Path(sys.argv[1])
    if not (site / "index.html").exists():
        print(f"{site} holds no site; make docs builds one.")
        return 1
    found = broken(site)
    for line in found:
        print("leads nowhere:", line)
    pages = sum(1 for _ in site.rglob("*.html"))
    print(f"{pages} pages, {len(found)} links that lead nowhere")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
