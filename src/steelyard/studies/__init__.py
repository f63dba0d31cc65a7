"""Many runs: comparisons, grids, and the experiments of papers."""
