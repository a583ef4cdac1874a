"""How fast a training step is, beside plain torch and beside other libraries."""
