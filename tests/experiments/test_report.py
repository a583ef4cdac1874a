"""The report: the right numbers, in tables and pictures that a browser shows."""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from headstart.errors import HeadstartError
from headstart.experiments import verdict
from headstart.experiments.code import code_hash
from headstart.experiments.execute import execute
from headstart.experiments.plan import comparison, plan
from headstart.experiments.report import read_results, write_report
from headstart.experiments.results import Results
from headstart.experiments.spec import ResultRow
from headstart.experiments.store import Store
from tests.browser import browse
from tests.experiments.conftest import row, store_of

HOSTILE = "<script>alert(1)</script>|$x$.csv"


@pytest.fixture
def made_up() -> list[ResultRow]:
    """powerplant, two splits: I-BLM starts ahead of orthogonal and ends behind it by 0.02.

    xavier does not converge, lsuv diverges.
    """
    rows = []
    for split, shift in ((0, 0.0), (1, 0.02)):
        rows += [row("iblm", split, 0, 0.3 + shift), row("iblm", split, 9, 0.26 + shift, last=True)]
        rows += [
            row("orthogonal", split, 0, 1.3 + shift),
            row("orthogonal", split, 9, 0.24 + shift, last=True),
        ]
        rows += [row("xavier", split, 0, 1.0), row("xavier", split, 9, 1.0, nc=True, last=True)]
        rows += [
            row("lsuv", split, 0, None),
            row("lsuv", split, 0, None, nc=True, failed="The loss", last=True),
        ]
    return rows


def test_tables_have_mean_and_spread_the_papers_numbers_bold_and_nc(
    made_up: list[ResultRow], tmp_path: Path
) -> None:
    store = store_of(made_up, tmp_path)
    store.note("headstart reproduce regression-deep")
    write_report(tmp_path, tmp_path / "pages")
    page = (tmp_path / "pages" / "regression-deep.md").read_text()
    lines = page.splitlines()
    assert "| initializer | powerplant | paper |" in lines
    assert "| iblm | 0.2700 ± 0.014 | 0.2472 ± 0.003 |" in lines
    assert "| orthogonal | **0.2500 ± 0.014** | 0.2467 ± 0.005 |" in lines
    assert "| xavier | 1.000 ± 0.000 NC | 0.2658 ± 0.030 |" in lines
    assert "| lsuv | NC | 0.2774 ± 0.026 |" in lines
    assert "| trivial predictor | 0.9800 |  |" in lines
    # Both after the same number of steps.
    assert "| iblm | **0.3100** | 0.2700 |" in lines
    behind = "0.2700 ± 0.014 | orthogonal | 0.2500 ± 0.014 | +0.0200 ± 0.000 |"
    assert f"| powerplant | 9 | RMSE | {behind}" in lines
    assert f"| powerplant | 9 | MNLL | {behind}" in lines
    assert "| 9 | 1 behind | 1 behind |" in lines
    assert "RMSE on powerplant 0.2700, the paper's 0.2472." in page
    assert f"Code {code_hash()} (headstart.experiments.run, headstart " in lines[4]
    opening = (tmp_path / "pages" / "README.md").read_text()
    assert "    headstart reproduce regression-deep" in opening
    assert "- [regression-deep](regression-deep.md). Against the rival that is best" in opening
    assert behind in opening
    assert "torch 2.0" in opening
    assert "| prior variance | 1.0 |" in opening
    assert "| KL weight | 1.0 |" in opening


def test_the_verdict_says_where_iblm_is_behind(made_up: list[ResultRow]) -> None:
    assert verdict.verdict_sentence(Results(made_up)).startswith(
        "Against the rival that is best in the mean, paired over splits with 95 % intervals, "
        "I-BLM is ahead in 2, level in 0, behind in 2 of 4 cells "
        "(RMSE, MNLL at every evaluated step)."
    )
    others = Results(r for r in made_up if r["init"] != "iblm")
    assert (
        verdict.verdict_sentence(others) == "I-BLM was not compared with other initializers here."
    )


def test_a_page_never_mixes_codes(made_up: list[ResultRow], tmp_path: Path) -> None:
    """Rows of other code are left out; where there are none of today's, the last code is shown."""
    old = [{**r, "run": f"old {r['run']}", "rmse": 9.0, "code": "0" * 12} for r in made_up]
    store_of([*made_up, *old], tmp_path / "both")
    write_report(tmp_path / "both", tmp_path / "both")
    page = (tmp_path / "both" / "regression-deep.md").read_text()
    assert f"Code {code_hash()} (" in page
    assert "16 rows of other code were left out." in (tmp_path / "both" / "report.md").read_text()
    assert "| iblm | 0.2700 ± 0.014 |" in page
    assert "has changed since" not in page
    store_of([*({**r, "code": "1" * 12} for r in made_up), *old], tmp_path / "old")
    write_report(tmp_path / "old", tmp_path / "old")
    page = (tmp_path / "old" / "regression-deep.md").read_text()
    assert "Code 000000000000 (" in page
    said = "The code has changed since. 16 rows of other code were left out."
    assert said in (tmp_path / "old" / "report.md").read_text()
    assert "The code has changed since." in page
    assert "| iblm | 9.000 ± 0.000 |" in page


@pytest.mark.parametrize(
    ("code", "said", "stamp"),
    [
        ("0" * 12, "By code 000000000000.", "Code 000000000000 ("),
        ("", "By code that is not known.", "This page predates the code hash"),
    ],
)
def test_the_overview_names_the_code_of_a_suite_that_has_another(
    made_up: list[ResultRow], tmp_path: Path, code: str, said: str, stamp: str
) -> None:
    other = {"suite": "protein-long", "code": code}
    store_of([*made_up, *({**r, "run": f"x{r['run']}", **other} for r in made_up)], tmp_path)
    write_report(tmp_path, tmp_path)
    opening = (tmp_path / "README.md").read_text()
    short = opening.split("### In short")[1].split("###")[0]
    of_today, of_other = (line for line in short.splitlines() if line.startswith("- ["))
    assert "ahead in 2, level in 0, behind in 2 of 4 cells" in of_today
    assert "By code" not in of_today
    assert of_other.startswith("- [protein-long](protein-long.md). ")
    assert of_other.endswith(said)
    assert "rows of other code" not in opening
    assert "| suite | regression-deep | protein-long |" in opening
    assert stamp in (tmp_path / "protein-long.md").read_text()


def test_an_empty_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HeadstartError, match="no finished runs"):
        read_results(Store(tmp_path))


def test_nothing_from_data_is_taken_for_markup(tmp_path: Path) -> None:
    path = tmp_path / HOSTILE.replace("/", "\u2215")
    path.write_text("a,<b>\n" + "".join(f"{i / 2},{i * i}\n" for i in range(40)))
    store = Store(tmp_path / "out")
    execute(
        comparison(str(path), "mlp-1x10", ["iblm", "xavier"], target="<b>", steps=3), store, jobs=1
    )
    store.note(f"headstart compare --dataset '{path}'")
    page = write_report(store.folder)[0].read_text()
    assert "<script" not in page
    assert html.escape(path.name) in page
    assert "\\<script\\>" in (store.folder / "report.md").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, filled: Store) -> Path:
    """A report with a comparison and the toy's predictions."""
    store = Store(tmp_path_factory.mktemp("report"))
    shutil.copy(filled.path, store.path)
    execute(plan("toy-predictions"), store, jobs=1)
    store.note("headstart compare & more")
    write_report(store.folder, store.folder / "pages")
    return store.folder


@pytest.mark.slow
def test_pictures_of_the_pages_are_small_and_named_in_them(folder: Path) -> None:
    pages = folder / "pages"
    pictures = {
        name
        for page in pages.glob("*.md")
        for name in re.findall(r"\]\(([\w-]+\.svg)\)", page.read_text())
    }
    assert (
        pictures
        == {path.name for path in pages.glob("*.svg")}
        == {"compare-curves.svg", "toy-predictions-predictions.svg"}
    )
    assert all(path.stat().st_size < 300_000 for path in pages.glob("*.svg"))


@pytest.mark.slow
def test_the_same_rows_give_the_same_report(folder: Path, tmp_path: Path) -> None:
    for name in ("rows.jsonl", "commands.txt"):
        shutil.copy(folder / name, tmp_path / name)
    assert write_report(tmp_path)[0].read_text() == (folder / "report.html").read_text()


@pytest.mark.slow
def test_a_browser_shows_the_tables_and_draws_the_curves(folder: Path, tmp_path: Path) -> None:
    page = folder / "report.html"
    dom = browse(page, tmp_path / "profile", "--dump-dom")
    assert "headstart compare &amp; more" in dom
    assert not re.search(r"(src|href)=\"http", dom.replace("xlink:href", ""))
    cells = re.findall(r"<td[^>]*>(?:<strong>)?([^<]*)", dom)
    last = [
        r
        for r in Store(folder).rows()
        if r.get("last") and r["suite"] == "compare" and r["init"] == "iblm"
    ]
    mean = sum(r["rmse"] for r in last) / len(last)
    assert any(cell.startswith(f"{mean:.4f} ±") for cell in cells)
    assert {"xavier", "lsuv", "iblm", "uninformative", "trivial predictor"} <= set(cells)
    curves = dom[dom.index('<figure id="compare-curves">') :].partition("</figure>")[0]
    assert len(re.findall(r'<g id="line2d_', curves)) > 6
    assert {"step", "test RMSE (standardized)", "test MNLL (nats per row)", "iblm"} <= set(
        re.findall(r"<text[^>]*>([^<]*)<", curves)
    )
    assert '<figure id="toy-predictions-predictions">' in dom


@pytest.mark.slow
def test_the_curves_have_their_colours_on_the_screen(folder: Path, tmp_path: Path) -> None:
    shot = tmp_path / "shot.png"
    browse(
        folder / "report.html",
        tmp_path / "profile",
        f"--screenshot={shot}",
        "--window-size=1300,4000",
    )
    with Image.open(shot) as picture:
        colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 24)}
    # The colors of iblm, lsuv, xavier and uninformative.
    for wanted in ("#e15759", "#59a14f", "#edc948", "#8c8c8c"):
        assert tuple(int(wanted[i : i + 2], 16) for i in (1, 3, 5)) in colours
