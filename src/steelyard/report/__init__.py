"""Figures, tables and terminal output of runs and grids."""
