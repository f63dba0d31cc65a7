"""Many runs at once: comparisons, grids, and the experiments of papers."""
