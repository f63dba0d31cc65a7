"""Rounds in which every client fails are skipped; the run goes on, also from a saved state."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from scripted_sites import CLASSES, ScriptedSites, ServerTest
from torch import nn

from steelyard.algorithm import Algorithm
from steelyard.errors import ClientError
from steelyard.server.federation import Federation
from steelyard.server.selection import Best
from steelyard.server.state import FederationState
from steelyard.sites import Answer
from steelyard.types import Failure, Round, Row

CLIENTS = ("a", "b", "c")


class States:
    """Keeps every state of a run."""

    def __init__(self) -> None:
        self.states: list[FederationState] = []
        self.history: list[Row] = []

    def __call__(self, round: Round) -> None:
        self.history.append({"round": round.number, **round.metrics})

    def is_due(self) -> bool:
        return True

    def save(self, state: FederationState) -> None:
        self.states.append(state)

    def finish(self, state: FederationState, model: nn.Module, best: Best | None = None) -> None: ...

    def note(self, **values: str) -> None: ...

    def rows(self) -> tuple[Sequence[Row], Sequence[Row]]:
        return self.history, ()


def federation(failing: set[int], **settings: Any) -> Federation:
    """In some rounds, every client fails."""

    def script(answer: Answer, round: int) -> list[Any]:
        return [Failure(answer.client, "training", "no disk") if round in failing else answer]

    torch.manual_seed(0)
    sites = ScriptedSites((), CLIENTS, script)
    return Federation(sites, Algorithm(), nn.Linear(2, CLASSES), test=ServerTest(), rounds=6, **settings)


def test_a_run_resumed_in_any_round_ends_as_the_whole_run() -> None:
    kept = States()
    whole = federation({1, 3, 4}, clients_per_round=2).run(keeper=kept)
    assert [row["used"] for row in kept.history] == [0, 2, 0, 0, 2, 2]
    assert len(kept.states) == 6
    for state in kept.states:
        again = federation({1, 3, 4}, clients_per_round=2).run(state=state)
        assert again.history == tuple(kept.history[state.round - 1 :])
        assert torch.equal(again.model.weight, whole.model.weight)  # type: ignore[arg-type]


def test_only_if_all_clients_of_the_federation_fail_in_the_first_round_the_run_ends() -> None:
    with pytest.raises(ClientError, match="client 'a' failed in round 1 while training: no disk"):
        federation({1}).run()
    assert len(federation({2, 3}).run().history) == 6
