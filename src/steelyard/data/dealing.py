"""Deal the rows of a data set to clients."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard.data.clients import Client, Population
from steelyard.data.dataset import Dataset
from steelyard.data.examples import Examples
from steelyard.errors import InputError
from steelyard.seeds import generator, seeded
from steelyard.types import ClientId

Shift = Callable[[Tensor, int], Tensor]
"""A covariate shift: (images [N, C, H, W], position of the client) -> that client's version of the images."""


def deal(
    dataset: Dataset, rows: Sequence[Tensor], seed: int, shift: Shift | None = None, holdout: float = 0.0
) -> Population:
    """Clients that hold the given training rows; each holds out a share `holdout` of them.

    A client is tested on rows of the test set that have the label mix of its training rows, or on the whole
    test set if the targets are numbers. A shift changes its training, held-out and test images alike.
    """
    ids = client_names(len(rows))
    sizes = [len(part) - num_held_out(len(part), holdout) for part in rows]
    if 0 in sizes:
        raise InputError(f"the partition leaves {ids[sizes.index(0)]} empty; take fewer clients.")
    return Population(ids, Dealer(dataset, rows, seed, shift, holdout), sizes)


def client_names(count: int) -> list[ClientId]:
    """The ids of clients that are dealt: client-00 to client-11, if there are twelve."""
    width = len(str(count - 1))
    return [f"client-{number:0{width}d}" for number in range(count)]


def num_held_out(size: int, share: float) -> int:
    """How many of `size` examples are held out: at least 1 if `share` is not 0, but never all."""
    return min(max(round(share * size), 1), size - 1) if share > 0 and size > 1 else 0


class Dealer:
    """Creates a client of `deal` from its id. The rows of all clients are stored in one vector."""

    own_code = False

    def __init__(
        self,
        dataset: Dataset,
        rows: Sequence[Tensor],
        seed: int,
        shift: Shift | None = None,
        holdout: float = 0.0,
    ) -> None:
        self.dataset, self.seed, self.shift, self.holdout = dataset, seed, shift, holdout
        self.rows = torch.cat(list(rows))
        self.stops = list(itertools.accumulate(len(part) for part in rows))
        labels = dataset.test.labels
        if labels.is_floating_point():  # numbers have no label mix: every client is tested on all rows
            labels = torch.zeros(len(labels), dtype=torch.int64)
        self.label_counts = torch.bincount(labels)
        self.rows_by_label = torch.split(torch.argsort(labels, stable=True), self.label_counts.tolist())
        """Positions in the test set of each label."""

    def __call__(self, id: ClientId) -> Client:
        number = int(id.removeprefix("client-"))
        start = self.stops[number - 1] if number else 0
        data = self.dataset.train.take(self.rows[start : self.stops[number]])
        train, held_out = self._split(self._shifted(data, number), int(data.rows[0]))
        return Client(id, train, partial(self._test, data.labels, number), held_out)

    def _split(self, data: Examples, first_row: int) -> tuple[Examples, Examples | None]:
        """Training and held-out examples. The draw depends on the client's first row, so clients with the
        same rows (an extra adversary and the client that it copies) hold out the same examples."""
        size = num_held_out(len(data), self.holdout)
        if not size:
            return data, None
        drawn = torch.randperm(len(data), generator=generator(self.seed, first_row, "holdout"))
        return data.take(drawn[size:].sort().values), data.take(drawn[:size].sort().values)

    def _test(self, labels: Tensor, number: int) -> Examples:
        draw = generator(self.seed, number, "client-test")
        return self._shifted(self.dataset.test.take(self._matching(labels, draw)), number)

    def _shifted(self, data: Examples, number: int) -> Examples:
        if self.shift is None:
            return data
        with seeded(self.seed, number, "shift"):
            inputs = self.shift(data.inputs[data.rows], number)
        return replace(data, inputs=inputs, targets=data.labels, rows=torch.arange(len(inputs)))

    def _matching(self, labels: Tensor, draw: torch.Generator) -> Tensor:
        """Test positions with the label mix of `labels`: as many, at least 100, unless a label runs out."""
        if labels.is_floating_point():
            return torch.arange(len(self.dataset.test))
        classes = max(int(labels.max()) + 1, len(self.label_counts))
        shares = torch.bincount(labels, minlength=classes).double() / len(labels)
        available = F.pad(self.label_counts, (0, classes - len(self.label_counts)))
        common = (shares > 0) & (available > 0)
        if not bool(common.any()):
            return torch.arange(int(available.sum()))
        size = min(float((available[common] / shares[common]).min()), max(len(labels), 100.0))
        counts = (shares * size).round().clamp(min=1).long()
        picks = []
        for label in common.nonzero().flatten().tolist():
            rows = self.rows_by_label[label]
            picks.append(rows[torch.randperm(len(rows), generator=draw)[: counts[label]]])
        return torch.cat(picks).sort().values
