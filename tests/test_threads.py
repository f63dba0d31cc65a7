"""Parts on several threads: results, failures and settings are those of a loop."""

import os
import threading

import pytest
import torch
from torch import Tensor

from steelyard.threads import in_parts, one_thread

PARTS = [torch.randn(50_000, generator=torch.Generator().manual_seed(seed)) for seed in range(7)]


def total(part: Tensor) -> Tensor:
    return part.square().sum()


@pytest.mark.parametrize("workers", [1, 2, 3, 20, None])
def test_results_have_the_bits_and_the_order_of_a_loop(workers: int | None) -> None:
    with one_thread():
        expected = [total(part) for part in PARTS]
    assert in_parts(total, PARTS, workers) == expected
    with one_thread():
        assert in_parts(total, PARTS, workers) == expected
    assert in_parts(total, [], workers) == []


def test_parts_run_at_the_same_time_each_on_one_thread_of_torch() -> None:
    meet, before = threading.Barrier(2, timeout=10), torch.get_num_threads()
    torch.set_num_threads(3)
    try:

        def number_of_threads(_: int) -> int:
            meet.wait()
            return torch.get_num_threads()

        assert in_parts(number_of_threads, range(2), 2) == [1, 1]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_parts_within_a_part_run_one_after_the_other() -> None:
    def names(_: int) -> set[str]:
        return set(in_parts(lambda _: threading.current_thread().name, range(4), 2))

    assert [len(found) for found in in_parts(names, range(3), 2)] == [1, 1, 1]


def test_the_first_part_that_fails_raises_and_no_thread_is_left() -> None:
    started = threading.active_count()

    def fail(part: int) -> None:
        if part >= 2:
            raise ValueError(f"part {part}")

    for _ in range(20):
        with pytest.raises(ValueError, match="part 2"):
            in_parts(fail, range(8), 3)
    assert threading.active_count() == started
    assert in_parts(lambda part: part, range(4), 2) == [0, 1, 2, 3]


def test_parts_compute_gradients_where_the_caller_does() -> None:
    def modes(_: int) -> tuple[bool, bool]:
        meet.wait()
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    for mode, expected in (
        (torch.no_grad(), (False, False)),
        (torch.inference_mode(), (False, True)),
        (torch.enable_grad(), (True, False)),
    ):
        meet = threading.Barrier(2, timeout=10)
        with mode:
            assert in_parts(modes, range(2), 2) == [expected] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_parts_run_in_a_forked_process() -> None:
    expected = in_parts(total, PARTS, 2)
    child = os.fork()
    if not child:
        os._exit(7 if in_parts(total, PARTS, 2) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
