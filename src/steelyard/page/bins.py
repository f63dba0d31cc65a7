"""Series over rounds with a limited number of columns: of many rounds, each column is the mean of some."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.verdicts.batch import Matrix


class Binned:
    """The means of a matrix over bins of rounds, [B, C]. If there would be too many bins, they get wider."""

    def __init__(self, max_bins: int) -> None:
        self.max_bins, self.width = max_bins, 1
        self.sums, self.counts = np.zeros((0, 0)), np.zeros((0, 0))
        self.changed_from = 0
        """The first bin that changed since `clean`."""

    def __len__(self) -> int:
        return len(self.sums)

    def add(self, rounds: NDArray[np.int64], values: Matrix) -> None:
        """Add rounds [R] that come after those so far, with values [R, C] that are nan where unknown."""
        last = int(rounds[-1])
        while -(-last // self.width) > self.max_bins:
            self._widen()
        bins = (rounds - 1) // self.width
        self._grow(int(bins[-1]) + 1, values.shape[1])
        starts = np.flatnonzero(np.diff(bins, prepend=-1))
        known = ~np.isnan(values)
        self.sums[bins[starts]] += np.add.reduceat(np.where(known, values, 0.0), starts, axis=0)
        self.counts[bins[starts]] += np.add.reduceat(known.astype(np.float64), starts, axis=0)
        self.changed_from = min(self.changed_from, int(bins[0]))

    def means(self, start: int = 0) -> Matrix:
        """[B - start, C]; nan where nothing is known."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.sums[start:] / self.counts[start:]

    def clean(self) -> None:
        self.changed_from = len(self)

    def _grow(self, bins: int, columns: int) -> None:
        rows, width = self.sums.shape
        if bins > rows or columns > width:
            more = ((0, max(bins - rows, 0)), (0, max(columns - width, 0)))
            self.sums, self.counts = np.pad(self.sums, more), np.pad(self.counts, more)

    def _widen(self) -> None:
        self.sums, self.counts = (_pairs(values).sum(axis=1) for values in (self.sums, self.counts))
        self.width, self.changed_from = 2 * self.width, 0


class LastCode:
    """The last code of each bin, -1 where there is none, [B, C]; in the bins of a `Binned`."""

    def __init__(self) -> None:
        self.codes = np.full((0, 0), -1)

    def add(self, bins: Sequence[int], columns: Sequence[int], codes: Sequence[int], like: Binned) -> None:
        """Note codes, given in the order of rounds; `like` has been widened as these codes are to be."""
        rows, width = like.sums.shape
        more = ((0, rows - self.codes.shape[0]), (0, width - self.codes.shape[1]))
        self.codes = np.pad(self.codes, more, constant_values=-1)
        self.codes[list(bins), list(columns)] = codes

    def widen(self) -> None:
        first, second = np.moveaxis(_pairs(self.codes, -1), 1, 0)
        self.codes = np.where(second >= 0, second, first)


def _pairs(values: NDArray[Any], fill: float = 0) -> NDArray[Any]:
    """Rows two by two, [B / 2, 2, C]; an odd last row gets an empty partner."""
    rows, columns = values.shape
    even = np.pad(values, ((0, rows % 2), (0, 0)), constant_values=fill)
    return even.reshape(len(even) // 2, 2, columns)


def bin_ranges(count: int, width: int, last: int, start: int = 0) -> list[list[int]]:
    """First and last round of each bin."""
    return [[place * width + 1, min((place + 1) * width, last)] for place in range(start, count)]


def bin_note(width: int, last: int) -> str | None:
    """The sentence that says what a column is."""
    return None if width == 1 else f"{last:,} rounds: each column is the mean of {width} rounds."


def plain(values: Matrix, digits: int) -> list[Any]:
    """Nested lists of numbers with some significant digits; None in place of nan and infinity."""
    finite = np.isfinite(values)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = 10.0 ** (digits - 1 - np.floor(np.log10(np.abs(values))))
        rounded = np.where((values == 0) | ~np.isfinite(scale), values, np.round(values * scale) / scale)
    found: list[Any] = np.where(finite, rounded, np.nan).tolist()
    return [_without_nan(each) for each in found]


def _without_nan(value: Any) -> Any:
    if isinstance(value, list):
        return [None if each != each else each for each in value]
    return None if value != value else value
