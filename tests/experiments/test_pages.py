"""Pages of their own: the ablation, rows, time against quality."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from headstart.experiments.execute import execute
from headstart.experiments.pages import page_of
from headstart.experiments.pages.ablation import MAIN_METRIC, overall
from headstart.experiments.pages.pareto import pareto_front
from headstart.experiments.plan import plan
from headstart.experiments.report import read_results, write_report
from headstart.experiments.results import results_of
from headstart.experiments.spec import ResultRow
from headstart.experiments.store import Store
from headstart.experiments.variants import ABLATION_VARIANTS, PARETO_VARIANTS
from headstart.reporting.document import to_markdown
from tests.experiments.conftest import row


def variant(label: str, dataset: str, split: int, value: float, **more: object) -> ResultRow:
    return row(
        "iblm", split, 100, value, label=label, dataset=dataset, suite="iblm-ablation", **more
    )


@pytest.fixture
def ablation() -> list[ResultRow]:
    """Two data sets, four splits; the means of `noise 1` are 0.8 and 2 times the default's."""
    rows = []
    for label, power, protein in (
        ("default", (0.5, 1.0, 0.5, 1.0), (0.3, 0.5, 0.3, 0.5)),
        ("noise 1", (0.4, 0.8, 0.35, 0.85), (0.7, 0.9, 0.7, 0.9)),
        ("256 rows", (0.3, 1.1, 0.3, 1.1), (0.3, 0.5, 0.3, 0.5)),
    ):
        rows += [variant(label, "powerplant", split, value) for split, value in enumerate(power)]
        rows += [variant(label, "protein", split, value) for split, value in enumerate(protein)]
    return rows


def test_the_last_column_is_a_geometric_mean_of_ratios_or_a_mean_difference(
    ablation: list[ResultRow],
) -> None:
    results = results_of("iblm-ablation", ablation)
    assert overall(results, "noise 1", 100, MAIN_METRIC) == pytest.approx(
        100 * ((0.8 * 2) ** 0.5 - 1)
    )
    assert overall(results, "noise 1", 100, "mnll") == pytest.approx((-0.15 + 0.4) / 2)
    assert overall(results, "default", 100, MAIN_METRIC) == 0
    assert overall(results, "paper", 100, MAIN_METRIC) is None


def test_bold_is_ahead_of_the_default_by_a_whole_interval(ablation: list[ResultRow]) -> None:
    """Differences of `noise 1` are −0.1, −0.2, −0.15, −0.15: s² = 0.005/3, t₃ = 3.182.

    The interval is −0.15 ± 3.182 √((1/4 + 1/9) s²) = −0.15 ± 0.078.
    Those of `256 rows` are −0.2 and 0.1, twice: level.
    """
    page = to_markdown(
        page_of("iblm-ablation").blocks("iblm-ablation", results_of("iblm-ablation", ablation))
    )
    assert "| default | 0.7500 | 0.4000 | +0.0 % |" in page
    assert "| noise 1 | **0.6000** | 0.8000 | +26.5 % |" in page
    assert "| 256 rows | 0.7000 | 0.4000 | -3.4 % |" in page
    assert "| noise 1 | **0.6000** | 0.8000 | +0.125 |" in page


def test_a_variant_that_broke_down_somewhere_has_no_mean_change(ablation: list[ResultRow]) -> None:
    broken = variant("variance x 4", "powerplant", 0, 0.1, run="x", failed="The loss", last=True)
    good = variant("variance x 4", "protein", 0, 0.1, run="y")
    results = results_of("iblm-ablation", [*ablation, broken, good])
    assert overall(results, "variance x 4", 100, MAIN_METRIC) is None
    assert "| variance x 4 | NC | 0.1000 | - |" in to_markdown(
        page_of("iblm-ablation").blocks("", results)
    )
    assert page_of("iblm-ablation").sentence(results) == (
        "At step 100, in the mean over data sets, 1 of 2 variants have a lower error or RMSE "
        "than the default: 256 rows (-3.4 %)."
    )


def test_the_front_is_what_nothing_beats() -> None:
    places = {
        "a": (1.0, 9.0),
        "b": (2.0, 4.0),
        "c": (3.0, 4.0),
        "d": (2.5, 3.0),
        "e": (9.0, 3.0),
        "f": (10.0, 1.0),
    }
    assert pareto_front(places) == ["a", "b", "d", "f"]
    assert pareto_front({"one": (1.0, 1.0), "same": (1.0, 1.0)}) == ["one", "same"]
    assert pareto_front({}) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suites with pages of their own, run for real: small nets on digits, few rows."""
    runs = [
        dataclasses.replace(
            run, dataset="digits", model="mlp-2x10", checkpoints=(2,), samples=2, eval_samples=4
        )
        for suite in ("iblm-ablation", "iblm-rows", "iblm-pareto")
        for run in plan(suite, steps=3, splits=1)
        if run.dataset == "mnist"
        and (suite != "iblm-rows" or run.init_options["rows"] in (32, 1024, 8192))
    ]
    deep = [
        dataclasses.replace(
            run, dataset="toy", model=run.model.replace("0x", "x"), samples=2, eval_samples=4
        )
        for run in plan("deep-starts", steps=2)
        if "1000" not in run.model
    ]
    store = Store(tmp_path_factory.mktemp("pages"))
    outcome = execute([*runs, *deep], store, jobs=1)
    assert outcome.finished == len(runs) + len(deep)
    assert outcome.faults == []
    write_report(store.folder, store.folder / "pages")
    return store.folder


@pytest.mark.slow
def test_every_variant_runs_and_has_its_line(folder: Path) -> None:
    pages = folder / "pages"
    page = (pages / "iblm-ablation.md").read_text()
    for step in (0, 2, 3):
        section = (
            page[page.index(f"### Error at step {step}") :].partition("###")[2].partition("###")[0]
        )
        names = re.findall(r"^\| ([^|]+) \|", section, flags=re.MULTILINE)
        assert names == ["variant", *(variant.label for variant in ABLATION_VARIANTS)]
    rows = (pages / "iblm-rows.md").read_text()
    assert re.search(r"^\| 1024 \| [\d.]+ \| [\d.]+ \| [\d.]+ \|$", rows, flags=re.MULTILINE)
    assert re.search(r"^\| 8192 \| [\d.]+ \| [\d.]+ \|  \|$", rows, flags=re.MULTILINE)
    pareto = (pages / "iblm-pareto.md").read_text()
    assert all(f"| {variant.label} |" in pareto for variant in PARETO_VARIANTS)
    assert "| **yes** |" in pareto


@pytest.mark.slow
def test_pictures_name_their_axes_and_lines(folder: Path) -> None:
    def words(name: str) -> set[str]:
        return set(re.findall(r"<text[^>]*>([^<]*)<", (folder / "pages" / name).read_text()))

    assert {
        "rows of a batch",
        "test MNLL (nats per row)",
        "test error (fraction)",
        "8192",
        "iblm, rows and read-out",
    } <= words("iblm-rows-curves.svg")
    assert any(word.startswith("time of initiali") for word in words("iblm-pareto-digits.svg"))
    assert {
        "test MNLL (nats per row)",
        *(v.label for v in PARETO_VARIANTS),
    } <= words("iblm-pareto-digits.svg")


@pytest.mark.slow
def test_nets_of_a_suite_stand_apart(folder: Path) -> None:
    results = read_results(Store(folder))["deep-starts"]
    assert results.problems == ["toy mlp-2x50", "toy mlp-2x50-tanh"]
    page = (folder / "pages" / "deep-starts.md").read_text()
    assert "| initializer | toy mlp-2x50 | toy mlp-2x50-tanh |" in page


@pytest.mark.slow
def test_the_overview_has_no_verdicts_on_single_runs(folder: Path) -> None:
    opening = (folder / "pages" / "README.md").read_text()
    assert "Where I-BLM is behind" not in opening
    assert "A single run of each: numbers without a verdict." in opening
    for name in ("iblm-ablation", "iblm-rows", "iblm-pareto", "deep-starts"):
        assert f"- [{name}]({name}.md). " in opening
