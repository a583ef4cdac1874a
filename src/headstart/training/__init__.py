"""From a start to a converged posterior."""
