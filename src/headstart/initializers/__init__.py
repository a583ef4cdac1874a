"""Where the posterior starts."""

from headstart.initializers.registry import BATCH_SIZE, INITIALIZERS, Initializer, initialize_
from headstart.initializers.report import InitReport, LayerReport

__all__ = ["BATCH_SIZE", "INITIALIZERS", "InitReport", "Initializer", "LayerReport", "initialize_"]
