"""A hundred thousand answers, malformed at random, through the server and the recorder."""

from pathlib import Path

import pytest
from fuzzed_runs import fuzz


@pytest.mark.parametrize("posterior", [False, True])
def test_fuzzed_answers_change_nothing_of_others_and_leave_clean_reasons(
    tmp_path: Path, posterior: bool
) -> None:
    found = fuzz(tmp_path, 500, posterior, seed=1)
    assert found.answers >= 50_000
    assert found.used > 5_000
    assert found.rejected > 20_000
    assert found.unscored > 5_000
    assert (found.changed, found.bad_texts, found.not_finite, found.bad_columns) == (0, 0, 0, 0)
