"""Where the posterior starts."""

from headstart.initializers.registry import INITIALIZERS, Initializer, initialize_
from headstart.initializers.report import InitReport, LayerReport

__all__ = ["INITIALIZERS", "InitReport", "Initializer", "LayerReport", "initialize_"]
