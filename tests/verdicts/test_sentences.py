"""Verdicts say what the record shows, with its figures, and not more."""

from typing import Any

import numpy as np
import pytest

from steelyard.verdicts.reasons import EXAMPLES, Reason, from_json, to_json
from steelyard.verdicts.sentences import Verdict, figure, percent, verdicts_of
from steelyard.weighing import IvarVb, Majority, Samples, Uniform

Rows = list[dict[str, Any]]


def rounds(count: int, **clients: Any) -> Rows:
    """Rows of some rounds. A client is given by its weight, a status, or a table of figures."""
    rows: Rows = []
    for number in range(1, count + 1):
        for client, given in clients.items():
            value = given(number) if callable(given) else given
            row = {"weight": 0.0, "status": value} if isinstance(value, str) else {"status": "used"}
            row |= value if isinstance(value, dict) else {} if isinstance(value, str) else {"weight": value}
            rows.append({"round": number, "client": client, **row})
    return rows


def others(count: int, **figures: Any) -> dict[str, dict[str, Any]]:
    return {f"other-{place}": dict(figures) for place in range(count)}


def text_of(rows: Rows, reasons: tuple[Reason, ...], client: str) -> str:
    return verdicts_of(rows, reasons)[client].text


def test_a_client_that_pulls_against_the_majority() -> None:
    def turin(number: int) -> dict[str, float]:
        against = number > 3
        return {"weight": 0.02, "trust": 0.0 if against else 1.0, "agreement": -0.25 if against else 0.02}

    usual = others(9, weight=0.98 / 9, trust=1.0, agreement=0.34, votes=1.0, norm=1.0, num_examples=50)
    text = text_of(rounds(20, turin=turin, **usual), Majority().reasons, "turin")
    assert text == (
        "turin counted for 2 % (equal share 10 %): it pulled against the majority in 17 of 20 rounds "
        "(agreement −0.21, usual 0.34)."
    )


def test_no_opposition_is_claimed_where_a_cosine_is_negative_by_chance() -> None:
    noise = {"weight": 0.0, "trust": 0.0, "agreement": -0.003}
    usual = others(9, weight=1 / 9, trust=1.0, agreement=0.34)
    text = text_of(rounds(4, noise=noise, **usual), Majority().reasons, "noise")
    assert "against" not in text
    assert "it agreed less with the majority in all 4 rounds (agreement −0.003, usual 0.34)" in text


def test_a_client_whose_updates_could_not_be_used() -> None:
    def oslo(number: int) -> str | float:
        return "sent a mean that is not finite" if 3 <= number <= 9 else 0.5

    text = text_of(rounds(20, oslo=oslo, turin=0.5), (), "oslo")
    assert text == (
        "oslo counted for 32 % (equal share 50 %): it was rejected in rounds 3–9: it sent a mean that is not "
        "finite."
    )


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("sent no reply", "oslo did not count: it was rejected in all 5 rounds: it sent no reply."),
        (
            "failed while training: OSError: disk",
            "oslo did not count: it failed while training in all 5 rounds: OSError: disk.",
        ),
        (
            "not used: the round fell below its quorum",
            "oslo did not count: its reply was not used in all 5 rounds: the round fell below its quorum.",
        ),
    ],
)
def test_a_client_that_never_counted(status: str, said: str) -> None:
    assert text_of(rounds(5, oslo=status, turin=1.0), (), "oslo") == said


def test_reasons_that_differ_only_in_their_figures_are_one_reason() -> None:
    def oslo(number: int) -> str | float:
        return f"sent an update of norm {number}.5, {10 * number} times the usual" if number % 2 else 0.5

    text = text_of(rounds(6, oslo=oslo, turin=0.5), (), "oslo")
    assert "it was rejected in 3 of 6 rounds (1, 3, 5): it sent an update of norm 5.5, 50 times" in text


def test_at_most_three_ranges_and_two_reasons_are_listed() -> None:
    def oslo(number: int) -> str | float:
        reasons = {0: "sent a", 1: "sent b", 2: "sent c"}
        return reasons[number % 3] if number <= 30 else 0.5

    text = text_of(rounds(40, oslo=oslo, turin=0.5), (), "oslo")
    assert text.count("rejected") == 2
    assert "and others)" in text
    assert "its reply was not used for other reasons in 10 rounds" in text


def test_a_client_with_little_noise() -> None:
    usual = others(9, weight=0.09, variance=2.5)
    text = text_of(rounds(5, lyon={"weight": 0.19, "variance": 1.0}, **usual), IvarVb().reasons, "lyon")
    assert text == (
        "lyon counted for 19 % (equal share 10 %): its updates were less noisy than usual "
        "(variance 0.4 × the usual)."
    )


def test_a_variance_is_compared_within_its_round() -> None:
    """Variances fall over the rounds by orders of magnitude; what counts is the ratio to the usual one."""

    def client(factor: float) -> Any:
        return lambda number: {"weight": 0.1, "variance": factor * 10.0**-number}

    rows = rounds(6, lyon=client(0.4), **{f"other-{place}": client(1.0) for place in range(9)})
    for row in rows:
        row["weight"] = 0.19 if row["client"] == "lyon" else 0.09
    assert "(variance 0.4 × the usual)" in text_of(rows, IvarVb().reasons, "lyon")


def test_extreme_ratios_are_not_quoted_as_if_they_were_known() -> None:
    usual = others(9, weight=1 / 9, variance=1.0)
    text = text_of(rounds(3, wild={"weight": 0.0, "variance": 1e9}, **usual), IvarVb().reasons, "wild")
    assert "in all 3 rounds (variance over 95 × the usual)" in text


def test_the_number_of_examples_is_the_reason_of_fedavg() -> None:
    usual = others(8, weight=0.1, num_examples=400)
    rows = rounds(
        3,
        big={"weight": 0.17, "num_examples": 700},
        tiny={"weight": 0.03, "num_examples": 120},
        **usual,
    )
    reasons = Samples().reasons
    assert "it reported many examples (examples 700, usual 400)" in text_of(rows, reasons, "big")
    assert "it reported few examples in all 3 rounds (examples 120, usual 400)" in text_of(
        rows, reasons, "tiny"
    )
    assert "its figures were usual (examples 400, usual 400)" in text_of(rows, reasons, "other-0")


def test_a_rule_that_counts_all_the_same_says_so() -> None:
    text = text_of(rounds(2, oslo=0.5, turin=0.5), Uniform().reasons, "oslo")
    assert text == "oslo counted for 50 % (equal share 50 %): under this rule, all clients count the same."


def test_most_clients_of_a_rule_that_prefers_one_are_usual() -> None:
    usual = others(9, weight=0.4 / 9, variance=1.0)
    rows = rounds(3, chosen={"weight": 0.6, "variance": 0.1}, **usual)
    text = text_of(rows, IvarVb().reasons, "other-3")
    assert "as much as most clients; its figures were usual (variance 1 × the usual)" in text


def test_a_share_that_no_figure_explains_is_not_explained_away() -> None:
    rows = rounds(3, odd={"weight": 0.5, "variance": 1.0}, **others(5, weight=0.1, variance=1.0))
    assert "its figures were usual" in text_of(rows, IvarVb().reasons, "odd")
    odd = others(1, weight=0.02, variance=0.4)["other-0"]
    rows = rounds(3, odd=odd, **others(5, weight=0.196, variance=1.0))
    assert "no single figure explains it (variance 0.4 × the usual)" in text_of(rows, IvarVb().reasons, "odd")


def test_a_client_stands_out_if_a_reason_or_a_rejection_does() -> None:
    usual = others(9, weight=0.98 / 9, num_examples=400)
    few = {"weight": 0.02, "num_examples": 100}
    found = verdicts_of(rounds(3, few=few, **usual), Samples().reasons)
    assert [name for name, verdict in found.items() if verdict.stands_out] == ["few"]
    odd = others(1, weight=0.02, variance=0.4)["other-0"]
    rows = rounds(3, odd=odd, **others(5, weight=0.196, variance=1.0))
    assert verdicts_of(rows, IvarVb().reasons)["odd"].stands_out, "no single figure explains it"
    many = verdicts_of(rounds(3, best=0.6, **others(9, weight=0.4 / 9, variance=1.0)), IvarVb().reasons)
    assert not many["other-1"].stands_out, "as much as most clients"
    rejected = verdicts_of(rounds(3, a=lambda n: 0.5 if n > 1 else "sent nothing", b=0.5), ())
    assert [verdict.stands_out for verdict in rejected.values()] == [True, False]
    idle = {"status": "idle", "weight": None}
    assert verdicts_of(rounds(2, a=1.0, b=idle), ())["b"].stands_out, "it took part in no round"


def test_clients_that_take_part_in_some_rounds_are_compared_in_these() -> None:
    def now_and_then(number: int) -> Any:
        return {"weight": 0.5} if number % 4 == 0 else {"status": "idle", "weight": None}

    found = verdicts_of(rounds(8, late=now_and_then, always=0.5), ())
    assert found["late"].text == "late counted for 50 % in its 2 rounds (equal share 50 %)."
    assert (found["late"].rounds, found["late"].used, found["late"].rejected) == (2, 2, 0)


def test_a_client_that_is_only_tested_took_part_in_no_round() -> None:
    found = verdicts_of(rounds(2, a=1.0, b={"status": "idle", "weight": None, "accuracy": 0.5}), ())["b"]
    assert found.text == "b took part in no round."
    assert (found.share, found.equal, found.accuracy) == (None, None, 0.5)


def test_shares_and_equal_shares_add_up_over_rejected_rounds() -> None:
    rows = rounds(2, a=lambda n: 1.0 if n == 2 else "sent nothing", b=lambda n: 0.0 if n == 2 else 1.0)
    found = verdicts_of(rows, ())
    assert found["a"].share == 0.5
    assert found["a"].equal == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert found["b"].equal == pytest.approx((1 + 1 / 2) / 2)


def test_negative_weights_are_said_as_such() -> None:
    rows = rounds(2, a={"weight": -0.03, "variance": 1.0}, b={"weight": 1.03, "variance": 1.0})
    assert text_of(rows, IvarVb().reasons, "a").startswith("a counted for −3 % (equal share 50 %): ")


def test_there_is_no_verdict_without_rounds() -> None:
    assert verdicts_of([], Majority().reasons) == {}


def test_records_without_numbers_or_with_texts_in_their_place_are_read() -> None:
    rows = rounds(2, a={"weight": 0.5, "variance": "x"}, b={"weight": 0.5, "variance": None})
    assert text_of(rows, IvarVb().reasons, "a") == "a counted for 50 % (equal share 50 %)."


def test_a_verdict_is_a_sentence_when_printed() -> None:
    verdict = verdicts_of(rounds(1, a=1.0), ())["a"]
    assert isinstance(verdict, Verdict)
    assert str(verdict) == "a counted for 100 % (equal share 100 %)."


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (1e-9, "under 0.01 %"), (0.0004, "0.04 %"), (0.0203, "2 %"), (0.0996, "10 %"), (1, "100 %")],
)
def test_percentages_have_two_digits(share: float, text: str) -> None:
    assert percent(share) == text


def test_figures_are_short() -> None:
    values = [-0.2149, 12345.6, 0.0, 1.04, float("nan")]
    assert [figure(value) for value in values] == ["−0.21", "12,346", "0", "1", "unknown"]


def test_words_survive_the_record_and_nothing_else_is_read_from_it() -> None:
    reasons = (*Majority().reasons, EXAMPLES)
    assert from_json(to_json(reasons)) == reasons
    for broken in (None, "", "{", "[1]", '[{"factor": 1, "label": "x"}]', '[{"nothing": "x"}]', '{"a": 1}'):
        assert from_json(broken) == ()


def test_the_order_of_clients_in_a_round_does_not_matter() -> None:
    rows = rounds(3, a={"weight": 0.9, "variance": 0.5}, b={"weight": 0.1, "variance": 2.0})
    mixed = [rows[place] for place in np.array([1, 0, 3, 2, 5, 4])]
    assert verdicts_of(mixed, IvarVb().reasons) == verdicts_of(rows, IvarVb().reasons)


def test_rounds_of_a_client_that_was_also_rejected_are_told_apart() -> None:
    def oslo(number: int) -> str | dict[str, float]:
        return "sent nothing" if number < 4 else {"weight": 0.0, "variance": 9.0}

    usual = others(4, weight=0.25, variance=1.0)
    text = text_of(rounds(6, oslo=oslo, **usual), IvarVb().reasons, "oslo")
    assert (
        "rejected in rounds 1–3: it sent nothing; its updates were noisier than usual in all 3 other rounds"
        in text
    )
