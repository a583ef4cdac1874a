"""The site: `make docs`. Every example of the gallery is executed, unless it has not changed."""

from __future__ import annotations

import os
from importlib.metadata import version as installed
from typing import Any

import matplotlib

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


def link_to_pages(app: Any, name: str, source: list[str]) -> None:
    """Let links that leave the folder of the pages lead to the page that includes the file."""
    for link, page in OUTSIDE.items():
        source[0] = source[0].replace(f"]({link}", f"]({page}")


def skip_routing(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool:
    """Leave out the methods that scikit-learn generates for the routing of metadata."""
    return skip or (name.startswith("set_") and name.endswith("_request"))


def setup(app: Any) -> None:
    app.connect("autodoc-skip-member", skip_routing)
    app.connect("source-read", link_to_pages)
