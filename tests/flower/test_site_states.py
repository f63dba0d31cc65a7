"""The private states of a site: by run and round, as long as the server may ask for them."""

from pathlib import Path

import pytest
import torch

from steelyard.errors import InputError
from steelyard.flower.site_states import SiteStates

RUN, OTHER = "0f" * 16, "a1" * 16


def rounds(folder: Path, run: str = RUN) -> list[int]:
    return sorted(
        int(path.stem.removeprefix("after-")) for path in (folder / run).glob("after-*.safetensors")
    )


def train(states: SiteStates, round: int, after: int, keep: int = 0, run: str = RUN) -> float:
    """One round of a site that adds 1 to its state, if it has one; returns what it began with."""
    states.open(run, after, keep, needed=True, round=round)
    old = float(states.get("oslo").get("layer", torch.zeros(())))
    states.put(round, {"oslo": {"layer": torch.tensor(float(round))}})
    return old


def test_a_site_begins_with_nothing_and_goes_on_from_what_it_saved(tmp_path: Path) -> None:
    states = SiteStates(tmp_path)
    assert train(states, 1, 0) == 0
    assert train(states, 2, 1) == 1
    assert train(SiteStates(tmp_path), 3, 2) == 2, "another process finds it"


def test_asked_again_a_site_begins_from_the_same(tmp_path: Path) -> None:
    states = SiteStates(tmp_path)
    train(states, 1, 0)
    assert [train(states, 2, 1) for _ in range(3)] == [1, 1, 1]


def test_a_site_goes_back_when_the_server_does(tmp_path: Path) -> None:
    states = SiteStates(tmp_path)
    for round in range(1, 6):
        train(states, round, round - 1)
    assert train(states, 3, 2) == 2
    assert train(states, 5, 3) == 3
    assert rounds(tmp_path) == [1, 2, 3, 5], "what it had of round 4 is of a round that never was"
    assert train(states, 1, 0) == 0
    assert train(states, 9, 0, keep=8) == 0
    assert rounds(tmp_path) == [9]


def test_states_that_neither_side_can_need_are_removed(tmp_path: Path) -> None:
    states = SiteStates(tmp_path)
    for round in range(1, 8):
        train(states, round, round - 1, keep=max(0, round - 3))
    assert rounds(tmp_path) == [4, 5, 6, 7]
    states.open(RUN, 7, 6, needed=True)
    assert rounds(tmp_path) == [6, 7]


def test_the_state_of_a_round_between_is_kept_for_the_rounds_without_one(tmp_path: Path) -> None:
    """The server may resume after round 5; what the site then had is of round 2."""
    states = SiteStates(tmp_path)
    train(states, 1, 0)
    train(states, 2, 1)
    train(states, 9, 2, keep=5)
    assert rounds(tmp_path) == [2, 9]


def test_a_state_whose_answer_was_lost_does_not_replace_the_one_that_the_server_knows(tmp_path: Path) -> None:
    """The site trained in round 9, but the server had given it up: its last answer is of round 7."""
    states = SiteStates(tmp_path)
    train(states, 7, 0)
    train(states, 9, 7)
    for _ in range(2):  # the answer of round 11 gets lost as well, and is asked for again
        assert train(states, 11, 7, keep=10) == 7
    assert train(states, 12, 11, keep=10) == 11
    assert train(states, 11, 7, keep=10) == 7, "the server resumed after round 10"


def test_a_question_that_comes_late_removes_no_state_of_a_later_round(tmp_path: Path) -> None:
    """It was asked twice, and the site has answered the next rounds since."""
    states = SiteStates(tmp_path)
    for round in (1, 2, 3):
        train(states, round, round - 1)
    assert train(states, 2, 1) == 1
    assert train(states, 4, 3, keep=1) == 3


def test_missing_private_layers_are_refused_and_a_missing_history_begins_anew(tmp_path: Path) -> None:
    states = SiteStates(tmp_path)
    with pytest.raises(InputError, match=r"private layers after round 4 are not in .*restore that folder"):
        states.open(RUN, 4, 0, needed=True)
    states.open(RUN, 4, 0, needed=False)
    assert not states.get("oslo")


def test_runs_do_not_see_each_other(tmp_path: Path) -> None:
    states = SiteStates(tmp_path)
    train(states, 1, 0)
    assert train(states, 1, 0, run=OTHER) == 0
    assert train(states, 2, 1) == 1
    with pytest.raises(InputError, match="after round 2"):
        states.open(OTHER, 2, 0, needed=True)
    assert rounds(tmp_path) == [1, 2]
    assert rounds(tmp_path, OTHER) == [1]


def test_a_damaged_state_is_refused_and_nothing_old_is_used(tmp_path: Path) -> None:
    states = SiteStates(tmp_path)
    train(states, 1, 0)
    path = tmp_path / RUN / "after-1.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"after-1\.safetensors: it is damaged"):
        states.open(RUN, 1, 0, needed=False)
    assert not states.get("oslo")
    path.write_bytes(b"")
    with pytest.raises(InputError, match="cannot read"):
        states.open(RUN, 1, 0, needed=True)


@pytest.mark.parametrize(
    "run",
    [
        "",
        "..",
        "../x",
        "/etc",
        "0f" * 16 + "/..",
        "0F" * 16,
        "0f" * 7,
        "0f" * 33,
        "0f" * 16 + "\n",
        "0" * 31 + "\0",
    ],
)
def test_a_run_id_of_another_form_is_refused_before_a_file_is_touched(tmp_path: Path, run: str) -> None:
    home = tmp_path / "home"
    with pytest.raises(InputError, match="run id of the wrong form"):
        SiteStates(home).open(run, 1, 0, needed=False)
    assert not home.exists()


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    states = SiteStates(tmp_path)
    train(states, 1, 0)
    other = tmp_path / RUN / "after-x.safetensors"
    other.write_text("mine")
    train(states, 2, 1, keep=2)
    assert other.read_text() == "mine"
