"""Speeches become windows of characters: each with the character that follows, none across the split."""

import os
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

import steelyard as sy
from steelyard.data import shakespeare as module
from steelyard.data.dataset import Dataset
from steelyard.data.shakespeare import SYMBOLS, encode, longest, shakespeare, speeches, windows
from steelyard.data.store import where
from steelyard.errors import InputError

PLAY = """\
First Citizen:
Before we proceed any further:
hear me speak.

All:
Speak, speak.


TITUS:

A sennet.
They go.

First Citizen:
You are all resolved.
"""


def decode(numbers: Tensor) -> str:
    return "".join(SYMBOLS[number] for number in numbers.tolist())


def test_a_text_is_parsed_into_what_each_role_says() -> None:
    assert speeches(PLAY) == {
        "First Citizen": "Before we proceed any further:\nhear me speak.\nYou are all resolved.\n",
        "All": "Speak, speak.\n",
    }


def test_there_is_a_number_and_a_readable_name_for_each_of_65_characters() -> None:
    assert len(set(SYMBOLS)) == len(set(module.CLASS_NAMES)) == 65
    assert list(SYMBOLS) == sorted(SYMBOLS)
    assert encode(SYMBOLS).tolist() == list(range(65))
    assert all(name.strip() == name for name in module.CLASS_NAMES)
    assert (module.CLASS_NAMES[0], module.CLASS_NAMES[1], module.CLASS_NAMES[64]) == ("newline", "space", "z")


# Capitals in one role and small letters in the other, so that a window shows whose it is and from where.
ABC = [SYMBOLS[13:39] * 2, SYMBOLS[39:65]]  # the ends are for tests: 5 and 3 characters


@pytest.mark.parametrize("stride", [1, 3])
def test_every_window_is_followed_by_its_target_and_stays_with_its_role(stride: int) -> None:
    length = 2
    data = windows(ABC, length, stride)
    for part, texts in ((data.train, [ABC[0][:47], ABC[1][:23]]), (data.test, [ABC[0][47:], ABC[1][23:]])):
        inputs, targets = part.batch(torch.arange(len(part)))
        found = [decode(row) + decode(target[None]) for row, target in zip(inputs, targets, strict=True)]
        assert found == [
            text[start : start + length + 1]
            for text in texts
            for start in range(0, len(text) - length, stride)
        ]
    assert data.groups is not None
    starts = decode(data.train.batch(torch.arange(len(data.train)))[0][:, 0])
    assert data.groups.tolist() == [int(start.islower()) for start in starts]
    assert data.num_classes == 65


def test_no_character_of_the_test_is_seen_in_training() -> None:
    text = "".join(SYMBOLS[13 + number % 52] for number in range(500))
    data = windows([text, text.lower()], 20, 1)

    def seen(part: Any) -> set[int]:
        """Places in the whole text, of the windows and of their targets."""
        return {start + step for start in part.rows.tolist() for step in range(21)}

    assert not seen(data.train) & seen(data.test)
    assert seen(data.train) | seen(data.test) == set(range(1000)), "nothing is lost"


def test_the_longest_roles_that_have_a_window_for_tests_are_kept() -> None:
    texts = ["a" * 30, "b" * 100, "c" * 50, "d" * 100]
    assert longest(texts, 4, None, 0) == [texts[1], texts[3], texts[2]]
    assert longest(texts, 4, 1, 0) == [texts[1]]
    assert longest(texts, 4, None, 60) == [texts[1], texts[3]]
    assert longest(texts, 9, None, 0) == [texts[1], texts[3]], "5 characters have no window of 9"
    for length, count in ((4, 4), (10, None)):
        with pytest.raises(InputError, match="take fewer roles, or lower min_chars or length"):
            longest(texts, length, count, 0)


@pytest.mark.parametrize("settings", [{"length": 0}, {"stride": 0}, {"roles": 0}], ids=str)
def test_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(settings))} must be at least 1, not 0"):
        shakespeare(**settings)


def test_windows_are_a_view_of_the_text_also_when_they_travel() -> None:
    data = windows(["".join(SYMBOLS[number % 65] for number in range(5000))], 80, 1)
    packed = pickle.dumps(data.train)
    texts, rows = 2 * 8 * 5000, 8 * len(data.train)  # the text travels for the inputs and for the targets
    assert len(packed) < texts + rows + 2000
    positions = torch.tensor([0, 7, len(data.train) - 1])
    for found, wanted in zip(pickle.loads(packed).batch(positions), data.train.batch(positions), strict=True):
        assert torch.equal(found, wanted)
    assert data.train.inputs.data_ptr() == data.test.inputs.data_ptr()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A play of three roles in place of the file."""
    rhyme = {"ANN": "the cat sat on the mat. ", "BOB": "a dog ate the hog. ", "CY": "no! no! "}
    play = "\n\n".join(f"{role}:\n{line * count}" for role, line in rhyme.items() for count in (8, 9))
    monkeypatch.setattr(module, "load", lambda source: {module.FILE: play.encode()})


SPEC: dict[str, Any] = {
    "data.dataset": {"name": "shakespeare", "length": 8, "stride": 2, "min_chars": 100},
    "data.partition": "natural",
    "data.clients": 3,
    "model": {"name": "char-lstm", "hidden": 16},
    "training.lr": 1.0,
    "training.batch_size": 8,
    "rounds": 8,
}


@pytest.mark.usefixtures("small")
def test_a_client_is_a_role_and_engines_give_the_same_bits() -> None:
    serial, pool, auto = (
        sy.run(out=None, **SPEC, engine=engine)
        for engine in ("serial", {"name": "pool", "workers": 2}, "auto")
    )
    assert serial.history == pool.history == auto.history
    assert serial.clients == pool.clients == auto.clients
    counts = [row["num_examples"] for row in serial.clients[:3]]
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) == 3
    assert serial.accuracy > 0.4, "rhymes are easy"


@pytest.mark.usefixtures("small")
def test_the_vectorized_engine_refuses_an_lstm_with_a_reason() -> None:
    with pytest.raises(InputError, match=r"cannot train this: .*lstm.*fallback\. Take another engine"):
        sy.run(out=None, **SPEC, engine="vectorized")


@pytest.mark.skipif(
    not os.environ.get("STEELYARD_DATA"), reason="STEELYARD_DATA does not name a folder with Tiny Shakespeare"
)
def test_the_whole_text() -> None:
    if where(module.SOURCE) is None:
        pytest.skip(f"STEELYARD_DATA has no {module.SOURCE.name}")
    data: Dataset = shakespeare()
    assert data.groups is not None
    assert len(data.groups) == len(data.train) == 86_823
    assert len(data.test) == 8_695
    assert int(data.groups.max()) + 1 == 141
    assert data.train.input_shape == (80,)
    assert (int(data.train.targets.min()), int(data.train.targets.max())) == (0, 64)
    first, following = data.train.batch(torch.tensor([0]))  # the role that says most
    opening = "Now is the winter of our discontent\nMade glorious summer by this sun of York;\nAn"
    assert (decode(first[0]), decode(following)) == (opening, "d")
