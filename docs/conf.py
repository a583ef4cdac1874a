"""The site: `make docs`. Examples are executed, unless neither they nor the library changed."""

from __future__ import annotations

import os
import re
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import matplotlib

from headstart.experiments.code import code_hash

matplotlib.use("Agg")

project = "headstart"
author = "headstart developers"
project_copyright = author
version = release = installed("headstart")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_templates", "**/sg_execution_times.rst", "sg_execution_times.rst"]
# Docstrings name code in single backticks, as Markdown does.
default_role = "code"

myst_heading_anchors = 4
# Pages of results begin with tables of their own depth; the site takes them as they are.
suppress_warnings = ["myst.header", "config.cache"]

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autosummary_generate = True
autosummary_imported_members = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": ["../examples/gallery"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1,
    "remove_config_comments": True,
    "only_warn_on_example_error": False,
    "abort_on_example_error": True,
}

html_theme = "furo"
html_title = f"headstart {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
html_show_sourcelink = False
html_copy_source = False

OUTSIDE = {"../CONTRIBUTING.md": "contributing.md", "../CHANGELOG.md": "changelog.md"}
"""Files that pages link to, and the pages of the site that hold them."""

# One thread: the examples are small, and machines that build pages are busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")


GALLERY = Path(__file__).parent / "gallery"
LIBRARY = GALLERY / "library.txt"
"""The hash of the library that the pages of the gallery were made with."""


def executes(app: Any) -> bool:
    """Whether this build runs the examples: `-D plot_gallery=0` does not."""
    return str(app.config.plot_gallery) not in ("0", "False")


def forget_outdated_pages(app: Any) -> None:
    """Have the gallery executed again where the library is another one than that of its pages.

    sphinx-gallery itself compares the examples alone, each with a hash that it keeps.
    """
    if executes(app) and (not LIBRARY.exists() or LIBRARY.read_text() != code_hash()):
        for kept in GALLERY.glob("*.md5"):
            kept.unlink()


def keep_hash(app: Any, exception: Exception | None) -> None:
    """Say which library the pages are of, where all of them were made."""
    if exception is None and executes(app):
        LIBRARY.write_text(code_hash())


def link_to_pages(app: Any, name: str, source: list[str]) -> None:
    """Let links that leave the folder of the pages lead to the page that includes the file."""
    for link, page in OUTSIDE.items():
        source[0] = source[0].replace(f"]({link}", f"]({page}")


def skip_routing(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool:
    """Leave out the methods that scikit-learn generates for the routing of metadata."""
    return skip or (name.startswith("set_") and name.endswith("_request"))


def link_docstrings(app: Any, what: str, name: str, thing: Any, options: Any, lines: Any) -> None:
    """Let pages that docstrings name, `docs/guide.md`, be links."""
    lines[:] = [re.sub(r"docs/([\w/-]+)\.md", r":doc:`/\1`", line) for line in lines]


def setup(app: Any) -> None:
    # Before sphinx-gallery, which makes its pages at the same event.
    app.connect("builder-inited", forget_outdated_pages, priority=100)
    app.connect("build-finished", keep_hash)
    app.connect("autodoc-skip-member", skip_routing)
    app.connect("autodoc-process-docstring", link_docstrings)
    app.connect("source-read", link_to_pages)
