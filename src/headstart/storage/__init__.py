"""What is kept on disk: files, models, checkpoints."""
