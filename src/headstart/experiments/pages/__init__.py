"""What a report says about a suite: a sentence for the overview, tables and pictures."""

from __future__ import annotations

from headstart.experiments.catalogue import SUITES
from headstart.experiments.pages.ablation import AblationPage
from headstart.experiments.pages.base import ReportPage
from headstart.experiments.pages.optimizers import OptimizerPage
from headstart.experiments.pages.pareto import ParetoPage
from headstart.experiments.pages.race import RacePage
from headstart.experiments.pages.rows import RowsPage

__all__ = ["PAGES", "ReportPage", "page_of"]

PAGES: dict[str, ReportPage] = {
    "iblm-ablation": AblationPage(),
    "iblm-noise": AblationPage(),
    "iblm-rows": RowsPage(),
    "iblm-pareto": ParetoPage(),
    "lenet-ablation": AblationPage(),
    "lenet-rows": RowsPage(),
    "lenet-pareto": ParetoPage(),
    "kept-mnist": OptimizerPage(kept=True),
    "kept-cifar10": OptimizerPage(kept=True),
    **{name: OptimizerPage() for name in SUITES if name.startswith(("gained-", "far-"))},
    "noisy-kfac-lenet": RacePage(methods=True),
    "noisy-kfac-regression": RacePage(methods=True),
}
"""Suites with a page of their own; all others are races."""


def page_of(suite: str) -> ReportPage:
    """The page of a suite."""
    return PAGES.get(suite) or RacePage(SUITES[suite].paper if suite in SUITES else None)
