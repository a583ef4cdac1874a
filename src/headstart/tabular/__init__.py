"""From a table to calibrated predictions: fit, predict and report on a csv or parquet file."""
