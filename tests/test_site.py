"""The site: its pages name all there is, it builds without a warning, and it can be walked."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tools.links import broken, leads_somewhere

import headstart as hs
from tests.browser import browse, clicked

ROOT = Path(__file__).parents[1]
SITE = ROOT / "out/site"
TABLES = {"INITIALIZERS", "POSTERIORS", "models"}
"""Public names that are no classes or functions: the reference names them in sentences."""


def built() -> Path:
    if not (SITE / "index.html").exists():
        pytest.skip("the site is not built here: make docs")
    return SITE


def test_the_reference_lists_every_public_name() -> None:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^   ([A-Za-z_][\w.]*)$", page, flags=re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert {name for name in listed if "." not in name} == set(hs.__all__) - TABLES
    for name in TABLES - {"models"}:
        assert f"`hs.{name}`" in page


def test_every_page_is_in_a_table_of_contents() -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in ROOT.glob("docs/**/*.md")}
    written = {str(page) for page in pages if page.parts[0] not in ("api", "gallery")}
    trees = " ".join((ROOT / f"docs/{page}.md").read_text() for page in ("index", "benchmarks"))
    missing = {page for page in written if not re.search(rf"^{page}$", trees, flags=re.MULTILINE)}
    assert {page for page in missing if not page.startswith("results/")} == {"index"}


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<p id="a"></p><a href="b.html#c">b</a><a href="#a">a</a>')
    assert broken(tmp_path) == ["index.html: b.html#c"]
    (tmp_path / "b.html").write_text('<h1 id="d">b</h1>')
    assert not leads_somewhere(tmp_path / "index.html", "b.html#c")
    assert leads_somewhere(tmp_path / "index.html", "b.html#d")
    assert leads_somewhere(tmp_path / "index.html", "https://example.org/b.html#c")


def test_the_gallery_is_run_again_where_the_library_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the settings put into the environment goes with the test.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    spec = importlib.util.spec_from_file_location("site_settings", ROOT / "docs/conf.py")
    assert spec is not None
    assert spec.loader is not None
    settings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(settings)
    monkeypatch.setattr(settings, "GALLERY", tmp_path)
    monkeypatch.setattr(settings, "LIBRARY", tmp_path / "library.txt")
    run, quiet = (
        SimpleNamespace(config=SimpleNamespace(plot_gallery=plots)) for plots in ("True", "0")
    )
    kept = tmp_path / "gap.py.md5"
    kept.write_text("0123")
    settings.keep_hash(run, None)
    settings.forget_outdated_pages(run)
    assert kept.exists()
    monkeypatch.setattr(settings, "code_hash", lambda: "another library")
    settings.keep_hash(run, RuntimeError("the build failed"))
    settings.keep_hash(quiet, None)
    settings.forget_outdated_pages(quiet)
    assert kept.exists()
    settings.forget_outdated_pages(run)
    assert not kept.exists()


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Without running the gallery, which `make docs` and `tests/test_gallery.py` do."""
    pytest.importorskip("sphinx_gallery")
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-D", "plot_gallery=0"]
    folders = ["-d", str(tmp_path / "cache"), str(ROOT / "docs"), str(tmp_path / "site")]
    done = subprocess.run([*command, *folders], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert broken(tmp_path / "site") == []


def test_the_built_site_has_no_broken_link() -> None:
    assert broken(built()) == []


def test_every_example_of_the_built_site_was_run() -> None:
    pictures = built() / "_images"
    for path in ROOT.glob("examples/gallery/*.py"):
        assert (pictures / f"sphx_glr_{path.stem}_001.png").exists(), path.stem


@pytest.mark.slow
def test_a_reader_clicks_from_the_start_to_an_example_to_fit_and_to_a_search_result(
    tmp_path: Path,
) -> None:
    site = built()
    steps = [
        ["article a[href='gallery/index.html']"],
        ["article a[href^='gap.html']"],
        [".sidebar-tree a[href='../api.html']"],
        ["article a[href^='api/headstart.fit.html']"],
        [".sidebar-search", "thompson"],
        ["#search-results a[href*='thompson_sampling']"],
    ]
    assert clicked(site, tmp_path / "profile", steps) == [
        "gallery/index.html",
        "gallery/gap.html",
        "api.html",
        "api/headstart.fit.html",
        "search.html",
        "gallery/thompson_sampling.html",
    ]
    example = browse(site / "gallery/gap.html", tmp_path / "profile", "--dump-dom")
    assert "Your own data" in example
    assert "sphx_glr_gap_001.png" in example
    fit = browse(site / "api/headstart.fit.html", tmp_path / "profile", "--dump-dom")
    assert "early stopping" in fit
