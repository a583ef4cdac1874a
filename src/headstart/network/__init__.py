"""A Bayesian net and its forward passes."""
