"""What every page of a report has."""

from __future__ import annotations

from abc import ABC, abstractmethod

from headstart.experiments.results import Results
from headstart.reporting.document import Block


class ReportPage(ABC):
    """How the results of a suite are shown."""

    @abstractmethod
    def sentence(self, results: Results) -> str:
        """The outcome in a sentence or two."""

    @abstractmethod
    def blocks(self, name: str, results: Results) -> list[Block]:
        """Tables and pictures, these named after the suite `name`."""
