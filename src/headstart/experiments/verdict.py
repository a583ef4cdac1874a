"""Who is ahead, said plainly: I-BLM against the best of the others, at the same number of steps."""

from __future__ import annotations

from headstart.experiments.summary import Results, number, paper
from headstart.metrics import METRICS

OURS = "iblm"


def sentence(results: Results) -> str:
    """Where I-BLM is ahead after initialisation and at the end, and everywhere it is behind."""
    if OURS not in results.inits or len(results.inits) == 1:
        return "I-BLM was not compared here."
    start = "After initialisation " + _standing(results, 0)
    ends = sorted({results.steps(dataset)[-1] for dataset in results.datasets})
    if ends == [0]:
        return start
    return f"{start} At the last step ({', '.join(map(str, ends))}) {_standing(results, -1)}"


def beside_paper(results: Results, table: str | None) -> str:
    """I-BLM's main metric against the paper's own, whatever the budget; nothing where the paper has no table."""
    parts = []
    for dataset, name in results.names().items():
        metric = results.metric(dataset)
        theirs = paper(table, metric).get(dataset, {}).get(OURS)
        mine = results.final(dataset, OURS, metric).mean if OURS in results.inits else None
        if theirs is not None and theirs.mean is not None and mine is not None:
            place = "ahead" if mine < theirs.mean else "behind"
            parts.append(f"{place} on {name} ({number(mine)} against {number(theirs.mean)})")
    return f"Beside the paper's I-BLM, trained for 100 epochs: {', '.join(parts)}." if parts else ""


def _standing(results: Results, place: int) -> str:
    """I-BLM's place at the first (0) or the last (−1) look at each data set, in its main metric and in MNLL."""
    measured = [(dataset, metric) for dataset in results.datasets for metric in (results.metric(dataset), "mnll")]
    behind = [found for dataset, metric in measured if (found := _behind(results, dataset, metric, place))]
    kinds = " and ".join(dict.fromkeys(METRICS[metric].label for _, metric in measured))
    tail = f"; it is behind in {', '.join(behind)}" if behind else ""
    return f"I-BLM leads in {len(measured) - len(behind)} of {len(measured)} ({kinds} on each data set){tail}."


def _behind(results: Results, dataset: str, metric: str, place: int) -> str:
    """What I-BLM lacks to the best of the others, or nothing."""
    step = results.steps(dataset)[place]
    means = {init: results.at(dataset, init, step, metric).mean for init in results.inits}
    others = {init: mean for init, mean in means.items() if init != OURS and mean is not None}
    best = min(others, key=lambda init: others[init], default=None)
    mine = means[OURS]
    if best is None or (mine is not None and mine <= others[best]):
        return ""
    return (
        f"{METRICS[metric].label} on {results.names()[dataset]} ({number(mine)} against {number(others[best])}, {best})"
    )
