"""The command line."""

from headstart.cli.program import app, main

__all__ = ["app", "main"]
