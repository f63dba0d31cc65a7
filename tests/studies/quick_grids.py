"""Small, quick grids that the tests of grids share."""

from typing import Any

from steelyard.studies.grid import Grid, read_grid

QUICK: dict[str, Any] = {"rounds": 1, "data.clients": 3, "training.steps": 2}


def small(**axes: Any) -> Grid:
    return read_grid(None, QUICK, **axes)
