"""A model card: what a saved model is, how good it was on held-out rows, and what to fill in."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

UNCERTAINTY_METRICS = ("coverage_", "ece", "brier", "mnll", "crps")
"""How the names of metrics begin that judge uncertainty; all others judge the point prediction."""


def model_card(name: str, description: Mapping[str, Any], scores: Mapping[str, float]) -> str:
    """A page in Markdown about a saved model.

    Args:
        name: The name of its file.
        description: The model's description, as its file has it.
        scores: Scores on held-out rows, as `evaluate` returns them; there may be none.
    """
    apart = {key: key.startswith(UNCERTAINTY_METRICS) for key in scores}
    return "\n\n".join(
        [
            f"# Model card: {name}",
            "## Model\n\n" + _model(description),
            "## Data\n\nTo be filled in: where the rows come from, how many, from when, and which "
            "rows the scores below are of.",
            "## Scores\n\n" + _score_table({k: v for k, v in scores.items() if not apart[k]}),
            "## Calibration\n\n" + _score_table({k: v for k, v in scores.items() if apart[k]}),
            "## Limits\n\nIntervals and probabilities hold for rows like those of training.\n"
            "A single Gaussian posterior is as a rule too sure away from them.\n\n"
            "To be filled in: what the model must not be used for, and groups it was not "
            "evaluated on.\n",
        ]
    )


def _model(description: Mapping[str, Any]) -> str:
    net, layers = description["net"], description["layers"]
    lines = [
        f"- Net: {'a module of its own' if net is None else f'`{net[0]}`'}",
        f"- Members of the posterior: {description.get('members', 1)}",
        f"- Likelihood: {_named(description['likelihood'])}",
        f"- Made with: headstart {version('headstart')}, torch {version('torch')}",
        "\n| Bayesian layer | posterior | prior |\n|---|---|---|",
    ]
    rows = (
        f"| {f'`{name}`' if name else 'the net'} | {_named(entry['posterior'])} "
        f"| {_named(entry['prior'])} |"
        for name, entry in layers.items()
    )
    return "\n".join([*lines, *rows])


def _named(entry: Mapping[str, Any]) -> str:
    options = ", ".join(f"{key} {value}" for key, value in entry["options"].items())
    return f"{entry['name']} ({options})" if options else str(entry["name"])


def _score_table(scores: Mapping[str, float]) -> str:
    if not scores:
        return "Not measured: pass what `hs.evaluate` returned on held-out rows."
    rows = (f"| {name} | {value:.4g} |" for name, value in scores.items())
    return "\n".join(["| metric | held-out rows |", "|---|--:|", *rows])
