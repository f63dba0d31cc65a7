"""Every kind of malformed answer, one in a round, through the server and the recorder."""

import math
from pathlib import Path
from typing import Any

import pytest
from malformed_answers import reply_kinds
from malformed_claims import claim_kinds
from scripted_sites import ScriptedSites, recorded_run

from steelyard.server.reasons import MAX_REASON
from steelyard.sites import Answer

HONEST, HOSTILE = ("honest-a", "honest-b", "honest-c"), "hostile"
KINDS = [*reply_kinds(), *claim_kinds()]
COLUMNS = {
    "round", "client", "status", "weight", "norm", "num_examples", "loss", "steps", "accuracy", "evaluation",
}  # fmt: skip
Rows = dict[tuple[int, str], dict[str, Any]]


def test_there_are_enough_kinds() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS) > 250


def malformed(answer: Answer, round: int) -> Any:
    """What the hostile client sends: each round another kind; the last exchange only scores."""
    return KINDS[round - 1].make(answer) if round <= len(KINDS) else [answer]


@pytest.mark.parametrize("posterior", [False, True])
def test_no_kind_of_answer_touches_the_run_or_other_clients(tmp_path: Path, posterior: bool) -> None:
    sites = ScriptedSites(HONEST, [HOSTILE], malformed)
    attacked = recorded_run(tmp_path / "attacked", sites, len(KINDS), posterior)
    clean = recorded_run(tmp_path / "clean", ScriptedSites(HONEST), len(KINDS), posterior)
    assert attacked.meta["status"] == "finished"
    found, wanted = ({(row["round"], row["client"]): row for row in run.clients} for run in (attacked, clean))
    assert set(found[1, HOSTILE]) == COLUMNS
    rounds, clean_rounds = attacked.rounds, clean.rounds
    for number, kind in enumerate(KINDS, start=1):
        row = found[number, HOSTILE]
        assert (row["status"] == "used") == kind.used, f"{kind.name}: {row['status']}"
        for text in filter(None, (row["status"], row["evaluation"])):
            assert 0 < len(text) <= MAX_REASON, kind.name
            assert text.isprintable(), kind.name
        check_honest_rows(found, wanted, number, kind.used, kind.name)
        round = rounds[number - 1]
        assert all(math.isfinite(value) for value in round.values() if value is not None), kind.name
        assert round["used"] == 3 + kind.used
        if not kind.used:
            assert round["loss"] == clean_rounds[number - 1]["loss"], kind.name
    dropped = [row for (_, client), row in found.items() if client == HOSTILE and row["evaluation"]]
    assert len(dropped) > 50


def check_honest_rows(found: Rows, wanted: Rows, number: int, used: bool, name: str) -> None:
    """Nothing in the rows of honest clients depends on a rejected answer, and of a used one only weights."""
    shared = {"weight"} if used else set()
    for client in HONEST:
        row = {key: value for key, value in found[number, client].items() if key not in shared}
        for key, value in row.items():
            assert wanted[number, client].get(key) == value, (name, client, key)
        assert row["status"] == "used", name
