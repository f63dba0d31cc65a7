"""Ten thousand fuzzed messages, from the pieces that a site sends to the record of the run."""

from pathlib import Path

import pytest
from fuzzed_federation import fuzz

from steelyard.flower import asking

ANSWERS = 10_000


@pytest.mark.parametrize(("hostile", "share"), [(1, 0.05), (19, 0.95)])
def test_fuzzed_messages_change_nothing_of_others_and_leave_clean_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: int, share: float
) -> None:
    """Beside two honest clients there is one hostile one, or so many that they take part in every round."""
    monkeypatch.setattr(asking, "POLL_SECONDS", 0.0)
    answers = int(share * ANSWERS)
    found = fuzz(tmp_path, answers // hostile, hostile, seed=1)
    assert found.answers >= answers
    assert found.used > answers // 10
    assert found.unscored > answers // 100
    assert found.megabytes < 500
    assert found.wrongly_used == []
    assert found.bad_texts == []
    assert (found.changed, found.not_finite, found.missing) == (0, 0, 0)
