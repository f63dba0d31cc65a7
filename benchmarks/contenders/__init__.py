"""Everyone who takes part in `benchmarks/simulation.py`, each a program of its own."""
