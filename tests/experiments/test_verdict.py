"""Who is ahead, and what has no verdict."""

from __future__ import annotations

import pytest

from headstart.experiments import verdict
from headstart.experiments.results import Results
from headstart.experiments.variants import DEFAULTS_LABEL
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


@pytest.mark.parametrize(
    ("ours", "theirs", "word"),
    [
        ([1.0, 2.0, 3.0], [1.1, 1.8, 3.2], "level"),
        # Behind by 0.1, though runs differ by 1 from split to split.
        ([1.0, 2.0, 3.0], [0.9, 1.91, 2.89], "behind"),
        ([1.0, 2.0, 3.0], [1.1, 2.09, 3.11], "ahead"),
        ([1.0, 2.0], [1.0, 2.0], "level"),
        ([1.0], [0.5], None),
        # One of ours is not finite.
        ([1.0, None], [9.0, 9.0], "behind"),
        ([None], [9.0], None),
    ],
)
def test_a_cell_has_the_word_of_its_interval(
    ours: list[float | None], theirs: list[float], word: str | None
) -> None:
    cells = verdict.judge(race(ours, theirs))
    assert [(cell.metric, cell.verdict) for cell in cells] == [("rmse", word), ("mnll", word)]


def test_resampled_splits_need_more_than_a_fixed_test_set() -> None:
    """Differences −0.1, −0.3, −0.5, −0.2: −0.275 ± 0.272 on a fixed test set, else ± 0.327."""
    values = [0.9, 1.7, 2.5, 3.8], [1.0, 2.0, 3.0, 4.0]
    for ratio, word in ((0.0, "ahead"), (1 / 9, "level")):
        cells = verdict.judge(race(values[0], values[1], test_to_train=ratio))
        assert {cell.verdict for cell in cells} == {word}
    old = {"dataset": "mnist"}, {"dataset": "powerplant"}
    assert [race(*values, **more).test_to_train(more["dataset"]) for more in old] == [0, 1 / 9]


def test_metrics_where_higher_is_better_count_too() -> None:
    ours, theirs = [0.90, 0.91, 0.92], [0.95, 0.961, 0.969]
    rows = [
        row(init, k, 5, 0.5 if init == "iblm" else 0.6, auroc=value, entropy=value)
        for init, values in (("iblm", ours), ("lsuv", theirs), ("xavier", [0.5, 0.5, 0.5]))
        for k, value in enumerate(values)
    ]
    cells = {cell.metric: cell for cell in verdict.judge(Results(rows))}
    assert (cells["auroc"].rival, cells["auroc"].verdict) == ("lsuv", "behind")
    assert "entropy" not in cells
    assert Results(rows).best("powerplant", "auroc") is None
    ended = Results({**each, "last": True} for each in rows)
    assert (ended.best("powerplant", "auroc"), ended.best("powerplant", "rmse")) == ("lsuv", "iblm")


def test_a_run_that_broke_down_before_a_step_is_behind_there() -> None:
    rows = [*race([0.1, 0.1], [0.5, 0.5]).rows]
    rows += [row("orthogonal", k, 200, 0.5) for k in (0, 1)]
    rows += [row("iblm", 0, 200, 0.1), row("iblm", 1, 100, 0.1, failed="The loss", last=True)]
    found = [(cell.step, cell.verdict) for cell in verdict.judge(Results(rows))]
    assert found[::2] == [(100, "ahead"), (200, "behind")]


def test_every_evaluated_step_is_judged_and_only_where_there_is_a_rival() -> None:
    steps = (0, 50, 100, 200, 500, 1000)
    rows = [row(init, 0, step, 1.0) for init in ("iblm", "lsuv") for step in steps]
    rows += [row("iblm", 0, step, 1.0, dataset="protein") for step in (0, 100)]
    cells = verdict.judge(Results(rows))
    assert {cell.problem for cell in cells} == {"powerplant"}
    assert sorted({cell.step for cell in cells}) == list(steps)


def test_the_overview_lists_the_cells_behind_by_suite_or_says_that_there_are_none() -> None:
    won = race([1.0, 2.0, 3.0], [1.5, 2.5, 3.5])
    lost = race([1.0, 2.0, 3.0], [0.9, 1.91, 2.89])
    page = to_markdown(verdict.cells_behind({"a": won, "b": lost}))
    assert page.count("\n| b | powerplant | 100 |") == 2
    assert "| a |" not in page
    assert "2.000 ± 1.00 | orthogonal | 1.900 ± 0.995 | +0.1000 ± 0.029 |" in page
    assert "No interval of a race of initializers lies" in to_markdown(
        verdict.cells_behind({"a": won})
    )
    assert "| 100 | 1 ahead | 1 ahead |" in to_markdown(verdict.verdict_table(won))


def test_single_runs_have_numbers_and_no_verdict() -> None:
    single = race([1.0], [2.0])
    assert verdict.verdict_sentence(single) == "A single run of each: numbers without a verdict."
    assert verdict.verdict_table(single) == verdict.cells_behind({"a": single}) == []
    assert verdict.cells_behind({"a": Results([row("iblm", 0, 0, 1.0)])}) == []


def test_nets_are_judged_apart() -> None:
    rows = [
        *race([1.0, 2.0], [2.0, 3.0], model="mlp-1x10").rows,
        *race([2.0, 3.0], [1.0, 2.0], model="mlp-2x10").rows,
    ]
    behind = [c.problem for c in verdict.judge(Results(rows)) if c.verdict == "behind"]
    assert behind == ["powerplant mlp-2x10"] * 2


def test_methods_are_compared_from_their_best_starts() -> None:
    def end(label: str, method: str, error: float) -> dict[str, object]:
        names = {"dataset": "mnist", "model": "lenet", "init": label, "label": label}
        place = {"step": 9, "split": 0, "seed": 0, "run": label, "last": True}
        return {**names, **place, "method": method, "error": error}

    rows = [
        end("iblm", "svi", 0.02),
        end("xavier", "svi", 0.9),
        end("a", "noisy-kfac", 0.03),
        end("b", "noisy-kfac", 0.01),
    ]
    assert verdict.best_of_each_method(Results(rows)) == (
        "The best of each method at the end. "
        "Error on mnist: svi 0.0200 (iblm), noisy-kfac 0.0100 (b)."
    )


def test_our_own_defaults_are_no_rival() -> None:
    """The line of the library's defaults starts from I-BLM too: it is not what I-BLM is beside."""
    rows = [
        row("iblm", 0, 9, 0.3, last=True),
        row("iblm", 0, 9, 0.1, last=True, label=DEFAULTS_LABEL, run="d"),
        row("lsuv", 0, 9, 0.4, last=True),
    ]
    assert {cell.rival for cell in verdict.judge(Results(rows))} == {"lsuv"}
