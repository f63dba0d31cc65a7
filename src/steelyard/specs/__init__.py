"""The experiment file: its schema, its sources, and building a federation from it."""
