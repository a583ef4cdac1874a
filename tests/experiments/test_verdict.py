"""Who is ahead, and by how much more than chance."""

from __future__ import annotations

import pytest

from headstart.experiments import targets, verdict
from headstart.experiments.summary import Difference, Results, paired
from headstart.reporting.document import to_markdown
from tests.experiments.conftest import row


def race(ours: list[float | None], theirs: list[float], step: int = 100, **more: object) -> Results:
    """I-BLM and orthogonal at one step, split by split."""
    found = {"iblm": ours, "orthogonal": theirs}
    return Results(
        row(init, k, step, v, **more)
        for init, values in found.items()
        for k, v in enumerate(values)
    )


def test_the_standard_error_is_that_of_the_paired_difference() -> None:
    """Differences 0.1, 0.2, 0.6: mean 0.3, sample variance 0.07, over three runs √(0.07/3)."""
    found = paired(
        {(0, 0): 1.1, (1, 1): 2.2, (2, 2): 3.6},
        {(0, 0): 1.0, (1, 1): 2.0, (2, 2): 3.0, (3, 3): 9.0},
    )
    assert found is not None
    assert found.mean == pytest.approx(0.3)
    assert found.se == pytest.approx((0.07 / 3) ** 0.5)
    assert paired({(0, 0): 1.0}, {(0, 0): 0.5}) == Difference(0.5, None)
    assert paired({(0, 0): 1.0}, {(1, 1): 0.5}) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "lost"),
    [
        ([1.0, 2.0], [1.1, 1.8], False),  # behind by 0.05 ± 0.15
        (
            [1.0, 2.0],
            [0.9, 1.8],
            True,
        ),  # behind by 0.15 ± 0.05, though runs differ by 1 from split to split
        ([1.0, 2.0], [1.0, 2.0], False),
        ([1.0], [0.99], True),  # one split: no standard error to hide behind
        ([1.0], [1.01], False),
        ([1.0, None], [9.0, 9.0], True),  # not finite
    ],
)
def test_a_cell_is_lost_beyond_one_standard_error(
    ours: list[float | None], theirs: list[float], lost: bool
) -> None:
    assert [cell.lost for cell in verdict.judge(race(ours, theirs))] == [lost, lost]


def test_a_run_that_broke_down_before_a_step_loses_it() -> None:
    rows = [
        *race([0.1, 0.1], [0.5, 0.5]).rows,
        row("orthogonal", 0, 200, 0.5),
        row("orthogonal", 1, 200, 0.5),
    ]
    rows += [row("iblm", 0, 200, 0.1), row("iblm", 1, 100, 0.1, failed="The loss", last=True)]
    assert [(cell.step, cell.lost) for cell in verdict.judge(Results(rows))][::2] == [
        (100, False),
        (200, True),
    ]


def test_judged_are_the_named_steps_and_the_last_and_only_where_there_is_a_rival() -> None:
    rows = [
        row(init, 0, step, 1.0)
        for init in ("iblm", "lsuv")
        for step in (0, 50, 100, 200, 500, 1000)
    ]
    rows += [row("iblm", 0, step, 1.0, dataset="protein") for step in (0, 100)]
    cells = verdict.judge(Results(rows))
    assert {cell.problem for cell in cells} == {"powerplant"}
    assert sorted({cell.step for cell in cells}) == [0, 100, 500, 1000]


def test_the_overview_lists_lost_cells_by_suite_or_says_that_there_are_none() -> None:
    won, lost = race([1.0, 2.0], [1.5, 2.5]), race([1.0, 2.0], [0.9, 1.8])
    page = to_markdown(verdict.lost_cells({"a": won, "b": lost}))
    assert page.count("\n| b | powerplant | 100 |") == 2
    assert "| a |" not in page
    assert "1.500 ± 0.500 | orthogonal | 1.350 ± 0.450 | 0.1500 ± 0.050 |" in page
    assert "No cell is lost" in to_markdown(verdict.lost_cells({"a": won}))
    assert verdict.sentence(won).endswith("no cell is lost.")
    assert verdict.lost_cells({"a": Results([row("iblm", 0, 0, 1.0)])}) == []


def test_nets_are_judged_apart() -> None:
    rows = [*race([1.0], [2.0], model="mlp-1x10").rows, *race([2.0], [1.0], model="mlp-2x10").rows]
    assert [cell.problem for cell in verdict.judge(Results(rows)) if cell.lost] == [
        "powerplant mlp-2x10"
    ] * 2


def test_targets_show_what_was_measured_and_nothing_else() -> None:
    rows = [row("iblm", k, 200, v, dataset="protein") for k, v in enumerate((0.80, 0.82))]
    rows += [row("iblm", k, 2000, v, dataset="protein") for k, v in enumerate((0.75, 0.77))]
    page = to_markdown(targets.table({"regression-deep": Results(rows)}))
    assert "| protein | mlp-5x100 | 200 | RMSE | ≤ 0.8200 | 0.8100 ± 0.014 | yes |" in page
    assert "| protein | mlp-5x100 | 2000 | RMSE | ≤ 0.7500 | 0.7600 ± 0.014 | no |" in page
    assert len(page.strip().splitlines()) == 2 + 4
    assert targets.table({"toy-convergence": Results(rows)}) == []


def test_methods_are_compared_from_their_best_starts() -> None:
    def end(label: str, method: str, error: float) -> dict[str, object]:
        names = {
            "dataset": "mnist",
            "model": "lenet",
            "init": label,
            "label": label,
            "method": method,
        }
        return {
            **names,
            "step": 9,
            "split": 0,
            "seed": 0,
            "run": label,
            "error": error,
            "last": True,
        }

    rows = [
        end("iblm", "svi", 0.02),
        end("xavier", "svi", 0.9),
        end("a", "noisy-kfac", 0.03),
        end("b", "noisy-kfac", 0.01),
    ]
    expected = "The best of each method at the end. Error on mnist: svi 0.0200 (iblm), noisy-kfac 0.0100 (b)."
    assert verdict.by_method(Results(rows)) == expected
