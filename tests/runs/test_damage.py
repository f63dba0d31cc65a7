"""Damaged, cut and forged files: an older state is used, or the run is refused in one sentence."""

import random
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from crashes import HEADS, SPEC, assert_same, crash, flip

import steelyard as sy
from steelyard.client.private_state import MemoryStates, StateFiles
from steelyard.errors import InputError
from steelyard.runs.folder import DATABASE, MODEL, state_path, states_in
from steelyard.runs.state_file import load_state, save_state
from steelyard.server.aggregation import ServerState
from steelyard.server.state import FederationState
from steelyard.tensor_files import load_tensors, save_tensors
from steelyard.types import Message, Round


def wal(folder: Path) -> Path:
    return folder / f"{DATABASE}-wal"


@pytest.mark.parametrize("place", [9, -5])
def test_a_flipped_bit_in_the_last_state_leads_back_to_the_one_before(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed, wanted = crash(SPEC, tmp_path, monkeypatch)
    assert list(states_in(crashed)) == [3, 4]
    flip(state_path(crashed, 4), place)
    numbers: list[int] = []
    with pytest.warns(UserWarning, match=r"state-4\.safetensors"):
        sy.resume(crashed, lambda round: numbers.append(round.number))
    assert numbers == [3, 4, 5, 6]
    assert_same(crashed, wanted)


def test_two_damaged_states_are_refused_and_nothing_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed, _ = crash(SPEC, tmp_path, monkeypatch)
    for path in states_in(crashed).values():
        flip(path, 1234)
    before = {path: path.read_bytes() for path in crashed.iterdir() if "sqlite" not in path.name}
    with pytest.raises(InputError, match=r"only run again from round 1 .*steelyard run .*spec\.toml"):
        sy.resume(crashed)
    after = {path: path.read_bytes() for path in crashed.iterdir() if "sqlite" not in path.name}
    assert {path.name for path in after} == {path.name for path in before}
    assert all(after[path] == before[path] for path in before if path.name != "lock")


def test_a_state_newer_than_the_record_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a power cut that took the end of the log."""
    crashed, wanted = crash(SPEC, tmp_path, monkeypatch)
    with closing(sqlite3.connect(crashed / DATABASE)) as database, database:
        for table in ("rounds", "clients", "timings"):
            database.execute(f"DELETE FROM {table} WHERE round > 3")
    with pytest.warns(UserWarning, match=r"state-4\.safetensors is newer than the record"):
        sy.resume(crashed)
    assert_same(crashed, wanted)


def test_a_record_that_lost_its_log_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashed, _ = crash(SPEC, tmp_path, monkeypatch)
    assert wal(crashed).stat().st_size > 0
    wal(crashed).unlink()
    with pytest.raises(InputError, match="is newer than the record, which lacks rounds up to 4"):
        sy.resume(crashed)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_log_that_was_cut_never_loses_rounds_silently(
    share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed, wanted = crash(SPEC, tmp_path, monkeypatch)
    content = wal(crashed).read_bytes()
    wal(crashed).write_bytes(content[: int(share * len(content))])
    with warnings.catch_warnings(action="ignore"):
        try:
            sy.resume(crashed)
        except InputError as error:
            assert share < 0.9
            assert "is newer than the record" in str(error)  # noqa: PT017
        else:
            assert_same(crashed, wanted)


@pytest.mark.parametrize("spill", [False, True])
def test_a_flipped_bit_in_private_states_leads_back_to_the_state_before(
    spill: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed, wanted = crash({**HEADS, "spill": spill}, tmp_path, monkeypatch)
    name = "4-*.safetensors" if spill else "after-4.safetensors"
    flip(next(iter((crashed / "private").glob(name))), -9)
    with pytest.warns(UserWarning, match="damaged"):
        sy.resume(crashed)
    assert_same(crashed, wanted)
    assert not list((crashed / "private").glob("*.partial"))


def test_a_flipped_bit_in_the_model_is_found(tmp_path: Path) -> None:
    result = sy.run(SPEC, out=tmp_path)
    assert result.path is not None
    flip(result.path / MODEL, -1)
    with pytest.raises(InputError, match=r"model\.safetensors: it is damaged"):
        sy.load_model(result.path)


# Forged states: whole files with wrong contents

GOOD: dict[str, Any] = {"version": 1, "round": 3, "best": 0.5, "stale": 0, "pending": None}
PENDING = {"number": 3, "metrics": {"loss": 1.0}, "clients": [{"client": "a"}], "seconds": {}}
FORGED: dict[str, dict[str, Any]] = {
    "no values": {},
    "an older version": {**GOOD, "version": 0},
    "a newer version": {**GOOD, "version": 3},
    "a best round without its metric": {**GOOD, "version": 2, "best_round": 0},
    "a best round without its model": {**GOOD, "version": 2, "monitor": "nll", "best_round": 2},
    "a best round that is still to come": {**GOOD, "version": 2, "monitor": "nll", "best_round": 4},
    "a metric without a name": {**GOOD, "version": 2, "monitor": "", "best_round": 0},
    "round is text": {**GOOD, "round": "three"},
    "round is negative": {**GOOD, "round": -1},
    "round is not whole": {**GOOD, "round": 2.5},
    "best is a list": {**GOOD, "best": [1]},
    "stale is null": {**GOOD, "stale": None},
    "pending is a number": {**GOOD, "pending": 7},
    "pending is empty": {**GOOD, "pending": {}},
    "pending of another round": {**GOOD, "pending": {**PENDING, "number": 9}},
    "pending metrics is a list": {**GOOD, "pending": {**PENDING, "metrics": [1]}},
    "pending clients are numbers": {**GOOD, "pending": {**PENDING, "clients": [1, 2]}},
    "pending clients without ids": {**GOOD, "pending": {**PENDING, "clients": [{"weight": 1}]}},
    "pending row with a list": {**GOOD, "pending": {**PENDING, "clients": [{"client": "a", "x": [1]}]}},
}


@pytest.mark.parametrize("values", FORGED.values(), ids=FORGED)
def test_forged_values_are_bad_input(values: dict[str, Any], tmp_path: Path) -> None:
    save_tensors(tmp_path / "state", {("mean",): torch.zeros(3)}, {**GOOD, "pending": PENDING})
    assert load_state(tmp_path / "state").round == 3
    save_tensors(tmp_path / "state", {("mean",): torch.zeros(3)}, values)
    with pytest.raises(InputError, match=r"cannot resume from .*state"):
        load_state(tmp_path / "state")


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {("mean",): torch.zeros(3), ("variance",): torch.zeros(4)},
        {("mean",): torch.zeros(3, 2)},
        {("mean",): torch.zeros(3, dtype=torch.int64)},
        {("mean",): torch.zeros(3), ("velocity",): torch.zeros(())},
        {("mean",): torch.zeros(3), ("best-mean",): torch.zeros(4)},
        {("mean",): torch.zeros(3), ("best-mean",): torch.zeros(3)},
    ],
)
def test_forged_tensors_are_bad_input(tensors: dict[tuple[str, ...], torch.Tensor], tmp_path: Path) -> None:
    save_tensors(tmp_path / "state", tensors, GOOD)
    with pytest.raises(InputError, match=r"cannot resume from .*state"):
        load_state(tmp_path / "state")


@pytest.mark.parametrize("round", [5, 6, 10**9])
def test_a_state_that_claims_rounds_that_were_not_run_is_not_used(
    round: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed, wanted = crash(SPEC, tmp_path, monkeypatch)
    state = load_state(state_path(crashed, 4))
    save_state(FederationState(round, state.server), state_path(crashed, round))
    with pytest.warns(UserWarning, match="newer than the record|has 6 rounds"):
        sy.resume(crashed)
    assert_same(crashed, wanted)


def test_a_state_of_another_model_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashed, wanted = crash(SPEC, tmp_path, monkeypatch)
    save_state(FederationState(4, ServerState(Message(torch.zeros(7)))), state_path(crashed, 4))
    with pytest.warns(UserWarning, match="belongs to another model"):
        sy.resume(crashed)
    assert_same(crashed, wanted)


@pytest.mark.parametrize(("version", "age"), [(0, "an older"), (2, "a newer")])
def test_a_record_of_another_version_is_refused(
    version: int, age: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed, _ = crash(SPEC, tmp_path, monkeypatch)
    with closing(sqlite3.connect(crashed / DATABASE)) as database:
        database.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(InputError, match=f"recorded by {age} version of steelyard"):
        sy.resume(crashed)


# Fuzzed files: every damage is seen


def damages(content: bytes, count: int) -> list[bytes]:
    draw = random.Random(0)
    found = [content[: draw.randrange(len(content))] for _ in range(count // 4)]
    for _ in range(count - len(found)):
        changed = bytearray(content)
        for _ in range(draw.choice((1, 1, 2, 8))):
            changed[draw.choice((draw.randrange(len(content)), draw.randrange(60)))] ^= 1 << draw.randrange(8)
        found.append(bytes(changed))
    return [damaged for damaged in found if damaged != content]


def test_every_damage_of_a_state_is_bad_input(tmp_path: Path) -> None:
    server = ServerState(Message(torch.randn(40), torch.rand(40)), {"momentum": torch.randn(4)})
    pending = Round(7, {"loss": 0.5}, ({"client": "a", "weight": 0.1},), {"exchange": 0.5})
    path = tmp_path / "state"
    save_state(FederationState(7, server, pending), path)
    for damaged in damages(path.read_bytes(), 800):
        path.write_bytes(damaged)
        for load in (load_state, load_tensors):
            with pytest.raises(InputError, match=r"cannot read .*state"):
                load(path)


@pytest.mark.parametrize("store", [MemoryStates, StateFiles])
def test_every_damage_of_private_states_is_bad_input(store: Any, tmp_path: Path) -> None:
    states = store(tmp_path / "private")
    states.put(1, {client: {"bias": torch.randn(5)} for client in ("a", "../b")})
    states.commit(1)
    for path in (tmp_path / "private").iterdir():
        whole = path.read_bytes()
        for damaged in damages(whole, 200):
            path.write_bytes(damaged)
            with pytest.raises(InputError, match=r"cannot read .*private"):
                store(tmp_path / "private").read(1)
        path.write_bytes(whole)
    store(tmp_path / "private").read(1)
