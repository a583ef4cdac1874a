"""The snippets of every page run as they stand, in one namespace; so do the examples."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
REPORTING = ["README.md", "docs/guide.md"]
PYTORCH = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/pytorch").glob("*.md"))
LIGHTNING = "docs/pytorch/lightning.md"
PLAIN = [
    "docs/members.md",
    "docs/refine.md",
    "docs/tables.md",
    *(page for page in PYTORCH if page != LIGHTNING),
]
QUESTIONS = "docs/questions.md"
CLUSTER = "docs/cluster.md"
START = "docs/index.md"
NEIGHBORS = "docs/neighbors.md"
PROSE = ["docs/method.md", "docs/compare.md", "CONTRIBUTING.md", "RELEASING.md", "CHANGELOG.md"]

# Advice about workers, deprecations: not ours to mend.
lightning_s_own = pytest.mark.filterwarnings("ignore")


def snippets(page: str) -> list[str]:
    found = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert found, f"{page} has no snippet"
    return found


def run(page: str) -> dict[str, Any]:
    # The same calls, fewer steps.
    code = "\n".join(snippets(page)).replace("steps=2000", "steps=20")
    names: dict[str, Any] = {}
    exec(compile(code, page, "exec"), names)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("page", REPORTING)
def test_the_snippets_run_and_report(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(page)
    # The step-0 report was printed.
    assert "KL" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("page", PLAIN)
def test_the_snippets_run(page: str) -> None:
    run(page)


def test_the_start_page_keeps_its_word() -> None:
    pred = run(START)["pred"]
    assert pred.mean.shape == (100, 1)
    far, near = pred.epistemic_std[:10].mean(), pred.epistemic_std[40:60].mean()
    assert far > near


@pytest.mark.slow
def test_the_questions_have_answers_that_hold(capsys: pytest.CaptureFixture[str]) -> None:
    run(QUESTIONS)
    out = capsys.readouterr().out
    poor, good = (float(found) for found in re.findall(r"^(0\.\d+)$", out, flags=re.MULTILINE))
    # Digits after 100 steps: the page says 0.91, and 0.12.
    assert poor > 0.8 > 0.2 > good
    assert "explodes" in out
    assert "x holds nan at index [7, 2]" in out


@lightning_s_own
def test_the_snippets_run_under_lightning() -> None:
    pytest.importorskip("lightning")
    run(LIGHTNING)


def test_the_snippets_run_under_skorch() -> None:
    pytest.importorskip("skorch")
    names = run(NEIGHBORS)
    losses = names["trained"].history[:, "train_loss"]
    assert losses[-1] < losses[0]
    assert names["pred"].std.shape == (5, 1)


def test_the_snippets_run_under_fabric() -> None:
    pytest.importorskip("lightning_fabric")
    assert run(CLUSTER)["pred"].mean.shape == (2000, 1)


def test_the_example_for_many_devices_runs_on_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightning_fabric")
    monkeypatch.setattr(sys, "argv", ["many_devices.py", "--steps", "20"])
    runpy.run_path(str(ROOT / "examples/many_devices.py"), run_name="__main__")
    start = float(re.findall(r"1 ranks: error (\S+) at step 0", capsys.readouterr().out)[0])
    # With ten classes chance is 0.9.
    assert start < 0.2


def test_the_page_shows_the_example_s_module() -> None:
    shown = snippets(LIGHTNING)[0]
    assert (
        shown[shown.index("class BayesianModule") :]
        in (ROOT / "examples/lightning_module.py").read_text()
    )


@pytest.mark.slow
def test_a_loop_of_one_s_own_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples/own_loop.py"), run_name="__main__")
    rmse = [float(found) for found in re.findall(r"rmse (\S+)", capsys.readouterr().out)]
    # The noise in the labels is 0.2.
    assert rmse[-1] < 0.25


@lightning_s_own
def test_the_lightning_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lightning")
    runpy.run_path(str(ROOT / "examples/lightning_module.py"), run_name="__main__")
    before, after = (
        float(found) for found in re.findall(r"'val_mnll': ([-\d.]+)", capsys.readouterr().out)
    )
    assert after < before


def test_the_lightning_example_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning", None)
    with pytest.raises(SystemExit, match="pip install lightning"):
        runpy.run_path(str(ROOT / "examples/lightning_module.py"), run_name="__main__")


@pytest.mark.parametrize(
    "page", [*REPORTING, *PLAIN, LIGHTNING, QUESTIONS, CLUSTER, NEIGHBORS, *PROSE]
)
def test_every_file_a_page_names_exists(page: str) -> None:
    # Code is not prose: `f[0](x)` is no link.
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    named = set(re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]+)`", text))
    linked = set(re.findall(r"\]\((?!http)([\w./-]+)\)", text))
    for name in named:
        assert (ROOT / name).exists(), name
    for link in linked:
        assert ((ROOT / page).parent / link).exists(), link
