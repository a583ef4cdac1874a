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
ONNX = "docs/pytorch/onnx.md"
OPTIONAL = [LIGHTNING, ONNX]
PLAIN = [
    "docs/members.md",
    "docs/refine.md",
    "docs/tables.md",
    *(page for page in PYTORCH if page not in OPTIONAL),
]
QUESTIONS = "docs/questions.md"
CLUSTER = "docs/cluster.md"
START = "docs/index.md"
INTEGRATIONS = "docs/integrations.md"
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


@pytest.mark.slow
def test_the_start_page_keeps_its_word() -> None:
    pred = run(START)["pred"]
    outside_left, *edges_left, gap, _, edge_right, outside_right = pred.epistemic_std[:, 0]
    # Points at -3, -2, -1, 0, 1, 2 and 3; rows lie between 1 and 2 on both sides.
    assert min(outside_left, gap, outside_right) > max(*edges_left, edge_right)


def test_the_start_page_and_the_readme_show_the_same_lines() -> None:
    assert snippets(START) == snippets("README.md")


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


def section(page: str, title: str) -> dict[str, Any]:
    """Run the snippets of one section."""
    text = (ROOT / page).read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert found, f"{page} has no snippet in {title!r}"
    names: dict[str, Any] = {}
    exec(compile("\n".join(found), f"{page}, {title}", "exec"), names)
    return names


@lightning_s_own
def test_the_snippets_run_under_skorch() -> None:
    pytest.importorskip("skorch")
    names = section(INTEGRATIONS, "skorch")
    losses = names["trained"].history[:, "train_loss"]
    assert losses[-1] < losses[0]
    assert names["pred"].std.shape == (5, 1)


@lightning_s_own
def test_the_snippets_run_under_skpro() -> None:
    pytest.importorskip("skpro")
    names = section(INTEGRATIONS, "skpro")
    assert names["intervals"].shape == (3, 2)
    assert 0 < names["crps"] < names["y"].std().item()


@lightning_s_own
def test_the_snippets_run_under_botorch() -> None:
    pytest.importorskip("botorch")
    names = section(INTEGRATIONS, "BoTorch")
    assert names["place"].shape == (1, 2)


@lightning_s_own
def test_the_snippets_run_under_the_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    monkeypatch.chdir(tmp_path)
    names = section(INTEGRATIONS, "Hugging Face's Trainer")
    losses = [row["loss"] for row in names["trainer"].state.log_history if "loss" in row]
    assert losses[-1] < losses[0]
    assert names["pred"].probs.shape == (5, 2)


@lightning_s_own
def test_the_snippets_export_to_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    assert run(ONNX)["pred"].std.shape == (5, 1)


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


@pytest.mark.slow
def test_a_loop_of_one_s_own_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples/own_loop.py"), run_name="__main__")
    rmse = [float(found) for found in re.findall(r"rmse (\S+)", capsys.readouterr().out)]
    # The noise in the labels is 0.2.
    assert rmse[-1] < 0.25


@pytest.mark.parametrize(
    "page", [*REPORTING, *PLAIN, *OPTIONAL, QUESTIONS, CLUSTER, INTEGRATIONS, *PROSE]
)
def test_every_file_a_page_names_exists(page: str) -> None:
    # Code is not prose: `f[0](x)` is no link.
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    named = set(re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]+)`", text))
    linked = set(re.findall(r"\]\((?!http)([\w./-]+)\)", text))
    for name in named:
        assert (ROOT / name).exists(), name
    for link in linked:
        # Pages of the gallery are made of its examples.
        place = re.sub(r"^(\.\./)?gallery/(\w+)\.rst$", r"\1../examples/gallery/\2.py", link)
        assert ((ROOT / page).parent / place).exists(), link
