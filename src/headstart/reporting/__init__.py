"""Pages and pictures, for tables and experiments alike."""
