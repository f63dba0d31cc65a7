"""What the live view says, from rounds."""

import math

import numpy as np
import pytest
from rich.cells import cell_len

from steelyard.report.live_figures import (
    TREND,
    Seen,
    listed,
    number,
    rejections,
    scores,
    shortened,
    weighed_down,
)
from steelyard.types import Round


def a_round(number: int, weights: dict[str, float | str], **metrics: float) -> Round:
    """Clients with a weight, or with the reason why they have none."""
    rows = [
        {"client": client, "status": "used", "weight": weight}
        if isinstance(weight, float)
        else {"client": client, "status": weight, "weight": 0.0}
        for client, weight in weights.items()
    ]
    return Round(number, metrics, tuple(rows))


def after(*rounds: dict[str, float | str]) -> Seen:
    seen = Seen(len(rounds))
    for position, weights in enumerate(rounds, 1):
        seen = seen.after(a_round(position, weights))
    return seen


def share(seen: Seen, client: str) -> float:
    return float(seen.shares[seen.clients[client]])


def test_shares_are_running_means_relative_to_an_equal_share() -> None:
    seen = after({"a": 0.1, "b": 0.4, "c": 0.25, "d": 0.25})
    assert [share(seen, client) for client in "abcd"] == pytest.approx([0.4, 1.6, 1.0, 1.0])
    seen = seen.after(a_round(2, {"a": 0.6, "b": 0.4}))  # two clients in this round
    assert share(seen, "a") == pytest.approx(0.4 + 0.2 * (1.2 - 0.4))
    assert share(seen, "c") == 1.0


def test_one_light_round_does_not_make_a_client_weighed_down_and_one_heavy_round_does_not_end_it() -> None:
    even, light = {"a": 0.5, "b": 0.5}, {"a": 0.0, "b": 1.0}
    assert weighed_down(after(even, light), 80) == ""
    assert weighed_down(after(light, even), 80) == "a 0.20 × an equal share"


def test_the_lowest_come_first_and_the_others_are_counted() -> None:
    weights = {"a": 0.05, "b": 0.0, "c": 0.02, "d": 0.31, "e": 0.31, "f": 0.31}
    assert weighed_down(after(weights), 60) == "b 0.00 ×, c 0.12 ×, a 0.30 × an equal share"
    assert weighed_down(after(weights), 40) == "b 0.00 × an equal share, +2 more"
    assert weighed_down(after(weights), 12) == "3 clients"


def test_negative_weights_are_low_and_nan_is_not() -> None:
    assert weighed_down(after({"a": -0.5, "b": 1.5}), 60) == "a -1.00 × an equal share"
    assert weighed_down(after({"a": math.nan, "b": 0.5}), 60) == ""


def test_rejected_clients_are_counted_and_are_not_weighed_down_as_well() -> None:
    seen = after({"a": 0.0, "b": 1.0}, {"a": "contains NaN", "b": 1.0}, {"b": "late", "a": "contains NaN"})
    assert rejections(seen, 60) == "a 2/3, b 1/3 rounds"
    assert weighed_down(seen, 60) == ""
    again = seen.after(a_round(4, {"a": 0.1, "b": 0.9}))
    assert weighed_down(again, 60) == "a 0.20 × an equal share"
    assert rejections(again, 60) == "a 2/4, b 1/4 rounds"


def test_a_reason_is_shown_where_there_is_space() -> None:
    seen = after({"a": "contains\n\x1b[31mNaN", "b": "late"}, {"a": "contains\n\x1b[31mNaN", "b": 1.0})
    assert rejections(seen, 80) == "a 2/2, b 1/2 rounds; a: contains NaN"
    assert rejections(seen, 60) == "a 2/2, b 1/2 rounds"
    long = after({"a": "word " * 100})
    assert all(cell_len(rejections(long, width)) <= width for width in range(20, 200))
    assert "…" in rejections(long, 200)


def test_skipped_rounds_and_idle_clients_are_nobodys_fault() -> None:
    seen = after({"a": "not used: too few replies", "b": "not used: too few replies"})
    seen = seen.after(Round(2, {}, ({"client": "c", "status": "idle", "accuracy": 0.5},)))
    assert (rejections(seen, 80), weighed_down(seen, 80)) == ("", "")
    assert "c" not in seen.clients


def test_a_round_leaves_what_was_before_unchanged() -> None:
    first = after({"a": 0.1, "b": 0.9})
    first.after(a_round(2, {"a": "late", "b": 1.0, "new": 0.0}))
    assert share(first, "a") == pytest.approx(0.2)
    assert (list(first.clients), first.rejected.tolist()) == (["a", "b"], [0.0, 0.0])


@pytest.mark.parametrize(
    ("metrics", "first"),
    [
        ({"accuracy": 0.5, "client_accuracy": 0.4, "loss": 1.0}, ("accuracy", "0.500")),
        ({"mse": 12345.6, "loss": 1.0}, ("mse", "1.23e+04")),
        ({"loss": 1.0, "client_accuracy": 0.4}, ("client accuracy", "0.400")),
        ({"loss": 1.0, "client_mse": 0.0001}, ("client mse", "0.0001")),
        ({"loss": 1.0}, ("loss", "1.000")),
    ],
)
def test_the_first_score_is_the_one_that_says_most(metrics: dict[str, float], first: tuple[str, str]) -> None:
    found = scores(Seen(2).after(a_round(1, {}, **metrics)))
    assert found[0] == first
    assert ("loss", "1.000") in found


def test_scores_stay_until_the_next_evaluation() -> None:
    seen = Seen(5).after(a_round(1, {}, accuracy=0.5, effective_clients=2.5, used=4.0)).after(a_round(2, {}))
    assert seen.number == 2
    assert scores(seen) == [("accuracy", "0.500"), ("effective clients", "2.5 of 4")]


@pytest.mark.parametrize("rounds", [1, 7, 40, 1000])
def test_the_course_is_short_however_many_rounds_there_are(rounds: int) -> None:
    seen = Seen(rounds)
    for position in range(1, rounds + 1):
        seen = seen.after(a_round(position, {}, accuracy=position / rounds))
    assert len(seen.trend) == min(rounds, TREND)
    assert list(seen.trend) == sorted(seen.trend)
    assert list(seen.trend.values())[-1] == 1.0


HOSTILE = "\x1b[2J\x1b]0;t\x07first\nsecond\tthird\u202e" + "x" * 1000


def test_names_are_made_plain_and_short() -> None:
    name = shortened(HOSTILE, 16)
    assert name == "first se…xxxxxxx"
    assert shortened("hospital-of-the-north-1", 16) == "hospital…north-1"
    assert shortened("\x1b[31m", 16) == "?"


@pytest.mark.parametrize("name", [HOSTILE, "漢" * 50, "e" + "\u0301" * 500, "👩‍👩‍👧" * 20, "abc"])
@pytest.mark.parametrize("cells", [8, 15, 16, 32])
def test_short_names_have_few_columns_and_few_characters(name: str, cells: int) -> None:
    assert cell_len(shortened(name, cells)) <= cells
    assert len(shortened(name, cells)) <= cells


def test_a_list_fits_or_is_a_count() -> None:
    items = ["one 1", "two 2", "three 3"]
    for width in range(7, 60):
        text = listed(items, " units", 1000, width)
        assert cell_len(text) <= max(width, len("1000 clients"))
        shown = [item for item in items if item in text]
        assert text == "1000 clients" or text.endswith(f" units, +{1000 - len(shown)} more")
    assert listed([], " units", 0, 60) == ""
    assert listed(["a long item"], "", 1, 10) == "one client"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.000"), (0.1234, "0.123"), (0.00123, "0.00123"), (1234.5, "1.23e+03"), (math.nan, "nan")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_a_thousand_clients() -> None:
    clients = {f"client-{place:04}": (0.0 if place % 2 else 2.0 / 1000) for place in range(1000)}
    seen = after(clients, clients, {**clients, "client-0000": "late"})
    assert weighed_down(seen, 68) == "client-0001 0.00 ×, client-0003 0.00 × an equal share, +498 more"
    assert rejections(seen, 66) == "client-0000 1/3 rounds"
    assert np.nanmean(seen.shares) == pytest.approx(1.0, abs=0.01)


def test_scores_on_validation_data_are_shown_once() -> None:
    with_test = Seen(1).after(a_round(1, {"a": 1.0}, accuracy=0.5, validation_accuracy=0.25))
    assert [label for label, _ in scores(with_test)] == ["accuracy", "validation accuracy"]
    without = Seen(1).after(a_round(1, {"a": 1.0}, validation_accuracy=0.25))
    assert [label for label, _ in scores(without)] == ["validation accuracy"]
