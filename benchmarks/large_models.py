"""Where a round goes with few clients and a large model, and how many vectors as large as the model it needs.

    python benchmarks/large_models.py                       # 10 clients, 5·10⁷ parameters: 5 GB, 3 minutes
    python benchmarks/large_models.py --size 1e7            # small, while developing
    python benchmarks/large_models.py --rules samples majority --engines serial pool --threads 2

Clients make one step on two examples, so a round is little else than moving vectors. Every stage is compared
with one read of all updates from memory on all cores, measured in the same run, after the rounds. The last
round is not timed: in it, memory is measured (proportional set size of this process and its workers).
"""

import argparse
import functools
import os
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

import steelyard as sy
from steelyard.combining import Mean
from steelyard.runs import writer
from steelyard.server import aggregation, screening
from steelyard.threads import in_parts

LAYERS = 4
STAGES = {
    "screen": (screening, "screen_replies"),
    "lengths": (aggregation.Aggregator, "_screen_lengths"),
    "weigh": (aggregation, "weigh"),
    "merge": (Mean, "combine_scaled"),
    "move": (aggregation, "step"),
    "check": (aggregation, "is_finite"),
    "state": (writer, "save_state"),
    "record": (writer.Recorder, "__call__"),
}
"""The functions that are timed. "lengths" are the norms of the updates, which every rule needs."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=float, default=5e7, help="parameters of the model")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=4, help="that are timed")
    parser.add_argument("--rules", nargs="+", default=["samples", "majority"])
    parser.add_argument("--engines", nargs="+", default=["serial", "pool"])
    parser.add_argument("--threads", type=int, default=1, help="of a client")
    options = parser.parse_args()
    for engine in options.engines:
        for rule in options.rules:
            child = os.fork()  # each in a process of its own, whose memory is its own
            if not child:
                measure(engine, rule, options)
                os._exit(0)
            os.waitpid(child, 0)


def measure(engine: str, rule: str, options: argparse.Namespace) -> None:
    """Print the stages of a median round, and the memory of the last one."""
    model = wide(int(options.size))
    size, width = sum(each.numel() for each in model.parameters()), len(next(model.parameters()))
    inputs = torch.randn(2, width)
    clients = {f"c{number}": (inputs + number, torch.arange(2)) for number in range(options.clients)}
    algorithm = sy.Algorithm(weighing=rule, training={"steps": 1, "batch_size": 2, "lr": 0.001})
    rounds, spent, peak = options.rounds + 2, defaultdict(list), Peak()

    def watch(event: Any) -> None:
        for name, seconds in event.round.seconds.items():
            spent[name].append(seconds)
        if event.round.number == rounds - 1:
            peak.start()

    before = memory()
    federation = sy.Federation(
        clients, model, algorithm, rounds=rounds, engine={"name": engine, "threads": options.threads}
    )
    del model
    with tempfile.TemporaryDirectory() as folder, timed(spent):
        federation.run(recorder=Path(folder) / "run", callbacks=watch, progress=False)
    most = peak.stop()
    read, alone = read_once(options.clients, size)
    median = {name: statistics.median(times[1:-1]) for name, times in spent.items() if len(times) > 2}
    median["train"] = median["exchange"] - median["screen"]
    server = median["aggregate"]
    print(f"\n{engine}, {rule}: {options.clients} clients x {size:.1e}, threads {options.threads}")
    print(f"one read of the updates: {1000 * read:.0f} ms on all cores, {1000 * alone:.0f} on one")
    for name in ("train", *STAGES):
        if name in median:
            print(f"  {name:8} {1000 * median[name]:8.1f} ms {median[name] / read:7.2f} x a read")
    print(f"  weighing and merging in all: {1000 * server:.1f} ms, {server / read:.2f} x a read")
    print(
        f"  memory: {most / 1e9:.2f} GB, {(most - before) / (4 * size):.1f} vectors of the model", flush=True
    )


def wide(size: int) -> nn.Sequential:
    """Linear layers with so many parameters in all."""
    torch.manual_seed(0)
    width = int((size / LAYERS) ** 0.5)
    return nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(LAYERS)])


@contextmanager
def timed(spent: dict[str, list[float]]) -> Iterator[None]:
    """Note the seconds of each call of the functions in `STAGES`."""
    before = [getattr(owner, name) for owner, name in STAGES.values()]
    for stage, (owner, name) in STAGES.items():
        setattr(owner, name, noting(getattr(owner, name), spent[stage]))
    try:
        yield
    finally:
        for (owner, name), function in zip(STAGES.values(), before, strict=True):
            setattr(owner, name, function)


def noting(function: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed_call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            times.append(time.perf_counter() - start)

    return timed_call


def read_once(clients: int, size: int) -> tuple[float, float]:
    """Seconds to read all updates from memory, on all cores and on one; the fastest of three."""
    matrix = torch.ones(clients, size)
    found = []
    for workers in (None, 1):
        times = []
        for _ in range(3):
            start = time.perf_counter()
            in_parts(torch.sum, torch.split(matrix.view(-1), 1 << 20), workers)
            times.append(time.perf_counter() - start)
        found.append(min(times))
    return found[0], found[1]


def memory() -> int:
    """Bytes of this process and its children; what several share is divided among them."""
    total = 0
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text("utf-8").split()
    for process in ("self", *children):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text("utf-8").splitlines():
            if line.startswith("Pss:"):
                total += 1024 * int(line.split()[1])
    return total


class Peak:
    """The largest `memory` between start and stop."""

    def __init__(self) -> None:
        self.most, self.ended = 0, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> int:
        self.ended.set()
        self.thread.join()
        return self.most

    def _watch(self) -> None:
        while not self.ended.wait(0.02):
            try:
                self.most = max(self.most, memory())
            except OSError:  # a worker has ended
                continue


if __name__ == "__main__":
    main()
