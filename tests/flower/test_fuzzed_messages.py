"""Ten thousand fuzzed messages, from the pieces that a site sends to the record of the run."""

from pathlib import Path

import pytest
from fuzzed_federation import clean_run, fuzz

from steelyard.flower import remote
from steelyard.runs.reader import Run

ROUNDS = 5_000  # of each seed, and at least one fuzzed message in each
SEEDS = (1, 2)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return clean_run(tmp_path_factory.mktemp("clean"), ROUNDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_fuzzed_messages_change_nothing_of_others_and_leave_clean_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: Run, seed: int
) -> None:
    monkeypatch.setattr(remote, "POLL_SECONDS", 0.0)
    found = fuzz(tmp_path, ROUNDS, seed, clean)
    assert found.answers >= ROUNDS
    assert found.used > ROUNDS // 10
    assert found.unscored > ROUNDS // 100
    assert found.megabytes < 500
    assert found.wrongly_used == []
    assert found.bad_texts == []
    assert (found.changed, found.not_finite, found.missing) == (0, 0, 0)
