"""Rows beside their pages: small, the same bytes, and enough to make every page again."""

from __future__ import annotations

import shutil
from pathlib import Path

import matplotlib as mpl
import pytest
from tools.readme_results import sentences, with_results

from headstart.errors import HeadstartError
from headstart.experiments.catalogue import SUITES
from headstart.experiments.code import code_hash
from headstart.experiments.provenance import CODE_HAS_CHANGED
from headstart.experiments.published import ROWS_FOLDER, publish, read_published
from headstart.experiments.report import FRONT_PAGE, rebuild_pages, write_report
from headstart.experiments.results import by_page
from headstart.experiments.spec import ResultRow
from tests.experiments.conftest import row, store_of

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
MAX_BYTES = 500_000
LOST = "Its rows were not kept"


def rows_of(init: str, *splits: int, **more: object) -> list[ResultRow]:
    return [
        one
        for split in splits
        for one in (
            row(init, split, 0, 1.0, **more),
            row(init, split, 9, 0.123456789 + split, last=True, **more),
        )
    ]


def test_the_same_rows_in_another_order_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = rows_of("iblm", 0, 1), rows_of("xavier", 0)
    (one,) = publish([*first, *second], tmp_path / "one")
    (other,) = publish([*second, *first], tmp_path / "other")
    assert one.name == "regression-deep.jsonl.xz"
    assert one.read_bytes() == other.read_bytes()
    assert publish([], tmp_path / "one")[0].read_bytes() == other.read_bytes()
    assert len(read_published(tmp_path / "one")) == 6


def test_rows_that_are_published_again_take_their_own_place(tmp_path: Path) -> None:
    (path,) = publish(rows_of("iblm", 0, 1), tmp_path)
    once = path.read_bytes()
    publish(rows_of("iblm", 1), tmp_path)
    assert path.read_bytes() == once
    publish(rows_of("iblm", 1, mnll=0.25), tmp_path)
    assert [found["mnll"] for found in read_published(tmp_path) if found["split"] == 1] == [
        0.25
    ] * 2
    assert len(read_published(tmp_path)) == 4


def test_the_front_page_is_the_same_whatever_the_code_of_today(tmp_path: Path) -> None:
    """It names the code of most pages at its top, and that of the others beside their suites."""
    suites = {"regression-deep": "1" * 12, "regression-shallow": "1" * 12}
    pages = {**suites, "classification-deep": code_hash()}
    for suite, code in pages.items():
        publish(rows_of("iblm", 0, suite=suite, run=suite, code=code), tmp_path)
    rebuild_pages(tmp_path)
    front = (tmp_path / f"{FRONT_PAGE}.md").read_text()
    assert f"Code {'1' * 12} (" in front
    assert f"By code {code_hash()}." in front
    assert front.count("By code ") == 1


def test_published_rows_keep_what_pages_read_to_seven_digits(tmp_path: Path) -> None:
    publish(rows_of("iblm", 0, dataset="/home/me/mine.csv"), tmp_path)
    last = read_published(tmp_path)[-1]
    assert last["rmse"] == 0.1234568
    assert last["dataset"] == "mine.csv"
    assert {"checkpoints", "content", "init_options"}.isdisjoint(last)


def test_rows_of_several_folders_come_together_and_a_run_again_takes_its_place(
    tmp_path: Path,
) -> None:
    publish(rows_of("iblm", 0, 1), tmp_path)
    longer = [{**one, "run": "longer", "rmse": 0.5} for one in rows_of("iblm", 1)]
    publish([*rows_of("xavier", 0), *longer], tmp_path)
    (results,) = by_page(read_published(tmp_path)).values()
    assert results.labels == ["xavier", "iblm"]
    assert results.final("powerplant", "iblm", "rmse").count == 2
    assert results.final("powerplant", "iblm", "rmse").high == 0.5


def test_each_budget_has_a_page_of_its_own(tmp_path: Path) -> None:
    paper = [{**one, "run": "p", "budget": "paper"} for one in rows_of("iblm", 0)]
    store_of([*rows_of("iblm", 0), *paper], tmp_path / "rows")
    write_report(tmp_path / "rows", tmp_path / "pages")
    for name in ("regression-deep", "regression-deep-paper"):
        page = (tmp_path / "pages" / f"{name}.md").read_text()
        assert f"{name}: model mlp-5x100; budget {'paper' if 'paper' in name else 'quick'}" in page
    front = (tmp_path / "pages" / f"{FRONT_PAGE}.md").read_text()
    assert "    headstart reproduce regression-deep --budget paper --splits 1 --steps 2000" in front


def test_a_suite_that_names_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HeadstartError, match="into another folder"):
        publish(rows_of("iblm", 0, suite="../elsewhere"), tmp_path)


def test_a_file_that_is_none_of_ours_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / ROWS_FOLDER).mkdir()
    (tmp_path / ROWS_FOLDER / "x.jsonl.xz").write_bytes(b"no")
    with pytest.raises(HeadstartError, match=r"x\.jsonl\.xz holds no rows of headstart's"):
        read_published(tmp_path)


def test_a_folder_without_rows_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HeadstartError, match="holds no rows: publish some first"):
        rebuild_pages(tmp_path)


def without_age(page: str) -> str:
    """A page without the sentence that today's code adds to it."""
    return page.replace(f" {CODE_HAS_CHANGED}", "")


@pytest.mark.slow
def test_every_page_of_a_suite_in_the_repository_is_what_its_rows_give(tmp_path: Path) -> None:
    """A page in the repository equals what is made again from the rows beside it."""
    shutil.copytree(RESULTS, tmp_path / "results")
    made = rebuild_pages(tmp_path / "results")
    assert len(made) > len(by_page(read_published(RESULTS)))
    for path in made:
        kept = (RESULTS / path.name).read_text()
        # Another matplotlib draws the same in other words.
        if path.suffix == ".md" or f"Matplotlib v{mpl.__version__}" in kept:
            assert without_age(path.read_text()) == without_age(kept), path.name


def test_rows_in_the_repository_are_small() -> None:
    files = list((RESULTS / ROWS_FOLDER).iterdir())
    assert files
    assert all(path.stat().st_size < MAX_BYTES for path in files)


def test_a_page_of_a_suite_without_rows_says_so() -> None:
    """Each page of a suite can be made again, or says that it cannot."""
    known = by_page(read_published(RESULTS))
    pages = [path for path in RESULTS.glob("*.md") if path.stem in SUITES]
    for path in pages:
        assert (path.stem in known) != (LOST in path.read_text()), path.name
    assert pages


def test_the_readme_says_what_the_rows_say() -> None:
    """`make pages` writes the sentences; nobody types them in."""
    readme = (RESULTS.parents[1] / "README.md").read_text()
    lines = sentences(RESULTS)
    assert with_results(readme, lines) == readme
    assert lines[0] in (RESULTS / f"{FRONT_PAGE}.md").read_text()
    with pytest.raises(ValueError, match="lacks"):
        with_results("no marks", lines)


def test_a_page_names_what_of_its_suite_was_not_run_and_the_command_of_what_was(
    tmp_path: Path,
) -> None:
    store_of([*rows_of("iblm", 0, 1), *rows_of("lsuv", 0)], tmp_path / "rows")
    write_report(tmp_path / "rows", tmp_path / "pages")
    page = (tmp_path / "pages" / "regression-deep.md").read_text()
    assert "Not run of this suite: protein; uninformative; heuristic; xavier; orthogonal;" in page
    assert "Runs of each line: iblm on powerplant mlp-5x100: 2; lsuv on powerplant" in page
    front = (tmp_path / "pages" / f"{FRONT_PAGE}.md").read_text()
    named = "--splits 2 --dataset powerplant --label lsuv --label iblm"
    assert f"headstart reproduce regression-deep --budget quick {named}" in front
