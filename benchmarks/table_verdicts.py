"""The page of `table_rivals.py`: our rows beside the best rival's, paired over splits."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from scipy import stats
from table_cases import CASES
from table_methods import GP_ROWS, MEMBERS, OURS, SEARCHES
from tables import table, write_page

from headstart.experiments.paired import PairedDifference, paired_difference

Row = dict[str, Any]
Method = tuple[str, bool]
"""A method, and whether it was tuned."""
ONE_SPLIT = {True: "one split, lower", False: "one split, not lower"}
"""What is said where there can be no verdict: whether ours is lower than the best rival's."""
METRICS = {"nll": "NLL", "crps": "CRPS", "rmse": "RMSE", "error": "error"}
TEST_TO_TRAIN = 1 / 9
MANY_ROWS, MANY_IN_FIFTH = 1000, 400
"""The test rows from which coverage is held against fixed bounds; below, a binomial test."""
BOUNDS, FIFTH_BOUNDS = (0.93, 0.97), (0.90, 0.98)


def by_method(rows: list[Row]) -> dict[Method, dict[int, Row]]:
    """The rows of a table by method and split, without methods that failed on a split.

    Their splits stay: what one method cannot do must not choose the rows of the others.
    """
    failed = {(row["method"], row["tuned"]) for row in rows if "failed" in row}
    found: dict[Method, dict[int, Row]] = {}
    for row in rows:
        if (row["method"], row["tuned"]) not in failed:
            found.setdefault((row["method"], row["tuned"]), {})[row["split"]] = row
    return found


def shared(found: dict[Method, dict[int, Row]]) -> dict[Method, dict[int, Row]]:
    """The same without splits that some rival lacks."""
    rivals = [set(rows) for method, rows in found.items() if method[0] != OURS]
    common = set.intersection(set(found[OURS, False]), *rivals) if rivals else set()
    return {
        method: {index: row for index, row in rows.items() if index in common}
        for method, rows in found.items()
    }


def mean_of(rows: dict[int, Row], metric: str) -> float:
    return statistics.fmean(row[metric] for row in rows.values())


def best_rival(found: dict[Method, dict[int, Row]], metric: str) -> Method:
    """The rival whose mean is best over the splits that ours has."""
    ours = found[OURS, False].keys()
    whole = {
        method: rows
        for method, rows in found.items()
        if method[0] != OURS and rows.keys() >= ours and metric in next(iter(rows.values()))
    }
    return min(whole, key=lambda method: mean_of({i: whole[method][i] for i in ours}, metric))


def difference(found: dict[Method, dict[int, Row]], rival: Method, metric: str) -> PairedDifference:
    """Ours less the rival's over the splits that both have."""
    ours, theirs = (
        {(index, index): row[metric] for index, row in found[method].items()}
        for method in ((OURS, False), rival)
    )
    paired = paired_difference(ours, theirs, TEST_TO_TRAIN)
    assert paired is not None
    return paired


def held(inside: int, count: int, bounds: tuple[float, float], many: int) -> bool:
    """Whether coverage is as it should be: within bounds, or .95 is not refuted at 99 %."""
    if count >= many:
        return bounds[0] <= inside / count <= bounds[1]
    low, high = stats.binom.interval(0.99, count, 0.95)
    return bool(low <= inside <= high)


def coverage_line(name: str, rows: dict[int, Row]) -> list[str]:
    """Pooled coverage of our 95 % intervals, of all rows and of each fifth of the prediction."""
    fifths = [
        tuple(sum(row["inside"][part][k] for row in rows.values()) for k in (0, 1))
        for part in range(5)
    ]
    inside, count = (sum(part[k] for part in fifths) for k in (0, 1))
    kept = held(inside, count, BOUNDS, MANY_ROWS)
    cells = [
        f"{hits / of:.3f}" + ("" if held(hits, of, FIFTH_BOUNDS, MANY_IN_FIFTH) else " ✗")
        for hits, of in fifths
    ]
    return [name, str(count), f"{inside / count:.3f}" + ("" if kept else " ✗"), *cells]


def label(method: Method) -> str:
    return method[0] + (", tuned" if method[1] else "")


def signed(paired: PairedDifference) -> str:
    width = "" if paired.half_width is None else f" ± {paired.half_width:.2g}"
    return f"{paired.mean:+.3g}{width}"


def detail(name: str, found: dict[Method, dict[int, Row]]) -> str:
    """All methods on a table: means over their splits."""
    metrics = [metric for metric in METRICS if metric in next(iter(found[OURS, False].values()))]
    lines = []
    for method, rows in sorted(found.items(), key=lambda item: mean_of(item[1], "nll")):
        cells = [f"{mean_of(rows, metric):.4g}" for metric in metrics]
        covered = "–"
        if "inside" in next(iter(rows.values())):
            pairs = [part for row in rows.values() for part in row["inside"]]
            covered = f"{sum(hits for hits, _ in pairs) / sum(of for _, of in pairs):.3f}"
        seconds = f"{mean_of(rows, 'seconds'):.1f}"
        lines.append([label(method), *cells, covered, str(len(rows)), seconds])
    head = [name, *(METRICS[metric] for metric in metrics), "95 % covers", "splits", "CPU s"]
    return table(head, lines)


def compared(name: str, found: dict[Method, dict[int, Row]]) -> tuple[list[str], dict[str, str]]:
    """A line of the table of verdicts, and the verdict by metric."""
    ours = found[OURS, False]
    some = next(iter(ours.values()))
    cells, verdicts = [name + (" (known)" if CASES[name].known else ""), str(len(ours))], {}
    for metric in ("nll", "crps", "rmse" if "rmse" in some else "error"):
        if metric not in some:
            cells.append("–")
            continue
        rival = best_rival(found, metric)
        paired = difference(found, rival, metric)
        verdicts[METRICS[metric]] = verdict = paired.verdict(-1) or ONE_SPLIT[paired.mean < 0]
        cells.append(f"{verdict}: {signed(paired)} ({label(rival)})")
    return cells, verdicts


def counted(verdicts: dict[str, dict[str, str]]) -> str:
    """On which tables ours is ahead, level or behind, a line for each metric."""
    lines = []
    for metric in METRICS.values():
        tables: dict[str, list[str]] = {}
        for name, found in verdicts.items():
            if metric in found:
                tables.setdefault(found[metric], []).append(name)
        parts = [f"{word} on {len(names)} ({', '.join(names)})" for word, names in tables.items()]
        lines += [f"- {metric}: {'; '.join(parts)}."] if parts else []
    return "\n".join(lines)


def searches() -> str:
    """What each random search may try, a line for each method."""
    lines = []
    for method, space in SEARCHES.items():
        tried = ", ".join(f"{key} in {list(values)}" for key, values in space.items())
        lines.append(f"- {method}: {tried}.")
    return "\n".join(lines)


def run_tables(rows: list[Row]) -> dict[str, dict[Method, dict[int, Row]]]:
    """The tables on which ours has run, with the splits that all rivals have."""
    tables = {name: by_method([row for row in rows if row["table"] == name]) for name in CASES}
    run = {name: shared(found) for name, found in tables.items() if (OURS, False) in found}
    return {name: found for name, found in run.items() if found[OURS, False]}


def coverage(ours: dict[str, dict[int, Row]]) -> str:
    """Coverage on the tables that have intervals."""
    lines = [
        coverage_line(name, found)
        for name, found in ours.items()
        if "inside" in next(iter(found.values()))
    ]
    fifths = ["lowest fifth", "second", "third", "fourth", "highest"]
    return table(["table", "rows", "all", *fifths], lines)


def failures(rows: list[Row]) -> str:
    """What did not run to its end, a line for each method of a table."""
    failed: dict[str, list[str]] = {}
    for row in rows:
        if "failed" in row:
            name = f"{label((row['method'], row['tuned']))} on {row['table']}"
            failed.setdefault(name, []).append(row["failed"])
    lines = (
        f"- {name}, {len(said)} {'split' if len(said) == 1 else 'splits'}: {said[0]}\n"
        for name, said in sorted(failed.items())
    )
    return "".join(lines) or "- none\n"


def codes(rows: list[Row]) -> tuple[str, str]:
    """The code that made most of our tables, and sentences on what other code made."""
    each: dict[str, str] = {}
    for row in rows:
        # A table mixes no codes of ours.
        if row["method"] == OURS and each.setdefault(row["table"], row["code"]) != row["code"]:
            raise ValueError(f"Rows of ours on {row['table']} are of several codes.")
    ((most, _),) = Counter(each.values()).most_common(1)
    others = [f"{name} by code {code}" for name, code in each.items() if code != most]
    said = ""
    if others:
        said = f"Our rows of most tables were made by that code, those of {', '.join(others)}.\n"
    if any(row["tuned"] and row["code"] != each.get(row["table"]) for row in rows):
        said += "Rivals were tuned within the seconds that ours took by earlier code of ours.\n"
    return most, said


def page(rows: list[Row], path: Path) -> None:
    """Write the page; tables on which ours has not run are named."""
    run = run_tables(rows)
    lines = {name: compared(name, found) for name, found in run.items()}
    ours = {name: found[OURS, False] for name, found in run.items()}
    code, others = codes([row for row in rows if row["table"] in run])
    tuned = any(row["tuned"] for row in rows)
    missing = [name for name in CASES if name not in run]
    text = PAGE.format(
        others=others,
        gp=GP_ROWS,
        gp_classes=GP_ROWS // 2,
        members=MEMBERS,
        said=counted({name: verdicts for name, (_, verdicts) in lines.items()}),
        missing=f"Not run: {', '.join(missing)}.\n" if missing else "",
        failed=failures(rows),
        verdicts=table(
            ["table", "splits", "NLL", "CRPS", "RMSE or error"],
            [cells for cells, _ in lines.values()],
            left=5,
        ),
        coverage=coverage(ours),
        details="\n\n".join(detail(name, found) for name, found in run.items()),
        searches=f"## Searches\n\n{searches()}\n" if tuned else "",
        tuned=TUNED if tuned else "",
    )
    write_page(path, text, "headstart.tabular.fit", code)


PAGE = """# Tables: `headstart fit` and what one would pick instead
{others}
    python benchmarks/table_rivals.py run
    python benchmarks/table_rivals.py page --out docs/results/tables.jsonl.xz

`headstart fit` at its defaults, every training row learned from, beside rivals at their
defaults{tuned}.
A split has nine tenths of the rows to learn from; energy and concrete have their published splits.
The tables below say how many splits were run: **with one split there is no verdict, and with two
or three almost everything is level**.
One thread; a split is the seed too.
Tables called known are those that the recipe of `headstart fit` was made on: training rows of
their first splits, among which are test rows of the others, chose its defaults
([what was chosen on what](table-recipe.md#what-the-defaults-were-chosen-on)).
The others played no part, but for the rule of [intervals of counts](../tables.md#noise-models): it
was changed after those of test rows of DoctorContacts had been seen to cover too much.

## In short

Ours less the best rival's, the rival with the best mean on these very test rows, which favors the
rivals: ahead or behind where the 95 % interval (paired over splits, Nadeau and Bengio's
correction, none for the number of tables) excludes zero.

{said}

{missing}
{verdicts}

## Coverage

The share of test rows, pooled over splits, within our 95 % intervals: of all, and of each fifth
of the prediction.
✗ marks what is outside 93 to 97 % (all, from 1000 rows), 90 to 98 % (a fifth, from 400 rows), or,
with fewer rows, what a binomial test refutes at 99 %.
Test rows come back in other splits, so the counts are those of rows that depend on each other.

{coverage}

Reasons for what is marked, as far as they are known:

- On energy the selected nets have the same noise in all rows, and the errors of the highest fifth
  are larger: of held-out rows they are 1.26 and 1.39 times those of all on two splits (by hand).
  Noise that varies from row to row had a higher NLL on held-out rows there. Since predictions have
  one factor of the noise for all rows, which held-out rows set
  ([how](../tables.md#the-size-of-the-noise)), coverage is right in all and in four fifths; before
  it was too high in all and in three fifths, and right in the highest.
- Why the lowest fifth of protein is covered too often, and the fourth of Housing not often enough,
  is not known; of the latter's 110 rows 97 are covered, one fewer than the test allows.

The factor was looked for after test rows of energy had been seen to be covered too often; its rule
was chosen on tables that are not here.

## Where it loses, and why

On energy the trees of CatBoost alone are better than scikit-learn's, on which our net stands:
compare CatBoost, conformal, with HistGradientBoosting in RMSE. The net on its trees is about as
good as those when they are tuned, and does not make up for that.
On the small tables of classes (wine, breast cancer, credit) and on diabetes, a linear model or
CatBoost has the lower mean: there is little for a net to find, and a choice between recipes by few
rows costs something. None of these differences is more than the splits vary by.
A fit takes 30 to 250 times as long as one of HistGradientBoosting and 3 to 90 times as long as one
of CatBoost, both at their defaults (the column CPU s), because it learns several nets on trees of
several folds.

## All methods

Means over splits, the best NLL first; NLL, CRPS and RMSE in the units of the target.
Methods that give no distribution get one as users do: RandomForest and conformal CatBoost are
Gaussian around their prediction with the squared error of out-of-bag or out-of-fold rows,
HistGradientBoosting has quantiles made conformal by MAPIE and a sd of a quarter of their
distance, about, {members} MLPs add their error on held-out rows.
CatBoost is `RMSEWithUncertainty`; of counts it, NGBoost and HistGradientBoosting are Poisson.
A Gaussian process learns from {gp} rows, {gp_classes} for classes.
It and the linear model have no search: evidence chooses the kernel and, for numbers, the penalty;
the linear classifier keeps its default penalty.

{details}

What failed, and is left out of its table for that:

{failed}
{searches}"""
TUNED = """ and,
where that is called tuned, at the best of up to 20 random tries on validation rows of the first
split, within the processor seconds that ours took there (at least three tries)"""
