"""Runs a contender as a process of its own: reads what it says, stops it in time, weighs it, buries it."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TIMED = 2  # rounds after the first that a contender must play to be counted
WARM_UP = 1  # rounds that start workers and fill caches


@dataclass
class Outcome:
    """What became of a contender in one pass."""

    rounds: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    first_done: float = 0.0
    """Seconds from the start of the process to the end of its first round."""
    megabytes: float | None = None
    others: float = 0.0
    """The share of the machine that was busy with something else."""
    problem: str | None = None

    @property
    def seconds(self) -> list[float]:
        """The rounds that count."""
        return [each["seconds"] for each in self.rounds[WARM_UP:]]


def run(
    command: Sequence[str],
    env: Mapping[str, str],
    rounds: int,
    *,
    limit: float,
    enough: float,
    weigh: bool = False,
) -> Outcome:
    """Run a contender for `rounds` rounds, and for at most `limit` seconds.

    It is stopped early when its rounds have taken `enough` seconds and suffice. With `weigh`, one timed round
    is enough, and its memory is watched all the while, which disturbs its timing.
    """
    outcome = Outcome()
    needed, enough = (1, 0.0) if weigh else (TIMED, enough)
    with tempfile.TemporaryDirectory() as home, open(Path(home) / "stderr", "w+") as errors:
        temporary = {"TMPDIR": home, "RAY_TMPDIR": home, "FLWR_HOME": home}
        began, busy = time.time(), _busy()
        process = subprocess.Popen(
            command, env={**os.environ, **env, **temporary}, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        late = threading.Timer(limit, end_descendants)
        late.start()
        try:
            with watched_memory(outcome) if weigh else nullcontext():
                assert process.stdout is not None
                for line in process.stdout:
                    _hear(outcome, line, began)
                    suffices = len(outcome.seconds) >= needed and sum(outcome.seconds) > enough
                    if suffices or len(outcome.rounds) == rounds:
                        break
        finally:
            late.cancel()
            late.join()
            elapsed, busy = time.time() - began, _busy() - busy
            ours = sum(map(_processor_seconds, descendants(dead=True)))
            end_descendants()
            process.wait()
            _reap()
        outcome.others = max(0.0, (busy - ours) / elapsed / (os.cpu_count() or 1))
        if len(outcome.seconds) < needed:
            errors.seek(0)
            outcome.problem = f"over {limit:.0f} s" if elapsed >= limit else _last_line(errors.read())
    return outcome


def _hear(outcome: Outcome, line: str, began: float) -> None:
    """Take in a line; whatever is not ours (a framework's chatter) is passed over."""
    with suppress(json.JSONDecodeError):
        said = json.loads(line)
        if "versions" in said:
            outcome.versions = said["versions"]
        elif "round" in said:
            outcome.rounds.append(said)
            if len(outcome.rounds) == WARM_UP:
                outcome.first_done = said["at"] - began


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "ended without a word"


def keep_house() -> None:
    """Nobody gets away: orphans become ours (Linux), and whoever terminates this program ends them all."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    pr_set_child_subreaper = 36
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def descendants(dead: bool = False) -> list[int]:
    """Everything that has come of this process and is alive, or also what is dead and not yet buried."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if dead or state != "Z":
                children.setdefault(int(parent), []).append(int(entry.name))
    found, new = [], [os.getpid()]
    while new:
        new = [child for parent in new for child in children.get(parent, [])]
        found += new
    return found


def end_descendants() -> None:
    """Kill all descendants, also those that start while others are being killed."""
    for _ in range(200):
        alive = descendants()
        if not alive:
            return
        for each in alive:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        time.sleep(0.02)
    raise RuntimeError(f"cannot end the processes {alive}")


def _reap() -> None:
    """Take leave of adopted processes that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _busy() -> float:
    """Seconds of processor time that all programs have taken until now (Linux)."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, *rest = (int(each) for each in fields)
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def _processor_seconds(process: int) -> float:
    """What a process has taken, and those of its children that it has outlived."""
    with suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(int(each) for each in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return 0.0


@contextmanager
def watched_memory(outcome: Outcome) -> Iterator[None]:
    """Note the largest memory of all descendants together, shared pages counted once."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            outcome.megabytes = max(outcome.megabytes or 0.0, sum(map(_megabytes, descendants())))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _megabytes(process: int) -> float:
    """The proportional share of a process: what it has to itself, and its part of what is shared."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0
