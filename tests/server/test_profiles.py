"""Profiles that cannot be used are left out, as if the client had given none."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hostile_objects import Exiting

from steelyard.errors import SteelyardWarning
from steelyard.server.profiles import class_counts, fitting_profiles, screen_profiles
from steelyard.sites import Profile

SHAPES = ((3, 2), (3,))


def profile(client: str) -> Profile:
    return Profile(client, 6, SHAPES, 36, torch.tensor([1, 2, 3]))


@pytest.mark.parametrize(
    "changes",
    [
        {"client": "b"},
        {"num_examples": -1},
        {"num_examples": 10**5000},
        {"num_examples": True},
        {"num_examples": math.nan},
        {"num_examples": 7},
        {"model_bytes": -1},
        {"model_bytes": 10**400},
        {"model_bytes": "x"},
        {"class_counts": [1, 2, 3]},
        {"class_counts": torch.tensor([1.0, 2.0, 3.0])},
        {"class_counts": torch.tensor([7, -4, 3])},
        {"class_counts": torch.tensor([1, 2, 2, 1])},
        {"class_counts": torch.tensor([[1, 2, 3]])},
        {"class_counts": torch.zeros(3, dtype=torch.int64, device="meta")},
        None,
    ],
)
def test_a_malformed_profile_is_left_out(changes: dict[str, Any] | None) -> None:
    bad: Any = Exiting() if changes is None else replace(profile("a"), **changes)
    found = screen_profiles({"a": bad, "b": profile("b"), "c": profile("c")}, 1000)
    assert set(found) == {"b", "c"}
    assert class_counts(found.values()).tolist() == [2, 4, 6]


def test_what_does_not_fit_is_named_in_the_words_of_what_travels() -> None:
    other = replace(profile("b"), shapes=((4, 2), (4,)))
    given = {"a": profile("a"), "b": other, "c": replace(profile("c"), shapes=((3, 2),))}
    with pytest.warns(SteelyardWarning) as caught:
        assert set(fitting_profiles(given, SHAPES, is_head=False)) == {"a"}
    assert [str(each.message).partition(": its")[0] for each in caught] == [
        "client 'b' shares tensors of other shapes than the server: number 1 is 4×2, not 3×2",
        "client 'c' shares another number of tensors than the server: 1, not 2",
    ]
    with pytest.warns(SteelyardWarning, match="'b' has a head of embedding 2 and 4 classes, but the server"):
        fitting_profiles({"a": profile("a"), "b": other}, SHAPES, is_head=True)


def test_good_profiles_stay() -> None:
    given = {name: profile(name) for name in "abc"} | {"d": Profile("d", 5, SHAPES, 36)}
    assert screen_profiles(given, 10) == given
