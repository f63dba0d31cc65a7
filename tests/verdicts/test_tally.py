"""Sums over rounds do not depend on how many rounds are added at once."""

from typing import Any

import numpy as np
import pytest

from steelyard.verdicts.batch import MAX_KINDS, OTHER, Names, columns_of, kind_of, make_batch
from steelyard.verdicts.sentences import verdicts, verdicts_of
from steelyard.verdicts.tally import MAX_RATIO, Tally, relative_to_usual
from steelyard.weighing import Majority

REASONS = Majority().reasons


def random_rows(seed: int, rounds: int, clients: int) -> list[dict[str, Any]]:
    """Rows with absent and rejected clients, and clients that come later."""
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(1, rounds + 1):
        for place in range(clients if number > 2 else clients - 1):
            status = draw.choice(["used", "used", "used", "idle", f"sent {number} things", "sent nothing"])
            row = {"round": number, "client": f"c{place}", "status": str(status)}
            if status == "used":
                names = ("weight", "trust", "agreement", "votes", "norm", "num_examples", "accuracy")
                row |= {name: float(draw.random()) for name in names}
            rows.append(row)
    return rows


@pytest.mark.parametrize("size", [1, 2, 5])
def test_rounds_may_come_in_batches_of_any_size(size: int) -> None:
    rows = random_rows(0, 12, 5)
    tally = Tally(REASONS)
    for start in range(1, 13, size):
        part = [row for row in rows if start <= row["round"] < start + size]
        tally.add(make_batch(tally.names, columns_of(part)))
    found, whole = verdicts(tally), verdicts_of(rows, REASONS)
    assert [str(each) for each in found.values()] == [str(each) for each in whole.values()]
    assert [each.share for each in found.values()] == pytest.approx([each.share for each in whole.values()])


def test_values_are_relative_to_the_median_of_their_row() -> None:
    values = np.array([[1.0, 2.0, 4.0, np.nan], [0.0, 0.0, 3.0, 0.0], [1.0, 1e-9, 1e9, 1.0]])
    found = relative_to_usual(values)
    np.testing.assert_allclose(found[0], [0.5, 1.0, 2.0, np.nan])
    np.testing.assert_allclose(found[1], [1.0, 1.0, MAX_RATIO, 1.0])
    np.testing.assert_allclose(found[2], [1.0, 1 / MAX_RATIO, MAX_RATIO, 1.0])


def test_a_round_in_which_nothing_is_known_is_no_error() -> None:
    assert np.isnan(relative_to_usual(np.full((2, 3), np.nan))).all()


def test_reasons_of_a_kind_differ_only_in_figures() -> None:
    assert kind_of("norm 34.4, 163 times, 1.5e+08") == kind_of("norm 1, 2 times, 3") == "norm …, … times, …"


def test_a_client_cannot_fill_the_memory_with_reasons() -> None:
    names = Names()
    codes = [names.code(f"failed with {'x' * number}") for number in range(2 * MAX_KINDS)]
    assert len(names.kinds) == MAX_KINDS + 1
    assert codes[-1] == codes[-2] == 2 + names.kinds[OTHER]
    rows = [
        {"round": number, "client": "a", "status": f"failed {'x' * number}", "weight": 0.0}
        for number in range(1, 200)
    ]
    assert "other reasons" in verdicts_of(rows, ())["a"].text
