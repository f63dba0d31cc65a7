"""Runs a contender as a process: reads its output, stops it in time, measures memory, ends its children."""

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

TIMED = 2  # timed rounds that a contender must finish to be counted
WARM_UP = 1  # rounds that are not timed: they start workers and fill caches


@dataclass
class Outcome:
    """Rounds, memory and problems of a contender in one pass."""

    rounds: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    first_done: float = 0.0
    """Seconds from the start of the process to the end of its first round."""
    megabytes: float | None = None
    others: float = 0.0
    """Share of the machine's processor time that went to other programs."""
    problem: str | None = None

    @property
    def seconds(self) -> list[float]:
        """Seconds of each timed round."""
        return [round["seconds"] for round in self.rounds[WARM_UP:]]


def run(
    command: Sequence[str],
    env: Mapping[str, str],
    rounds: int,
    *,
    limit: float,
    enough: float,
    memory: bool = False,
) -> Outcome:
    """Run a contender for `rounds` rounds, and for at most `limit` seconds.

    It is stopped early after `TIMED` rounds if its timed rounds have taken `enough` seconds. With `memory`,
    one timed round is enough, and its memory is sampled, which disturbs the timing.
    """
    outcome = Outcome()
    needed, enough = (1, 0.0) if memory else (TIMED, enough)
    with tempfile.TemporaryDirectory() as home, open(Path(home) / "stderr", "w+") as errors:
        temporary = {"TMPDIR": home, "RAY_TMPDIR": home, "FLWR_HOME": home}
        began, busy = time.time(), _busy()
        process = subprocess.Popen(
            command, env={**os.environ, **env, **temporary}, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        late = threading.Timer(limit, end_descendants)
        late.start()
        try:
            with watched_memory(outcome) if memory else nullcontext():
                assert process.stdout is not None
                for line in process.stdout:
                    _read_line(outcome, line, began)
                    done = len(outcome.seconds) >= needed and sum(outcome.seconds) > enough
                    if done or len(outcome.rounds) == rounds:
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


def _read_line(outcome: Outcome, line: str, began: float) -> None:
    """Record a line of JSON; other output of a framework is ignored."""
    with suppress(json.JSONDecodeError):
        message = json.loads(line)
        if "versions" in message:
            outcome.versions = message["versions"]
        elif "round" in message:
            outcome.rounds.append(message)
            if len(outcome.rounds) == WARM_UP:
                outcome.first_done = message["at"] - began


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "ended without an error message"


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants (Linux), so that all can be ended, also on SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    pr_set_child_subreaper = 36
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def descendants(dead: bool = False) -> list[int]:
    """Ids of all living descendants of this process; with `dead`, also of zombies."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if dead or state != "Z":
                children.setdefault(int(parent), []).append(int(entry.name))
    ids, new = [], [os.getpid()]
    while new:
        new = [child for parent in new for child in children.get(parent, [])]
        ids += new
    return ids


def end_descendants() -> None:
    """Kill all descendants, including those that start meanwhile."""
    for _ in range(200):
        alive = descendants()
        if not alive:
            return
        for process in alive:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)
    raise RuntimeError(f"cannot end the processes {alive}")


def _reap() -> None:
    """Collect the exit codes of ended child processes."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _busy() -> float:
    """Seconds of processor time that all programs have used so far (Linux)."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, *rest = map(int, fields)
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def _processor_seconds(process: int) -> float:
    """Seconds of processor time that a process and its ended children have used."""
    with suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


@contextmanager
def watched_memory(outcome: Outcome) -> Iterator[None]:
    """Record the peak memory of all descendants together; shared pages count once."""
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
    """Proportional set size: a process's private memory and its part of shared memory."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0
