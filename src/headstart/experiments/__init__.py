"""Experiments: the demo, the paper's suites, their store and reports."""
