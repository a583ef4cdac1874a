"""A real browser, to look at pages as users do."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

WALK = """<!doctype html><body><iframe style="width:1200px;height:900px"></iframe><ol></ol><script>
const frame = document.querySelector("iframe");
const loaded = () => new Promise((done) => { frame.onload = done; });
const page = () => frame.contentDocument;
async function found(selector) {
  for (let wait = 0; wait < 100 && !page().querySelector(selector); wait++)
    await new Promise((done) => setTimeout(done, 100));
  return page().querySelector(selector);
}
async function walk(steps) {
  const start = loaded();
  frame.src = "index.html";
  await start;
  for (const [selector, typed] of steps) {
    const thing = await found(selector);
    const next = loaded();
    if (typed) { thing.value = typed; thing.form.submit(); } else { thing.click(); }
    await next;
    const item = document.querySelector("ol").appendChild(document.createElement("li"));
    item.textContent = frame.contentWindow.location.pathname;
  }
}
walk(STEPS).catch((error) => { document.body.append(String(error)); });
</script></body>"""
"""A page that opens the start page of a site in a frame, clicks, and lists where it got."""


@contextmanager
def served(site: Path, walk: str) -> Iterator[str]:
    """The address of a walk through a site, which is served meanwhile to this machine alone."""

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/walk.html":
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(walk.encode())
            return None

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/walk.html"
    finally:
        server.shutdown()
        server.server_close()


def clicked(site: Path, profile: Path, steps: list[list[str]]) -> list[str]:
    """The pages that a reader reaches from the start page of a site.

    Args:
        site: The folder of the site.
        profile: A folder for the browser's own files.
        steps: What to click on, as CSS selectors; with a second entry, a field to type that into
            and to submit.
    """
    with served(site, WALK.replace("STEPS", repr(steps))) as address:
        seen = browse(address, profile, "--virtual-time-budget=60000", "--dump-dom")
    return re.findall(r"<li>/(.*?)</li>", seen)


def browse(page: Path | str, profile: Path, *options: str) -> str:
    """What Chromium prints for a page, a file or an address, with a profile of its own."""
    browser = next(
        (
            path
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (path := shutil.which(name))
        ),
        None,
    )
    if browser is None:
        pytest.skip("no Chromium here")
    quiet = (
        "--headless --no-sandbox --disable-gpu --disable-background-networking "
        "--disable-component-update --no-first-run"
    )
    address = page if isinstance(page, str) else page.resolve().as_uri()
    command = [browser, *quiet.split(), f"--user-data-dir={profile}", *options, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
