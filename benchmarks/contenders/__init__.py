"""The programs that `benchmarks/simulation.py` and `benchmarks/aggregation.py` run as processes."""
