"""A run on disk: written, read back, summarised."""
