"""The page of an optimizer: paired verdicts against Adam, and whether a start is kept."""

from __future__ import annotations

from headstart.experiments.pages import page_of
from headstart.experiments.pages.optimizers import judged_optimizers
from headstart.experiments.results import results_of
from headstart.experiments.spec import ResultRow
from headstart.reporting.document import to_markdown
from tests.experiments.conftest import row


def runs_of(suite: str, optimizer: str, *curves: tuple[float, ...]) -> list[ResultRow]:
    """A run for each curve: its values at steps 0, 10, 200."""
    label = f"iblm, {optimizer}"
    shared = {"suite": suite, "label": label, "optimizer": optimizer}
    return [
        row("iblm", split, step, value, run=f"{label}{split}", last=step == 200, **shared)
        for split, curve in enumerate(curves)
        for step, value in zip((0, 10, 200), curve, strict=True)
    ]


def test_the_verdict_compares_the_default_with_adam_paired_over_splits() -> None:
    """At step 200 the differences are −0.10, −0.12, −0.11; at step 10 they are −0.1, 0.1, 0."""
    rows = [
        *runs_of("gained-regression", "averaged", (1, 0.5, 0.4), (1, 0.7, 0.5), (1, 0.6, 0.6)),
        *runs_of("gained-regression", "adam", (1, 0.6, 0.5), (1, 0.6, 0.62), (1, 0.6, 0.71)),
    ]
    results = results_of("gained-regression", rows)
    cells = judged_optimizers(results)
    verdicts = {(step, metric): cell.verdict for (_, _, step, metric), cell in cells.items()}
    assert verdicts == {
        (10, "rmse"): "level",
        (10, "mnll"): "level",
        (200, "rmse"): "ahead",
        (200, "mnll"): "ahead",
    }
    said = page_of("gained-regression").sentence(results)
    assert "the default optimizer is ahead in 2, level in 2, behind in 0 of 4 cells" in said
    # t = 16.5 with two degrees of freedom, p = 0.0037 twice: 4 p < 0.05.
    assert "Of 4 such intervals about 0 would exclude zero if nothing differed" in said
    assert "2 stay ahead and 0 behind" in said
    page = to_markdown(page_of("gained-regression").blocks("gained-regression", results))
    assert "| 200 | 1 ahead | 1 ahead |" in page
    assert "The default optimizer is behind nowhere" in page


def test_where_the_default_is_behind_the_page_says_so() -> None:
    rows = [
        *runs_of("gained-regression", "averaged", (1, 0.6, 0.6), (1, 0.7, 0.72)),
        *runs_of("gained-regression", "adam", (1, 0.6, 0.5), (1, 0.7, 0.62)),
    ]
    page = to_markdown(page_of("gained-regression").blocks("x", results_of("x", _in("x", rows))))
    behind = (
        "| powerplant | iblm | 200 | RMSE | 0.6600 ± 0.085 | 0.5600 ± 0.085 | +0.1000 ± 0.000 |"
    )
    assert behind in page


def _in(suite: str, rows: list[ResultRow]) -> list[ResultRow]:
    return [{**one, "suite": suite} for one in rows]


def test_one_optimizer_or_one_run_has_numbers_and_no_verdict() -> None:
    alone = results_of("far-lenet", runs_of("far-lenet", "averaged", (1, 0.8, 0.7)))
    said = page_of("far-lenet").sentence(alone)
    assert said == (
        "One optimizer only was run here: there is no verdict. "
        "MNLL at the end: iblm, averaged on powerplant 0.7000."
    )
    both = [*alone.rows, *runs_of("far-lenet", "adam", (1, 0.8, 0.6))]
    assert (
        page_of("far-lenet")
        .sentence(results_of("far-lenet", both))
        .startswith("A single run of each: numbers without a verdict.")
    )


def test_a_kept_page_answers_both_questions_for_each_net_and_optimizer() -> None:
    """1.04 is within 5 %, 1.06 is not; 0.95 has gained, 0.96 has not."""
    rows = [
        *runs_of("kept-mnist", "averaged", (1.0, 1.04, 0.95)),
        *runs_of("kept-mnist", "adam", (1.0, 1.06, 0.96)),
    ]
    results = results_of("kept-mnist", rows)
    said = page_of("kept-mnist").sentence(results)
    assert "By the default optimizer the NLL stays within 5 % of step 0" in said
    assert "at every checkpoint on 1 of 1 nets, and ends at most at 0.95 of it on 1;" in said
    assert "at every checkpoint on 0 of 1 nets, and ends at most at 0.95 of it on 0." in said
    page = to_markdown(page_of("kept-mnist").blocks("kept-mnist", results))
    assert "| net | optimizer | step 10 | step 200 | within 5 % | ≤ 0.95 at 200 |" in page
    assert "| powerplant | averaged | 1.04 | 0.950 | **yes** | **yes** |" in page
    assert "| powerplant | adam | 1.06 | 0.960 | no | no |" in page
