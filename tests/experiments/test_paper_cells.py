"""The paper's I-BLM numbers beside ours."""

from __future__ import annotations

from headstart.experiments.paper_cells import paper_blocks, paper_cells, paper_sentence
from headstart.experiments.results import Results, by_page
from headstart.experiments.spec import ResultRow
from headstart.experiments.variants import DEFAULTS_LABEL
from headstart.reporting.document import to_markdown
from tests.experiments.conftest import row


def at_the_end(rmse: float | None, split: int = 0, **more: object) -> ResultRow:
    return row("iblm", split, 9, rmse, **{"last": True, "budget": "paper", "run": "x", **more})


def pages_of(*rows: ResultRow) -> dict[str, Results]:
    return by_page(rows)


def test_every_iblm_number_of_the_paper_is_there_and_none_is_run_without_rows() -> None:
    cells = paper_cells({})
    assert len(cells) == 30
    assert len([cell for cell in cells if cell.suite == "vgg16-rivals"]) == 2
    assert {cell.best_state for cell in cells} == {"not run"}
    said = "None of the paper's 30 I-BLM numbers is run at its budget yet."
    assert paper_sentence(cells) == said


def test_below_is_beaten_within_a_standard_deviation_reached_above_missed() -> None:
    """The paper's RMSE on powerplant is 0.2472 ± 0.003, its NLL −0.7455 ± 0.008."""
    states = {}
    for rmse in (0.2471, 0.2472, 0.2501, 0.2503, None):
        cells = paper_cells(pages_of(at_the_end(rmse, paper_nll=-0.7455)))
        (one,) = [c for c in cells if (c.suite, c.dataset) == ("regression-deep", "powerplant")][:1]
        states[rmse] = one.state("iblm")
    assert states == {
        0.2471: "beaten",
        0.2472: "reached",
        0.2501: "reached",
        0.2503: "missed",
        None: "missed",
    }


def test_the_better_protocol_counts_and_both_are_shown_with_their_runs() -> None:
    rows = [
        at_the_end(0.30, paper_nll=-0.70),
        at_the_end(0.20, label=DEFAULTS_LABEL, run="y", paper_nll=-0.80),
        at_the_end(0.22, 1, label=DEFAULTS_LABEL, run="z", paper_nll=-0.80),
    ]
    pages = pages_of(*rows)
    said = paper_sentence(paper_cells(pages))
    assert "2 beaten, 0 reached, 0 missed, and 28 are not run at its budget" in said
    assert said.endswith("; without VGG16 2 of 28 are beaten or reached.")
    page = to_markdown(paper_blocks(pages))
    start = "| mlp-5x100 | powerplant | RMSE | 0.2472 ± 0.003 | 0.3000 | missed |"
    assert f"{start} 0.2100 ± 0.014 (2) | **beaten** | 9 steps, S = 16, code " in page


def test_the_quick_budget_is_not_the_papers() -> None:
    cells = paper_cells(pages_of(at_the_end(0.1, budget="quick")))
    assert {cell.best_state for cell in cells} == {"not run"}
