"""Time to quality: when a run has reached its target, which runs are due, which rows they see."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from headstart.bench import quality_command, quality_curve, quality_plan, quality_runs
from headstart.bench.learners import OURS, QUALITY_METHODS
from headstart.bench.quality_curve import (
    Learner,
    first_reached,
    has_settled,
    reached_before,
    stopped_early,
    train_curve,
)
from headstart.bench.quality_plan import QualityFile, planned, run_all, target_reached
from headstart.bench.quality_rows import (
    QUALITY_TASKS,
    QualityRows,
    averaged_nll,
    label_log_probs,
    read_rows,
    split_uses,
)
from headstart.bench.quality_runs import (
    TARGET_PATIENCE,
    QualityRun,
    cached_rows,
    do_run,
    lowest_before_patience,
    run_alone,
    target_of,
)
from headstart.bench.quality_summary import fastest, summarize_setting, summarize_task
from headstart.cli import app
from headstart.errors import HeadstartError

Curve = list[dict[str, float]]


def both(*scores: tuple[float, float]) -> Curve:
    """An evaluation every second, with scores of validation and of test rows."""
    return [
        {"wall": float(second), "cpu": second / 2, "valid": valid, "test": test}
        for second, (valid, test) in enumerate(scores)
    ]


def curve(*scores: float) -> Curve:
    """An evaluation every second, with the same scores of both parts."""
    return both(*((score, score) for score in scores))


def test_a_target_is_reached_where_scores_stay_at_or_below_it() -> None:
    hit = first_reached(curve(3, 1, 2.5, 2, 0.5), 2.0)
    assert hit is not None
    assert hit["wall"] == 3.0
    assert first_reached(curve(3, 1, 2.5), 2.0) is None
    assert first_reached(curve(3, 1, math.nan), 2.0) is None
    assert first_reached([], 2.0) is None


def test_what_comes_after_the_limit_is_not_reached() -> None:
    scores = curve(3, 3, 3, 1)
    assert reached_before(scores, 2.0, limit=3.0) == scores[3]
    assert reached_before(scores, 2.0, limit=2.9) is None
    assert reached_before(scores, 2.0, limit=1.5, clock="cpu") == scores[3]


def test_early_stopping_has_the_test_score_of_the_lowest_validation_score_so_far() -> None:
    scores = both((3, 5), (2, 4), (2.5, 1), (2, 0), (1, 6))
    found = stopped_early(scores)
    # Of two that are level the first stays.
    assert [point["test"] for point in found] == [5, 4, 4, 4, 6]
    assert [point["valid"] for point in found] == [3, 2, 2, 2, 1]
    assert [point["wall"] for point in found] == [0, 1, 2, 3, 4]
    assert scores[2] == {"wall": 2.0, "cpu": 1.0, "valid": 2.5, "test": 1}
    assert stopped_early([]) == []


def test_a_validation_score_that_is_no_number_is_never_the_lowest() -> None:
    nan = math.nan
    assert [p["test"] for p in stopped_early(both((nan, 7), (nan, 6), (3, 5), (nan, 1)))] == [
        *(7, 7),
        *(5, 5),
    ]
    assert reached_before(curve(nan, nan), 2.0, limit=9.0) is None


def test_a_run_that_drifts_keeps_what_validation_rows_chose() -> None:
    drifts = both((3, 3), (1.8, 1.5), (2.5, 2.5), (2.4, 2.6))
    hit = reached_before(drifts, 2.0, limit=9.0)
    assert hit is not None
    assert (hit["wall"], hit["test"]) == (1.0, 1.5)
    # Validation rows that are still improving take a test score above the target.
    misled = both((5, 3), (4, 1.5), (3, 2.5))
    assert reached_before(misled, 2.0, limit=9.0) is None
    # A test score that validation rows never chose does not count.
    lucky = both((3, 3), (4, 1), (4, 1))
    assert reached_before(lucky, 2.0, limit=9.0) is None


def test_what_comes_after_the_end_of_a_run_does_not_count() -> None:
    short = both((3, 3), (1.5, 1.5), (1.6, 9))
    longer = [*short, {"wall": 3.0, "cpu": 1.5, "valid": 1.0, "test": 2.5}]
    assert has_settled(short, 2.0)
    assert reached_before(longer, 2.0, limit=9.0) == reached_before(short, 2.0, limit=9.0)
    assert reached_before(short, 2.0, limit=9.0) is not None
    # Where validation rows are above the target, the run goes on.
    unsure = both((3, 3), (2.5, 1.5), (2.6, 9), (2.2, 2.5))
    assert reached_before(unsure, 2.0, limit=9.0) is None


def test_a_run_has_settled_after_as_long_again_on_both_parts() -> None:
    assert not has_settled(curve(3, 3, 1, 1), 2.0)
    assert has_settled(curve(3, 3, 1, 1, 1), 2.0)
    assert has_settled(curve(3, 3, 1, 3, 3), 2.0)
    apart = both(*[(3, 3)] * 2, *[(2.5, 1)] * 3)
    assert not has_settled(apart, 2.0)
    assert not has_settled([{**p, "valid": p["test"], "test": p["valid"]} for p in apart], 2.0)


def test_the_target_is_the_best_score_before_patience_ends() -> None:
    assert lowest_before_patience(curve(3, 2, *[2.5] * TARGET_PATIENCE, 1)) == 2
    assert lowest_before_patience(curve(3, 2, *[2.5] * (TARGET_PATIENCE - 1), 1)) == 1


class FakeTime:
    """Two clocks that stand until somebody spends time; the processor's runs half as fast."""

    def __init__(self) -> None:
        self.now = 0.0

    def spend(self, seconds: float) -> None:
        self.now += seconds

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.now / 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(quality_curve, "time", fake)
    return fake


def fake_rows() -> QualityRows:
    part = (torch.zeros(2, 1), torch.zeros(2, 1))
    return QualityRows(part, part, part, 0)


def fake_learner(clock: FakeTime, *, finish: float = 0.0, anew: bool = False) -> Any:
    """Making takes 1 s, a step 1 s (the n-th n s where it begins anew), a score 5 s; NLL 1/n."""

    def make() -> Learner:
        clock.spend(1.0)
        done = [0]

        def step() -> None:
            done[0] += 1
            clock.spend(float(done[0]) if anew else 1.0)

        def score(given: tuple[Tensor, Tensor]) -> Tensor:
            clock.spend(5.0)
            return torch.full((1, 2), -1 / max(1, done[0]), dtype=torch.float64)

        def finished() -> Any:
            clock.spend(finish)
            return score

        return Learner(step, finished, anew)

    return make


def test_evaluations_do_not_count_as_time_and_runs_end_at_their_limit(clock: FakeTime) -> None:
    found = train_curve(fake_learner(clock), fake_rows(), 8.0, None, ("test",))
    # The pause is half of what an evaluation takes, 2.5 s, and steps are whole seconds.
    assert [point["wall"] for point in found] == [1.0, 4.0, 7.0, 8.0]
    assert [point["cpu"] for point in found] == [0.5, 2.0, 3.5, 4.0]
    assert found[-1]["test"] == pytest.approx(1 / 7)
    # The scores take half of it by the other clock, too.
    other = train_curve(fake_learner(clock), fake_rows(), 4.0, None, ("test",), "cpu")
    assert other[-1]["cpu"] == 4.0


def test_a_run_that_stays_at_its_target_ends_early(clock: FakeTime) -> None:
    found = train_curve(fake_learner(clock), fake_rows(), 1000.0, 0.2)
    # The pause is half of what both scores take, 5 s.
    assert [point["wall"] for point in found] == [1.0, 6.0, 11.0, 16.0]
    endless = train_curve(fake_learner(clock), fake_rows(), 20.0, None)
    assert endless[-1]["wall"] == 20.0


def test_what_is_due_at_the_end_counts_for_its_own_evaluation(clock: FakeTime) -> None:
    found = train_curve(fake_learner(clock, finish=3.0), fake_rows(), 12.0, None, ("test",))
    # The pause is half of an evaluation, 4 s.
    assert [point["wall"] for point in found] == [4.0, 8.0, 12.0]


def test_what_cannot_finish_in_time_is_not_scored(clock: FakeTime) -> None:
    found = train_curve(fake_learner(clock, finish=30.0), fake_rows(), 20.0, None, ("test",))
    assert found == [{"wall": 31.0, "cpu": 15.5, "test": math.inf}]
    later = train_curve(fake_learner(clock, finish=3.0), fake_rows(), 9.0, None, ("test",))
    assert [point["wall"] for point in later] == [4.0, 8.0]


def test_a_step_that_begins_anew_counts_alone(clock: FakeTime) -> None:
    found = train_curve(fake_learner(clock, anew=True), fake_rows(), 3.0, None, ("test",))
    assert [point["wall"] for point in found] == [1.0, 1.0, 2.0, 3.0]


def row(library: str, choice: int, seed: int, scores: Curve, **more: Any) -> dict[str, Any]:
    about = {"task": "digits", "library": library, "choice": choice, "seed": seed}
    return {
        **about,
        "limit": 10.0,
        "clock": "wall",
        "code": "",
        "memory": 1e6,
        "settings": dict(QUALITY_METHODS[library].settings[choice]),
        "session": "one",
        "curve": scores,
    } | more


def kept(tmp_path: Path, *rows: dict[str, Any], code: str = "") -> QualityFile:
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return QualityFile(path, code)


def due(file: QualityFile, *libraries: str, seeds: int = 2, task: str = "digits") -> list[Any]:
    runs = planned([task], libraries, seeds, file, target=lambda task: 2.0, cap=10.0)
    return [(run.library, run.choice, run.seed) for run in runs]


def test_ours_runs_first_and_other_seeds_where_the_first_reached_the_target(tmp_path: Path) -> None:
    good, slow, bad = curve(3, 1, 1), curve(3, 3, 1), curve(3, 3, 3)
    file = kept(
        tmp_path,
        row(OURS, 0, 0, bad),
        row(OURS, 1, 0, bad),
        row(OURS, 2, 0, bad),
        row("ivon", 0, 0, slow),
        row("ivon", 1, 0, bad),
        row("ivon", 2, 0, good),
        row("blitz", 0, 0, bad),
        row("blitz", 1, 0, good),
    )
    wanted = [
        ("blitz", 2, 0),
        (OURS, 0, 1),
        ("ivon", 0, 1),
        ("ivon", 2, 1),
        ("blitz", 1, 1),
    ]
    assert due(file, "ivon", "blitz", OURS) == wanted
    assert due(file, OURS, "ivon", seeds=1) == []


def test_what_failed_is_not_run_again_and_chooses_nothing(tmp_path: Path) -> None:
    lost = row("ivon", 0, 0, [], failed="no such module")
    del lost["curve"]
    file = kept(tmp_path, lost, row("vbll", 0, 0, curve(math.inf)))
    assert due(file, "vbll") == []
    assert file.chosen("digits", "ivon", 2.0) is None
    assert due(file, "ivon") == []
    assert summarize_setting(file, "digits", "ivon", 0, 2.0).failed == "no such module"


def test_runs_of_ours_by_other_code_do_not_count(tmp_path: Path) -> None:
    file = kept(
        tmp_path, row(OURS, 0, 0, curve(1), code="old"), row("ivon", 0, 0, curve(1)), code="new"
    )
    assert due(file, OURS, "ivon", seeds=1) == [(OURS, c, 0) for c in range(3)] + [
        ("ivon", c, 0) for c in (1, 2)
    ]


def test_rows_without_validation_scores_do_not_count(tmp_path: Path) -> None:
    old = [{key: point[key] for key in ("wall", "cpu", "test")} for point in curve(3, 1, 1)]
    file = kept(tmp_path, row("ivon", 0, 0, old), row("ivon", 1, 0, curve(3, 1, 1)))
    assert file.get("digits", "ivon", 0, 0) is None
    assert due(file, "ivon", seeds=1) == [("ivon", 0, 0), ("ivon", 2, 0)]


def test_trees_learn_tables_only(tmp_path: Path) -> None:
    assert due(kept(tmp_path), "NGBoost", task="lenet/mnist") == []
    assert len(due(kept(tmp_path), "NGBoost", seeds=1)) == 3


def test_others_may_take_ten_times_our_time_and_at_most_the_cap(tmp_path: Path) -> None:
    file = kept(tmp_path, row(OURS, 0, 0, curve(3, 3, 1)))
    first, second = (QualityRun("digits", "ivon", 0, seed) for seed in (0, 1))
    assert file.limit(first, 2.0, cap=100.0) == 20.0
    assert file.limit(second, 2.0, cap=100.0) == 20.0
    assert file.limit(first, 2.0, cap=15.0) == 15.0
    # Where ours missed the target, all have the same time.
    assert file.limit(first, 0.5, cap=100.0) == 100.0
    assert file.limit(QualityRun("digits", OURS, 0, 1), 2.0, cap=100.0) == 100.0


def test_a_run_that_missed_in_less_time_than_it_may_take_is_made_again(tmp_path: Path) -> None:
    bad, good = curve(3, 3, 3), curve(3, 1, 1)
    file = kept(
        tmp_path,
        row("ivon", 0, 0, bad, limit=5.0),
        row("ivon", 1, 0, good, limit=5.0),
        row("ivon", 2, 0, curve(math.inf), limit=5.0),
    )
    assert due(file, "ivon", seeds=1) == [("ivon", 0, 0)]
    runs = planned(["digits"], ["ivon"], 1, file, target=lambda task: 2.0, cap=5.5)
    assert list(runs) == []


def test_runs_are_cut_where_ours_is_faster_by_now(tmp_path: Path) -> None:
    """Others ran when ours took longer: at ten times our time of today they have missed it."""
    late = [3.0] * 25 + [1.0]
    rival = row("ivon", 0, 0, curve(*late), limit=30.0)
    alone = summarize_setting(kept(tmp_path, rival), "digits", "ivon", 0, 2.0)
    assert (alone.wall, alone.hits) == ((25.0,), 1)
    file = kept(tmp_path, row(OURS, 0, 0, curve(3, 3, 1)), rival)
    found = summarize_setting(file, "digits", "ivon", 0, 2.0)
    assert (found.wall, found.cpu, found.hits) == ((20.0,), (10.0,), 0)
    assert target_reached(rival, 2.0) is not None
    assert target_reached(rival, 2.0, limit=20.0) is None
    assert target_reached({"failed": "", "limit": 1.0, "clock": "wall"}, 2.0) is None


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int, float]]:
    """Runs that reach a target of 2 after two seconds, and what was asked for."""
    asked: list[tuple[str, int, int, float]] = []

    def fake(run: QualityRun, seconds: float, *rest: Any, **more: Any) -> dict[str, Any]:
        asked.append((run.library, run.choice, run.seed, seconds))
        return {"curve": curve(3, 3, 0.0, 0.0), "memory": 1e6}

    monkeypatch.setattr(quality_plan, "run_alone", fake)
    return asked


def test_an_interrupted_measurement_goes_on_where_it_stopped(
    tmp_path: Path, no_processes: list[Any]
) -> None:
    options = {"seeds": 2, "threads": 1, "cache": tmp_path, "cap": 50.0}
    path, left = tmp_path / "runs.jsonl", iter([True, True, False])
    run_all(["digits"], ["ivon", OURS], QualityFile(path), go_on=lambda: next(left), **options)
    assert no_processes == [(OURS, 0, 0, 50.0), (OURS, 1, 0, 20.0)]
    run_all(["digits"], ["ivon", OURS], QualityFile(path), **options)
    assert len(no_processes) == len(set(no_processes)) == 3 + 3 + 1 + 1
    assert {seconds for _, _, _, seconds in no_processes} == {50.0, 20.0}
    before = len(no_processes)
    run_all(["digits"], ["ivon", OURS], QualityFile(path), **options)
    assert len(no_processes) == before


def test_a_miss_counts_as_its_limit_and_medians_are_over_seeds(tmp_path: Path) -> None:
    file = kept(
        tmp_path,
        row("ivon", 0, 0, curve(3, 1, 1)),
        row("ivon", 0, 1, curve(3, 3, 3)),
        row("ivon", 0, 2, curve(3, 3, 1)),
        row("ivon", 1, 0, curve(3, 0.5, 0.5)),
    )
    found = summarize_setting(file, "digits", "ivon", 0, 2.0)
    assert found.wall == (1.0, 10.0, 2.0)
    assert found.cpu == (0.5, 1.0, 1.0)
    assert (found.hits, found.reaches, found.seconds("wall")) == (2, True, 2.0)
    both = list(summarize_task(file, "digits", 2.0))
    assert [(each.choice, each.tuned) for each in both] == [(0, False), (1, True)]
    assert fastest(both, "wall")["ivon"].choice == 1


def test_validation_rows_choose_the_settings(tmp_path: Path) -> None:
    good_on_test = curve(3, 1, 1)
    for point in good_on_test:
        point["valid"] = 3.0
    file = kept(tmp_path, row("ivon", 0, 0, good_on_test), row("ivon", 1, 0, curve(3, 3, 1)))
    assert file.chosen("digits", "ivon", 2.0) == 1
    assert file.chosen("digits", "ivon", 0.5) == 1


@pytest.mark.parametrize("name", ["eeg", "spam"])
def test_no_row_has_two_uses(name: str) -> None:
    parts = split_uses(QUALITY_TASKS[name], 203, test_given=False)
    assert sorted(torch.cat(parts).tolist()) == list(range(203))
    assert min(map(len, parts)) >= 20


def test_rows_are_standardized_by_those_for_training() -> None:
    rows = read_rows(QUALITY_TASKS["friedman"])
    for part in rows.train:
        torch.testing.assert_close(part.mean(0), torch.zeros(part.shape[1]), rtol=0, atol=1e-5)
        torch.testing.assert_close(part.std(0), torch.ones(part.shape[1]), rtol=0, atol=1e-5)
    assert (rows.outputs, rows.images) == (1, False)


def test_the_score_is_that_of_the_average_probability() -> None:
    logits, y = torch.randn(6, 5, 3), torch.tensor([0, 1, 2, 1, 0])
    expected = -logits.softmax(-1).mean(0)[torch.arange(5), y].log().mean()
    found = averaged_nll(label_log_probs(logits, y, torch.zeros(1)))
    assert found == pytest.approx(float(expected), rel=1e-5)
    f, labels, log_noise = torch.randn(6, 5, 2), torch.randn(5, 2), torch.tensor([0.3, -1.0])
    noise = torch.distributions.Normal(f, (0.5 * log_noise).exp())
    torch.testing.assert_close(
        label_log_probs(f, labels, log_noise), noise.log_prob(labels).sum(-1)
    )


def few_rows(task: str) -> QualityRows:
    rows = read_rows(QUALITY_TASKS[task])
    parts = [tuple(part[:64] for part in two) for two in (rows.train, rows.valid, rows.test)]
    return QualityRows(*parts, rows.classes)


@pytest.mark.parametrize("task", ["friedman", "digits"])
@pytest.mark.parametrize("name", [n for n, m in QUALITY_METHODS.items() if m.installed])
# What other libraries warn of is theirs.
@pytest.mark.filterwarnings("default")
def test_every_installed_library_learns(name: str, task: str) -> None:
    torch.manual_seed(0)
    rows, method = few_rows(task), QUALITY_METHODS[name]
    learner = method.make(QUALITY_TASKS[task], rows, method.settings[0])
    before = averaged_nll(learner.finish()(rows.train))
    for _ in range(1 if learner.anew else 30):
        learner.step()
    draws = learner.finish()(rows.train)
    assert draws.shape[1] == 64
    assert averaged_nll(draws) < before


def test_targets_stand_in_the_package_and_unknown_ones_get_a_sentence() -> None:
    for task in ("friedman", "digits"):
        assert 0 < target_of(task) < 2
    with pytest.raises(HeadstartError, match="no target of nothing"):
        target_of("nothing")
    with pytest.raises(HeadstartError, match="task"):
        quality_command.time_to_quality(["nothing"])
    with pytest.raises(HeadstartError, match="library"):
        quality_command.time_to_quality(["digits"], ["tensorflow"])


def test_the_command_prints_a_table_and_json(no_processes: list[Any]) -> None:
    words = ["bench", "--time-to-quality", "--case", "digits", "--library", "MC dropout"]
    result = CliRunner().invoke(app, [*words, "--rounds", "2", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [(each["library"], each["seconds"], each["reached"]) for each in rows] == [
        (OURS, 2.0, 2),
        ("MC dropout", 2.0, 2),
    ]
    # Documented settings alone.
    assert {choice for _, choice, _, _ in no_processes} == {0}
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "2 of 2" not in shown.output
    assert "3 of 3" in shown.output


def test_a_run_scores_both_parts_and_keeps_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    job = {"task": "digits", "library": OURS, "choice": 0, "seed": 0, "seconds": 0.01}
    more = {"target": None, "parts": ["valid", "test"], "clock": "cpu", "cache": str(tmp_path)}
    found = do_run({**job, **more})
    assert found["memory"] > 1e8
    assert found["curve"][-1]["cpu"] >= 0.01
    assert set(found["curve"][0]) == {"wall", "cpu", "valid", "test"}
    fresh, again = read_rows(QUALITY_TASKS["digits"]), cached_rows("digits", tmp_path)
    assert len(list(tmp_path.glob("digits-*.pt"))) == 1
    torch.testing.assert_close(again.test, fresh.test)
    assert again.classes == 10


def test_a_run_has_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], dict[str, str]]] = []
    answers = [(0, 'noise\n{"memory": 1.0}', ""), (1, "", "Traceback\nImportError: nothing")]

    def fake(words: list[str], *, env: dict[str, str], **more: Any) -> Any:
        asked.append((words, env))
        code, out, wrong = answers[len(asked) - 1]
        return subprocess.CompletedProcess(words, code, out, wrong)

    monkeypatch.setattr(quality_runs.subprocess, "run", fake)
    monkeypatch.setenv("PYTHONPATH", "before")
    run = QualityRun("digits", "ivon", 1, 2)
    about = {"target": 0.5, "libraries": tmp_path}
    assert run_alone(run, 3.0, 1, tmp_path, **about) == {"memory": 1.0}
    assert run_alone(run, 3.0, 1, tmp_path, **about) == {"failed": "ImportError: nothing"}
    words, env = asked[0]
    assert env["OMP_NUM_THREADS"] == env["MKL_NUM_THREADS"] == "1"
    assert env["PYTHONPATH"] == os.pathsep.join(["before", str((tmp_path / "ivon-opt").resolve())])
    job = json.loads(words[-1])
    assert (job["library"], job["choice"], job["seed"], job["seconds"]) == ("ivon", 1, 2, 3.0)
    assert job["target"] == 0.5


def test_the_page_says_who_is_ahead_and_what_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks"))
    from quality_page import write_quality_page

    ours, quick, slow, bad = (curve(3, 3, 0), curve(3, 0, 0), curve(*[3] * 8, 0), curve(3, 3))
    lost = row("vbll", 0, 0, [], failed="ImportError: no vbll")
    del lost["curve"]
    file = kept(
        tmp_path,
        row(OURS, 0, 0, ours),
        row("ivon", 0, 0, bad),
        row("ivon", 1, 0, slow),
        row("blitz", 0, 0, both((3, 3), (2.5, 2.5), (2.8, 2.2)), code="before"),
        row("MC dropout", 0, 0, quick),
        lost,
        row(OURS, 0, 0, curve(0, 0, 0), code="before"),
    )
    out = tmp_path / "page" / "quality.md"
    write_quality_page(out, file, ["digits", "spam"])
    text = out.read_text()
    assert "| digits | 2 | ivon, 8 | 4.0 | MC dropout (1) |" in text
    assert (
        "| blitz | rate 0.01, samples 3 * | > 10 (10–10) | > 1 (1–1) | > 5.0 | 0 of 1 | 1 "
        "| 2.200 | 2.500 |" in text
    )
    # Rows of headstart by other code are left out, those of others are named.
    assert "codes of headstart:  (digits); before (digits)." in text
    assert "failed: ImportError: no vbll" in text
    assert "## spam" not in text
    assert (out.parent / "quality-digits.svg").is_file()


def test_the_page_says_what_was_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks"))
    from quality_page import SEEDS, left_out

    every = [row(name, 0, 0, curve(3, 1)) for name in QUALITY_METHODS if name != "pyro"]
    others = [row(OURS, 1, 0, curve(3, 1)), row(OURS, 0, 1, curve(3, 1))]
    said = left_out(kept(tmp_path, *every, *others), ["digits", "spam"]).splitlines()
    assert said[2:] == ["- digits: pyro; seeds from 2 on.", "- spam: all of it."]
    said = left_out(kept(tmp_path, *every), ["digits"]).splitlines()
    alone = "pyro; settings beside those of the documentation; seeds beside the first"
    assert said[2:] == [f"- digits: {alone}."]
    # Trees do not learn images: nothing is left out with them.
    nets = [name for name, method in QUALITY_METHODS.items() if method.kind != "trees"]
    images = [row(name, 0, 0, curve(3, 1), task="lenet/mnist") for name in nets]
    said = left_out(kept(tmp_path, *images), ["lenet/mnist"]).splitlines()
    assert said[2:] == [f"- lenet/mnist: {alone.partition('; ')[2]}."]
    last = [
        row(name, choice, SEEDS - 1, curve(3, 1)) for name in QUALITY_METHODS for choice in (0, 1)
    ]
    assert left_out(kept(tmp_path, *last), ["digits"]) == ""


def test_rows_by_another_clock_or_with_other_settings_do_not_count(tmp_path: Path) -> None:
    file = kept(
        tmp_path,
        row("ivon", 0, 0, curve(3, 1, 1), clock="cpu"),
        row("ivon", 1, 0, curve(3, 1, 1), settings={"lr": 7.0}),
        row("ivon", 2, 0, curve(3, 1, 1)),
        row("blitz", 0, 0, curve(1)) | {"choice": 9},
    )
    assert list(file.rows) == [("digits", "ivon", 2, 0)]


def test_published_rows_count_and_those_of_this_machine_take_their_place(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(row("ivon", 0, 0, curve(3, 2), session="two")) + "\n")
    published = [row("ivon", 0, 0, curve(3, 1)), row("blitz", 0, 0, curve(3, 1))]
    file = QualityFile(path, published=published)
    assert set(file.rows) == {("digits", "ivon", 0, 0), ("digits", "blitz", 0, 0)}
    assert file.rows["digits", "ivon", 0, 0]["session"] == "two"
    found = {each.library: each.sessions for each in summarize_task(file, "digits", 2.0)}
    assert found == {"ivon": {"two"}, "blitz": {"one"}}
    added = file.add(QualityRun("digits", "vbll", 1, 0), 4.0, {"curve": [], "memory": 1.0})
    assert added["settings"] == dict(QUALITY_METHODS["vbll"].settings[1])
    assert len(added["session"]) == 8
