"""The only place that knows that there may be several processes."""
