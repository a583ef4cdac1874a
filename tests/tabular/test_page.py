"""The page of a fitted table: the same from memory and from disk, and safe in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headstart.tabular.fit import fit_table
from headstart.tabular.page import write_page
from headstart.tabular.run import TableRun
from headstart.training.recipe import Recipe
from tests.browser import browse
from tests.tabular.tables import FEW, Headstart, houses


@pytest.mark.slow
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_the_page_is_the_same_from_memory_and_from_disk(tmp_path: Path, task: str) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(80, 2)), columns=["a", "b"])
    frame["y"] = frame["a"] if task == "regression" else (frame["a"] > 0).map(str)
    run = fit_table(frame, "y", recipe=Recipe(model="mlp-1x8", steps=12, effort="quick"))
    run.save(tmp_path / "run")
    from_memory = write_page(run, tmp_path / "run").read_bytes()
    from_disk = write_page(TableRun.load(tmp_path / "run"), tmp_path / "run").read_bytes()
    assert from_memory == from_disk


def test_the_page_says_whether_to_rely_on_the_model_first(fitted: Path) -> None:
    """Pictures in the colors of the page, one file, nothing to fetch, and no number with e+05."""
    page = (fitted / "run" / "report.html").read_text(encoding="utf-8")
    body = page[page.index("<body>") :]
    first = re.search(r"<h1>Predicting price</h1>\s*<p class=\"notable( good)?\">(.*?)</p>", body)
    assert first is not None
    is_good = first[2].startswith("Rely on it") and "But note" not in first[2]
    assert bool(first[1]) == is_good
    assert first[2].startswith(("Rely on it", "Do not rely on it"))
    assert "prefers-color-scheme: dark" in page
    assert "#000000" not in body
    assert "fill: #ffffff" not in body
    assert not re.search(r"\d[eE]\+\d", re.sub("<svg.*?</svg>", "", body, flags=re.DOTALL))
    assert not re.search(r"(src|href)=\"http", body.replace("xlink:href", ""))
    for words in (
        "a linear model",
        "gradient boosting",
        "always the mean",
        "± is one standard",
        "± is one predicted",
    ):
        assert words in body


def test_losses_that_are_all_alike_have_no_standard_error() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=600), "y": ["up", "down"] * 300})
    run = fit_table(frame, "y", recipe=Recipe(model="mlp-1x8", steps=5, effort="quick"))
    (always,) = (each for each in run.found["baselines"] if "frequencies" in each["name"])
    assert always["score"] == pytest.approx(np.log(2))
    assert always["error"] == 0


def test_a_page_of_counts_promises_no_normal_law(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=200)})
    frame["y"] = rng.poisson(np.exp(0.5 * frame["a"]))
    recipe = Recipe(model="mlp-1x8", steps=5, effort="quick", trees=False, noise="poisson")
    run = fit_table(frame, "y", task="regression", recipe=recipe)
    run.save(tmp_path / "run")
    page = write_page(run, tmp_path / "run").read_text(encoding="utf-8")
    assert "on the dotted line, or above it, since counts are whole, as promised" in page
    assert "predicted standard deviations" not in page


@pytest.mark.slow
def test_a_page_of_classes_shows_who_was_taken_for_whom(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 2)), columns=["a", "b"])
    frame["y"] = np.where(frame["a"] + rng.normal(size=400) > 0, "up", "down")
    frame["code"] = np.where(frame["y"] == "up", "7", "3")
    run = fit_table(frame, "y", recipe=Recipe(model="mlp-1x8", steps=30))
    confusion = np.array(run.found["confusion"])
    assert confusion.sum() == run.found["test_rows"]
    assert run.found["scores"]["error"] == pytest.approx(1 - np.trace(confusion) / 40)
    run.save(tmp_path / "run")
    page = write_page(run, tmp_path / "run").read_text(encoding="utf-8")
    assert "taken for down" in page
    assert "one predicted standard deviation" not in page
    assert "Do not rely on it, because the column &#x27;code&#x27; is the target" in page


NARROW = """<!doctype html><body>
<iframe style="width:390px; height:800px; border:0"></iframe><ol></ol><script>
const frame = document.querySelector("iframe");
frame.onload = () => {
  const page = frame.contentDocument, root = page.documentElement;
  for (const each of [root, ...page.querySelectorAll("table")]) {
    const box = each.closest(".scroll") || each;
    const item = document.querySelector("ol").appendChild(document.createElement("li"));
    const right = Math.round(box.getBoundingClientRect().right);
    item.textContent = [box.scrollWidth, box.clientWidth, right].join(" ");
  }
};
frame.srcdoc = PAGE;
</script></body>"""
"""A page that shows another one 390 pixels wide, and lists how wide it and its tables are."""


@pytest.mark.slow
def test_wide_tables_scroll_in_their_own_box_on_a_phone(tmp_path: Path) -> None:
    frame = houses(150)
    for k in range(6):
        frame[f"measurement with a long name {k}"] = np.sin(np.arange(150.0) * (k + 1)) * 1e5
    frame["price"] = pd.qcut(
        frame["price"], 6, labels=[f"a long name of class {c}" for c in "abcdef"]
    )
    recipe = Recipe(model="mlp-1x8", steps=20, samples=2, effort="quick", seed=0)
    run = fit_table(frame, "price", recipe=recipe)
    run.save(tmp_path / "run")
    page = write_page(run, tmp_path / "run").read_text(encoding="utf-8")
    narrow = tmp_path / "narrow.html"
    narrow.write_text(NARROW.replace("PAGE", json.dumps(page)), encoding="utf-8")
    dom = browse(narrow, tmp_path / "profile", "--virtual-time-budget=5000", "--dump-dom")
    found = re.findall(r"<li>(\d+) (\d+) (\d+)</li>", dom)
    (wide, shown, _), *tables = (tuple(map(int, each)) for each in found)
    assert wide == shown <= 390
    assert len(tables) == page.count("<table") >= 5
    # Some are wider than the page, and none sticks out of it.
    assert max(inside for inside, _, _ in tables) > 1000
    assert all(right <= shown for _, _, right in tables)


@pytest.mark.slow
def test_the_page_in_a_browser(tmp_path: Path, headstart: Headstart) -> None:
    """Names from the data are text, the pictures are drawn, nothing is fetched."""
    table = houses(100).rename(
        columns={"size": "<script>alert(1)</script>", "price": "price & <b>more</b>"}
    )
    table["city"] = table["city"].replace("Ulm", "<img src=x onerror=alert(2)>")
    table.to_csv(tmp_path / "t.csv", index=False)
    assert (
        headstart(
            "fit",
            tmp_path / "t.csv",
            "--target",
            "price & <b>more</b>",
            "--out",
            tmp_path / "run",
            *FEW,
        ).code
        == 0
    )
    said = headstart("report", tmp_path / "run")
    assert said.out.strip() == str(tmp_path / "run" / "report.html")
    dom = browse(tmp_path / "run" / "report.html", tmp_path / "profile", "--dump-dom")
    assert "<script" not in dom
    assert "<img" not in dom
    assert "Predicting price &amp; &lt;b&gt;more&lt;/b&gt;" in dom
    assert not re.search(r"(src|href)=\"http", dom.replace("xlink:href", ""))
    assert len(re.findall("<figure", dom)) == 14
    for heading in (
        "Beside simpler models",
        "What drives it",
        "Calibration",
        "When to abstain",
        "Where the model knows least",
        "The table",
        "How it was learned",
    ):
        assert f">{heading}</h2>" in dom
    assert "iblm placed the posterior" in dom
