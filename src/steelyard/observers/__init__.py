"""Observers of a run: they take its rounds to where people already look."""
