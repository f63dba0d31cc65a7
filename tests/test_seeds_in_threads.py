"""The global generators in threads, and in processes that were forked while another thread used them."""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from steelyard.seeds import others_restored, seeded
from steelyard.threads import one_thread

Draws = tuple[float, float, float]


def draw(key: int) -> list[Draws]:
    """Numbers that code draws while other threads may run."""
    found = []
    with seeded(0, key):
        for _ in range(5):
            found.append((float(torch.rand(())), float(np.random.rand()), random.random()))
            time.sleep(0.001)
    return found


def state() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()


def test_threads_draw_what_they_draw_alone_and_leave_no_trace() -> None:
    before, alone = state(), [draw(key) for key in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(draw, range(4))) == alone
    assert state() == before


def test_contexts_of_threads_that_overlap_restore_what_the_first_one_found() -> None:
    before, is_inside, may_end = state(), threading.Event(), threading.Event()

    def outlast() -> None:
        with others_restored():
            draw(1)
            is_inside.set()
            may_end.wait(10)

    with ThreadPoolExecutor(1) as threads:
        with others_restored():
            draw(0)
            threads.submit(outlast)
            assert is_inside.wait(10)
        may_end.set()
    assert state() == before


def test_threads_leave_the_number_of_threads_as_it_was() -> None:
    """A thread that first uses torch while another is restricted to one thread starts with one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)

    def restricted(is_inside: threading.Event, may_end: threading.Event) -> int:
        with one_thread():
            is_inside.set()
            may_end.wait(10)
            inside = torch.get_num_threads()
        return 10 * inside + torch.get_num_threads()

    try:
        events = [(threading.Event(), threading.Event()) for _ in range(2)]
        with ThreadPoolExecutor(2) as threads:
            found = []
            for is_inside, may_end in events:
                found.append(threads.submit(restricted, is_inside, may_end))
                assert is_inside.wait(10)
            for (_, may_end), each in zip(events, found, strict=True):  # the first to begin ends first
                may_end.set()
                assert each.result() == 13
        assert in_a_new_thread(torch.get_num_threads) == 3
        with one_thread():
            torch.set_num_threads(2)
            with one_thread():
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def in_a_new_thread(work: Callable[[], int]) -> int:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


FORKED = """
import os, threading, time
from steelyard.seeds import seeded

def hold():
    with seeded(0, "held"):
        time.sleep(30)

threading.Thread(target=hold, daemon=True).start()
time.sleep(0.2)
child = os.fork()
if not child:
    with seeded(0, "child"):
        os._exit(7)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_process_does_not_wait_for_threads_that_it_does_not_have() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], timeout=25, check=False)
    assert done.returncode == 7
