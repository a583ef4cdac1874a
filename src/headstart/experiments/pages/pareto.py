"""The page of time against quality, both of initialization alone."""

from __future__ import annotations

from collections.abc import Mapping

from headstart.experiments import figures
from headstart.experiments.pages.base import ReportPage
from headstart.experiments.results import Results, format_number
from headstart.metrics import METRICS
from headstart.reporting import plots
from headstart.reporting.document import Block, Entry, Figure, Heading, Table


class ParetoPage(ReportPage):
    """Seconds and test MNLL of every run and mean, and which of them nothing beats in both."""

    def sentence(self, results: Results) -> str:
        fronts = [
            f"on {name}: {', '.join(pareto_front(_means(results, problem)))}"
            for problem, name in results.names().items()
        ]
        said = "No initializer is both faster and better in mean test MNLL at step 0 than"
        return f"{said}, {'; '.join(fronts)}."

    def blocks(self, name: str, results: Results) -> list[Block]:
        blocks: list[Block] = []
        for problem, title in results.names().items():
            means = _means(results, problem)
            best = pareto_front(means)
            if means:
                picture = plots.scores_against_time(
                    _run_points(results, problem, means), best, figures.AXIS_LABELS["mnll"]
                )
                caption = (
                    f"{title}, after initialization: each run a light dot, the mean a marked one. "
                    "The dashed stair is the Pareto front of the means: "
                    "nothing lies below and to the left of it."
                )
                blocks.append(Figure(f"{name}-{title}".replace(" ", "-"), picture, caption))
            blocks += _pareto_table(results, problem, title, best)
        return blocks


def pareto_front(places: Mapping[str, tuple[float, float]]) -> list[str]:
    """The names whose place no other beats in both coordinates, from left to right.

    Example:
        >>> places = {"slow": (9.0, 1.0), "fast": (1.0, 5.0), "worse": (2.0, 5.0)}
        >>> pareto_front({**places, "between": (3.0, 2.0)})
        ['fast', 'between', 'slow']
    """

    def beaten(place: tuple[float, float]) -> bool:
        return any(
            other != place and other[0] <= place[0] and other[1] <= place[1]
            for other in places.values()
        )

    return sorted(
        (name for name, place in places.items() if not beaten(place)), key=lambda name: places[name]
    )


def _means(results: Results, problem: str) -> dict[str, tuple[float, float]]:
    """Mean seconds and mean MNLL of every label, where they are finite."""
    found = {}
    for label in results.labels_of(problem):
        seconds, mnll = (
            results.at(problem, label, 0, metric).mean for metric in ("init_seconds", "mnll")
        )
        if seconds is not None and mnll is not None:
            found[label] = seconds, mnll
    return found


def _run_points(
    results: Results, problem: str, means: Mapping[str, tuple[float, float]]
) -> dict[str, plots.Points]:
    points = {}
    for label, mean in means.items():
        rows = results.rows_at(problem, label, 0)
        points[label] = plots.Points(
            [row["init_seconds"] for row in rows], [row["mnll"] for row in rows], mean
        )
    return points


def _pareto_table(results: Results, problem: str, title: str, best: list[str]) -> list[Block]:
    metric = results.metric(problem)
    rows = []
    for label in results.labels_of(problem):
        seconds, *scores = (
            results.at(problem, label, 0, name) for name in ("init_seconds", "mnll", metric)
        )
        texts = (format_number(seconds.mean), *(score.show(mark=False) for score in scores))
        rows.append(
            [
                Entry(label),
                *map(Entry, texts),
                Entry("yes" if label in best else "no", strong=label in best),
            ]
        )
    header = ("initializer", "seconds", "MNLL", METRICS[metric].label, "on the front")
    return [
        Heading(3, f"{title}: after initialization"),
        Table([Entry(text) for text in header], rows),
    ]
