"""Seeds: unrelated for different keys, the same on every machine, and no trace in the global generator."""

import itertools
from typing import Any

import pytest
import torch

from steelyard.seeds import derive, generator, seeded

KEYS: list[tuple[Any, ...]] = [
    (0,), (1,), (0, 0), (0, 1), (1, 0), (0, "0"), (0, ""), (0, "", ""),
    (0, 1, "1"), (0, "1", 1), (0, "1", "1"), (0, 1, 1), (0, 11), (0, "11"), (0, "1:1"), (0, -1), (-1,),
    (0, "a", "b"), (0, "ab"), (0, "b", "a"), (0, "a b"), (0, "a,b"), (0, "a", "b", ""), (0, "int:1"),
    (0, 12, 3), (0, 1, 23), (0, "train", 1), (0, 1, "train"),
]  # fmt: skip


def test_every_key_gives_another_seed() -> None:
    for a, b in itertools.combinations(KEYS, 2):
        assert derive(*a) != derive(*b), (a, b)


def test_a_seed_is_a_whole_number_of_63_bits_that_uses_them() -> None:
    seeds = [derive(0, number) for number in range(200)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) > 2**62
    assert len({seed % 2 for seed in seeds}) == 2


def test_a_seed_is_the_same_in_every_process_and_version() -> None:
    assert derive(0, 1, "client-7", "train") == 5_471_545_095_559_335_998


def test_generators_of_the_same_key_draw_the_same_and_others_do_not() -> None:
    draws = [torch.rand(4, generator=generator(*key)) for key in [(0, "a"), (0, "a"), (0, "b"), (1, "a")]]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[3])


def test_seeded_code_draws_from_the_key_and_leaves_the_global_state_as_it_was() -> None:
    torch.manual_seed(5)
    expected = torch.rand(6)
    torch.manual_seed(5)
    first = torch.rand(3)
    with seeded(0, "a"):
        inside = torch.rand(100)
    second = torch.rand(3)
    assert torch.equal(torch.cat([first, second]), expected)
    torch.manual_seed(6)
    with seeded(0, "a"):
        assert torch.equal(torch.rand(100), inside)
    with seeded(0, "b"):
        assert not torch.equal(torch.rand(100), inside)


def test_the_global_state_is_restored_after_an_error_too() -> None:
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), seeded(0, "a"):
        torch.rand(1 // 0)
    assert torch.equal(torch.get_rng_state(), before)
