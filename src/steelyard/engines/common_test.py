"""Clients whose test data are rows of the common test set: one prediction of it serves them all."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steelyard.data.clients import Client
from steelyard.data.examples import Examples, share_a_table
from steelyard.engines.workload import Workload
from steelyard.metrics.scores import Terms
from steelyard.sites import ScoreTable
from steelyard.types import ClientId


class ScoreRequest(NamedTuple):
    """Clients that are to score a model on data of their own."""

    clients: Sequence[ClientId]
    own_test: bool
    """False: only on what they hold out."""
    detail: bool


@dataclass(frozen=True, eq=False)
class Members:
    """Clients by how they are scored."""

    inside: tuple[ClientId, ...]
    """Their test data are rows of the common test set."""
    rows: NDArray[np.int64]
    """These rows, client after client."""
    starts: NDArray[np.int64]
    """Where each client's rows begin."""
    counts: NDArray[np.int64]
    """How many rows each client has."""
    apart: tuple[ClientId, ...]
    """They predict on data of their own."""
    held_out: tuple[ClientId, ...]
    """Clients inside that also hold examples out."""

    def requests(self, detail: bool) -> list[ScoreRequest]:
        """What these clients have to score by themselves."""
        held_out = ScoreRequest(self.held_out, own_test=False, detail=detail)
        apart = ScoreRequest(self.apart, own_test=True, detail=detail)
        return [request for request in (held_out, apart) if request.clients]

    def scores(self, terms: Terms) -> ScoreTable:
        """The scores of the clients inside, from the terms of the common test set."""
        sums = terms.sum_by(self.rows, self.starts, self.counts)
        return ScoreTable(self.inside, sums, terms.classes)


class CommonTest:
    """The common test set of a simulation, and where rows of its table lie in it.

    A model that draws when it predicts (posteriors) draws by batch: its clients predict on their own data, as
    real sites do. So do clients of a task that is not plain, or has metrics of the user's own.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        task = workload.learner.task
        apart = workload.has_private_layers or not task.plain or bool(task.metrics)
        apart = apart or workload.draws_in_predictions
        self.test = None if apart else workload.test

    def members(self, clients: Sequence[ClientId]) -> Members:
        """Sort clients by how they are scored. Clients without data to score are in neither group."""
        inside: dict[ClientId, Tensor] = {}
        apart, held_out = [], []
        for id in clients:
            try:
                client = self.workload.clients[id]
                rows = self._rows(client)
                own = client.test is not None and len(client.test) > 0
                holds = client.held_out is not None and len(client.held_out) > 0
            except Exception:  # evaluated apart, where it fails by name
                rows, own, holds = None, True, False
            if rows is not None:
                inside[id] = rows
                held_out += [id] if holds else []
            elif own or holds or self._needs_common:
                apart.append(id)
        counts = np.array([len(rows) for rows in inside.values()], np.int64)
        return Members(
            tuple(inside),
            torch.cat([torch.zeros(0, dtype=torch.int64), *inside.values()]).numpy(),
            np.cumsum(counts) - counts,
            counts,
            tuple(apart),
            tuple(held_out),
        )

    @property
    def _needs_common(self) -> bool:
        """Whether clients with models of their own are scored on the common test set."""
        return self.workload.has_private_layers and self.workload.test is not None

    def _rows(self, client: Client) -> Tensor | None:
        """The rows of the common test set that are the client's own test data, if they all are."""
        if self.test is None or client.test is None or not len(client.test):
            return None
        if not share_a_table(client.test, self.test):
            return None
        rows: Tensor = self._places[client.test.rows]
        return None if bool((rows < 0).any()) else rows

    @cached_property
    def _places(self) -> Tensor:
        """Where each row of the table lies in the common test set; -1 for the others."""
        assert isinstance(self.test, Examples)
        places = torch.full((len(self.test.inputs),), -1)
        places[self.test.rows] = torch.arange(len(self.test))
        return places
