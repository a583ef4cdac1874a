"""What a report says about a suite: a sentence for the overview, tables and pictures for the page."""

from __future__ import annotations

from headstart.experiments.catalogue import SUITES
from headstart.experiments.pages.ablation import Ablation
from headstart.experiments.pages.base import Page
from headstart.experiments.pages.pareto import Pareto
from headstart.experiments.pages.race import Race
from headstart.experiments.pages.rows import Rows

__all__ = ["PAGES", "Page", "page_of"]

PAGES: dict[str, Page] = {
    "iblm-ablation": Ablation(),
    "iblm-noise": Ablation(),
    "iblm-rows": Rows(),
    "iblm-pareto": Pareto(),
    "lenet-ablation": Ablation(),
    "lenet-rows": Rows(),
    "lenet-pareto": Pareto(),
    "noisy-kfac-lenet": Race(methods=True),
    "noisy-kfac-regression": Race(methods=True),
}
"""Suites with a page of their own; all others are races."""


def page_of(suite: str) -> Page:
    """The page of a suite."""
    return PAGES.get(suite) or Race(SUITES[suite].paper if suite in SUITES else None)
