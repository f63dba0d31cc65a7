"""Experiment files: the schema, the sources of settings, and building a federation from them."""
