"""Remote sites: who is asked again and who is given up, and what is not used."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from scripted_channel import CLIENTS, RUN, ScriptedChannel, ask, honest, reason, sites_of, update

from steelyard.flower import asking
from steelyard.flower.channel import LostError, Problem
from steelyard.flower.remote import SLACK_BYTES, Patience
from steelyard.flower.wire import Parcel


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(asking, "LOOK_SECONDS", 0.0)


def test_every_site_is_asked_once_and_every_question_has_a_secret_of_its_own(tmp_path: Path) -> None:
    channel = ScriptedChannel(CLIENTS)
    sites = sites_of(channel, tmp_path)
    for round in (1, 2):
        assert {client: update(each) for client, each in ask(sites, round).items()} == {
            "bergen": round,
            "oslo": round,
        }
    assert channel.asked == ["bergen", "oslo"] * 2
    nonces = [messages.nonce for client in CLIENTS for messages in channel.envelopes(client)]
    assert len({*nonces}) == 4
    assert min(map(len, nonces)) >= 32
    assert {(each.spec, each.run) for each in channel.envelopes("oslo")} == {("a spec", RUN)}


def test_after_a_passing_problem_the_same_question_is_asked_again(tmp_path: Path) -> None:
    channel = ScriptedChannel(CLIENTS, oslo=[Problem("crashed", True), Problem("gone", True)])
    assert update(ask(sites_of(channel, tmp_path))["oslo"]) == 1
    assert channel.asked.count("oslo") == 3
    assert channel.asked.count("bergen") == 1
    assert len({each.nonce for each in channel.envelopes("oslo")}) == 1


def test_after_a_problem_that_does_not_pass_the_site_has_failed(tmp_path: Path) -> None:
    channel = ScriptedChannel(CLIENTS, oslo=[Problem("sent rubbish")])
    found = ask(sites_of(channel, tmp_path))
    assert reason(found["oslo"]) == "sent rubbish"
    assert channel.asked.count("oslo") == 1
    assert update(found["bergen"]) == 1


def test_after_a_lost_connection_all_that_were_open_are_asked_again(tmp_path: Path) -> None:
    channel = ScriptedChannel(CLIENTS, bergen=["lost"], oslo=["nothing"])
    said: list[str] = []
    found = ask(sites_of(channel, tmp_path, log=said.append))
    assert {client: update(each) for client, each in found.items()} == {"bergen": 1, "oslo": 1}
    assert channel.reopened == 1
    assert sorted(channel.asked) == ["bergen", "bergen", "oslo", "oslo"]
    assert said == ["the connection was lost; connecting again"]


@pytest.mark.parametrize("call", ["connected", "send", "receive"])
def test_a_connection_that_is_always_lost_does_not_outlast_the_deadline(tmp_path: Path, call: str) -> None:
    channel = ScriptedChannel(CLIENTS)

    def lose(*arguments: Any) -> Any:
        raise LostError("the connection was lost")

    setattr(channel, call, lose)
    started = time.monotonic()
    found = ask(sites_of(channel, tmp_path), seconds=0.2)
    assert time.monotonic() - started < 5
    assert {reason(each) for each in found.values()} == {"no answer within 0.2 s"}
    assert channel.reopened > 1


def test_a_site_that_started_anew_is_asked_again(tmp_path: Path) -> None:
    """It has forgotten what it was asked, and would never answer."""
    channel = ScriptedChannel(CLIENTS, oslo=["nothing"])
    channel.on_send = lambda client: channel.online.update(oslo="second")
    assert update(ask(sites_of(channel, tmp_path))["oslo"]) == 1
    assert channel.asked.count("oslo") == 2


def test_a_site_that_is_not_connected_is_asked_when_it_is(tmp_path: Path) -> None:
    channel = ScriptedChannel(["bergen"])
    channel.on_send = lambda client: channel.online.update(oslo="now")
    assert update(ask(sites_of(channel, tmp_path))["oslo"]) == 1
    assert channel.asked == ["bergen", "oslo"]


def test_a_connection_that_only_pauses_costs_no_second_question(tmp_path: Path) -> None:
    channel = ScriptedChannel(CLIENTS)
    looks = 0

    def connected() -> dict[str, str]:
        nonlocal looks
        looks += 1
        return {} if looks == 2 else {"bergen": "first", "oslo": "first"}

    def slow(*arguments: Any) -> Any:
        return {} if looks < 4 else ScriptedChannel.receive(channel, *arguments)

    channel.connected, channel.receive = connected, slow  # type: ignore[method-assign]
    assert update(ask(sites_of(channel, tmp_path))["oslo"]) == 1
    assert channel.asked == ["bergen", "oslo"]


def test_a_silent_site_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    channel = ScriptedChannel(CLIENTS, oslo=["nothing"])
    started = time.monotonic()
    found = ask(sites_of(channel, tmp_path), seconds=0.1)
    assert 0.1 <= time.monotonic() - started < 3
    assert reason(found["oslo"]) == "no answer within 0.1 s"
    assert update(found["bergen"]) == 1
    assert channel.seconds > 0.1, "the question waits at least as long as the server"


def test_the_reason_says_what_happened_to_the_question(tmp_path: Path) -> None:
    channel = ScriptedChannel(CLIENTS, oslo=[Problem("its app crashed", True), *["nothing"] * 100])
    found = ask(sites_of(channel, tmp_path), seconds=0.1)
    assert reason(found["oslo"]) == "no answer within 0.1 s (its app crashed)"


def test_a_site_that_is_offline_is_given_up_sooner(tmp_path: Path) -> None:
    channel = ScriptedChannel(["bergen"])
    started = time.monotonic()
    found = ask(sites_of(channel, tmp_path, patience=Patience(round=60.0, offline=0.1)))
    assert time.monotonic() - started < 10
    assert reason(found["oslo"]).startswith("not connected for")
    assert channel.asked == ["bergen"]


OTHERS: dict[str, Callable[[Parcel], Parcel]] = {
    "nonce": lambda parcel: honest(Parcel({**parcel.header, "nonce": "0" * 32})),
    "client": lambda parcel: honest(Parcel({**parcel.header, "client": "bergen"})),
    "spec": lambda parcel: honest(Parcel({**parcel.header, "spec": "another"})),
    "run": lambda parcel: honest(Parcel({**parcel.header, "run": "another"})),
    "round": lambda parcel: honest(Parcel({**parcel.header, "round": 2})),
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_answer_to_another_question_is_never_used(tmp_path: Path, name: str) -> None:
    found = ask(sites_of(ScriptedChannel(CLIENTS, oslo=[OTHERS[name]]), tmp_path))
    assert f"another {name}" in reason(found["oslo"])
    assert update(found["bergen"]) == 1


def test_a_late_answer_of_an_earlier_round_is_never_used(tmp_path: Path) -> None:
    """It comes when the server waits for the next round, as the answer to that."""
    late: list[Parcel] = []

    def keep(parcel: Parcel) -> str:
        late.append(honest(parcel))
        return "nothing"

    channel = ScriptedChannel(CLIENTS, oslo=[keep, lambda parcel: late[0]])
    sites = sites_of(channel, tmp_path)
    assert "no answer" in reason(ask(sites, 1, seconds=0.05)["oslo"])
    assert "another" in reason(ask(sites, 2)["oslo"])
    assert update(ask(sites, 3)["oslo"]) == 3


def test_an_answer_that_comes_under_an_old_id_is_not_looked_at(tmp_path: Path) -> None:
    channel = ScriptedChannel(CLIENTS, oslo=["nothing", "nothing"])
    sites = sites_of(channel, tmp_path)
    ask(sites, 1, seconds=0.05)
    channel._do("answer", "2", channel.sent[1][1])
    assert "no answer" in reason(ask(sites, 2, seconds=0.05)["oslo"])


def test_too_large_an_answer_is_refused(tmp_path: Path) -> None:
    def large(parcel: Parcel) -> Parcel:
        return Parcel(honest(parcel).header, {"mean": torch.zeros(SLACK_BYTES // 4 + 3).numpy()})

    found = ask(sites_of(ScriptedChannel(CLIENTS, oslo=[large]), tmp_path))
    assert reason(found["oslo"]) == f"the message is larger than {SLACK_BYTES + 8} bytes"


def test_whoever_watches_sees_who_is_connected_and_who_has_not_answered(tmp_path: Path) -> None:
    seen: list[tuple[set[str], set[str]]] = []
    channel = ScriptedChannel(["oslo"], oslo=["nothing"])
    sites = sites_of(
        channel, tmp_path, patience=Patience(offline=0.05), watch=lambda *each: seen.append(each)
    )
    ask(sites, seconds=0.2)
    assert seen[0] == ({"oslo"}, {"bergen", "oslo"})
    assert seen[-1] == ({"oslo"}, {"oslo"})
