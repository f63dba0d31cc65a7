"""Remote sites: what is kept of them, and what a resumed run goes on from."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from scripted_channel import CLIENTS, ScriptedChannel, ask, sites_of

from steelyard.errors import InputError
from steelyard.flower import asking
from steelyard.flower.channel import Problem
from steelyard.flower.remote import KEPT_COMMITS, SLACK_BYTES


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(asking, "LOOK_SECONDS", 0.0)


def committed(folder: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in folder.glob("answered-*.json")}


def test_a_site_is_told_after_which_round_the_server_had_its_update(tmp_path: Path) -> None:
    channel = ScriptedChannel(CLIENTS, oslo=["answer", Problem("no"), "answer"])
    sites = sites_of(channel, tmp_path)
    for round in (1, 2, 3, 4):
        ask(sites, round)
        sites.commit(round)
    assert [header["after"] for header in channel.headers("oslo")] == [0, 1, 1, 3]
    assert [header["after"] for header in channel.headers("bergen")] == [0, 1, 2, 3]
    assert [header["keep"] for header in channel.headers("oslo")] == [0, 0, 0, 1]


def test_a_commit_is_a_file_and_the_last_ones_are_kept(tmp_path: Path) -> None:
    channel = ScriptedChannel(CLIENTS, oslo=["answer", Problem("no")])
    sites = sites_of(channel, tmp_path)
    for round in range(1, 6):
        ask(sites, round)
        sites.commit(round)
        sites.commit(round)  # again, at the end of a run
    assert KEPT_COMMITS == 3
    assert committed(tmp_path) == {
        f"answered-{round}.json": {"bergen": round, "oslo": round} for round in (3, 4, 5)
    }
    assert not [*tmp_path.glob("*.partial")]


def test_a_resumed_run_goes_on_from_what_was_committed(tmp_path: Path) -> None:
    first = sites_of(ScriptedChannel(CLIENTS, oslo=["answer", Problem("no")]), tmp_path)
    for round in (1, 2):
        ask(first, round)
        first.commit(round)
    ask(first, 3)  # not finished
    channel = ScriptedChannel(CLIENTS)
    second = sites_of(channel, tmp_path)
    second.rewind(2)
    ask(second, 3)
    assert channel.headers("oslo")[0]["after"] == 1
    assert channel.headers("bergen")[0]["after"] == 2
    assert {header["keep"] for _, parcel in channel.sent for header in [parcel.header]} == {2}
    second.rewind(0)
    ask(second, 1)
    assert channel.headers("oslo")[-1]["after"] == 0


def test_the_updates_of_a_round_that_was_not_finished_do_not_count(tmp_path: Path) -> None:
    channel = ScriptedChannel(CLIENTS)
    sites = sites_of(channel, tmp_path)
    for round in (1, 2):
        ask(sites, round)
    sites.commit(1)
    assert committed(tmp_path) == {"answered-1.json": {"bergen": 1, "oslo": 1}}


@pytest.mark.parametrize("content", [None, "", "{"])
def test_a_commit_that_is_missing_or_damaged_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "answered-4.json").write_text(content)
    with pytest.raises(InputError, match=r"cannot read .*answered-4\.json.*restore it from a copy"):
        sites_of(ScriptedChannel(CLIENTS), tmp_path).rewind(4)


def test_profiles_are_kept_and_a_resumed_run_asks_for_no_others(tmp_path: Path) -> None:
    channel = ScriptedChannel(CLIENTS)
    found = sites_of(channel, tmp_path).profiles(CLIENTS)
    assert channel.asked == ["bergen", "oslo"]
    other = ScriptedChannel([])
    again = sites_of(other, tmp_path).profiles(CLIENTS)
    assert other.asked == []
    for client in CLIENTS:
        one, same = found[client], again[client]
        assert (one.client, one.num_examples, one.shapes, one.model_bytes) == (client, 7, ((2,),), 8)
        assert (same.client, same.num_examples, same.shapes, same.model_bytes) == (client, 7, ((2,),), 8)
        assert same.class_counts is not None
        assert same.class_counts.tolist() == [3, 4]
        assert same.class_counts.dtype == torch.int64


def test_a_site_without_a_profile_is_left_out_and_asked_again_by_the_next_run(tmp_path: Path) -> None:
    said: list[str] = []
    channel = ScriptedChannel(CLIENTS, oslo=[Problem("no\x1b[31m data\n" + "x" * 1000)])
    assert {*sites_of(channel, tmp_path, log=said.append).profiles(CLIENTS)} == {"bergen"}
    assert said[0].startswith("oslo gave no profile: no data x")
    assert said[0].isprintable()
    assert len(said[0]) < 400
    channel = ScriptedChannel(CLIENTS)
    assert {*sites_of(channel, tmp_path).profiles(CLIENTS)} == {*CLIENTS}
    assert channel.asked == ["oslo"]


def test_a_profile_is_limited_like_an_answer(tmp_path: Path) -> None:
    limits: list[float] = []
    channel = ScriptedChannel(CLIENTS)
    receive = channel.receive
    channel.receive = lambda ids, most: limits.append(most) or receive(ids, most)  # type: ignore
    sites_of(channel, tmp_path).profiles(CLIENTS)
    assert limits
    assert max(limits) <= SLACK_BYTES
