"""One deployment on loopback whose processes are killed; whatever ends is started again, as systemd would."""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w
from safetensors.torch import load_file

from steelyard.flower.answering import STATES
from steelyard.flower.deployment import INVITATION, SETTINGS, STATUS, load_deployment, read_invitation
from steelyard.flower.joining import site_home
from steelyard.flower.processes import Child, free_port
from steelyard.flower.trial import make_trial, site_names, site_process
from steelyard.runs.folder import MODEL, PRIVATE
from steelyard.runs.reader import Run, runs_in
from steelyard.specs.schema import Spec
from steelyard.tensor_files import PARTIAL, load_tensors

KINDS = ("SuperNode", "site process", "join", "SuperLink", "serve")
WORDS = {"SuperNode": "supernode", "site process": "spawn_main", "SuperLink": "superlink"}
MARK = "STEELYARD_TRIAL"
RESTART_SECONDS = 1.0
PATIENT, HASTY = 300.0, 3.0
"""How long a round waits for a site that is not connected, in seconds."""
LOOK_SECONDS = 0.1


@dataclass
class Outcome:
    """What happened in one trial."""

    name: str
    seen: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[str, str]] = field(default_factory=list)
    """(kind, detail)."""
    seconds: float = 0.0


def processes() -> Iterator[tuple[int, int, str]]:
    """(id, parent, command line) of every process."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            yield int(path.name), parent, (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()


def marked(mark: str) -> list[str]:
    """The processes that were started for a trial, directly or not."""
    found = []
    for pid, _, words in processes():
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(f"{pid} {words}")
    return found


class Trial:
    """A deployment of real processes, and what is done to it."""

    def __init__(
        self, name: str, spec: Spec, folder: Path, draw: random.Random, offline: float = PATIENT
    ) -> None:
        self.outcome, self.spec, self.draw = Outcome(name), spec, draw
        self.folder = make_trial(spec, folder)
        settings = load_deployment(self.folder, trust=True).settings
        table = settings.model_dump(exclude_none=True) | {"offline_seconds": offline}
        (self.folder / SETTINGS).write_text(tomli_w.dumps(table), "utf-8")
        self.relay = self._relay(settings.internal_port)
        self.names = site_names(self.folder)
        command = [sys.executable, "-m", "steelyard", "deploy", "serve", self.folder, "--no-proxy"]
        self.server = Child("serve", command, self.folder / "logs" / "serve.log")
        self.sites = [site_process(self.folder, each) for each in self.names]
        self.away: set[Child] = set()
        self._ended: dict[Child, float] = {}
        self._round, self._began = 0, time.monotonic()

    def _relay(self, target: int) -> Child:
        """Between the sites and the SuperLink, in place of a network."""
        port = free_port()
        for path in self.folder.glob(f"*{INVITATION}"):
            replace(read_invitation(path), address=f"localhost:{port}").write(path)
        program = Path(__file__).with_name("relay.py")
        return Child("relay", [sys.executable, program, str(port), str(target)], self.folder / "relay.log")

    @property
    def children(self) -> list[Child]:
        return [self.relay, self.server, *self.sites]

    @property
    def run(self) -> Run | None:
        found = runs_in(self.folder / "runs") if (self.folder / "runs").is_dir() else []
        return found[-1] if found else None

    @property
    def is_finished(self) -> bool:
        return (run := self.run) is not None and run.meta.get("status") == "finished"

    def look(self) -> int:
        """Start again what has ended; returns the last complete round."""
        for child in self.children:
            if child in self.away or not child.has_ended:
                self._ended.pop(child, None)
            elif time.monotonic() - self._ended.setdefault(child, time.monotonic()) < RESTART_SECONDS:
                continue
            elif child is not self.server or not self.is_finished:
                self.outcome.seen[f"{child.name.split()[0]} started again"] += 1
                child.start()
        with suppress(OSError, ValueError, KeyError):
            found = json.loads((self.folder / STATUS).read_text("utf-8"))["round"]
            self.outcome.seen["rounds done again"] += max(self._round - found, 0)
            self._round = found
        return self._round

    def wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Look after the processes until something holds; False if it did not in time."""
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() > end:
                return False
            self.look()
            time.sleep(LOOK_SECONDS)
        return True

    def find(self, kind: str, site: Child) -> int | None:
        """The id of a process; those of a site belong to this one."""
        owner = self.server if kind in ("serve", "SuperLink") else site
        if owner.process is None or owner.has_ended:
            return None
        if kind in ("serve", "join"):
            return owner.process.pid
        above = owner.process.pid
        return next(
            (pid for pid, parent, words in processes() if parent == above and WORDS[kind] in words), None
        )

    def kill(self, kind: str) -> None:
        """Kill a process of this kind, as soon as there is one."""
        site = self.draw.choice(self.sites)
        while (pid := self.find(kind, site)) is None and not self.is_finished:
            self.look()
            time.sleep(LOOK_SECONDS)
        if pid is None:
            self.outcome.seen["kills that came too late"] += 1
            return
        os.kill(pid, signal.SIGKILL)
        self.outcome.seen["kills"] += 1
        self.outcome.seen[f"kills: {kind}"] += 1

    def kill_all(self, kinds: Sequence[str]) -> None:
        """Kill each of these, in random rounds and at random moments of the round, some two at once."""
        moments = sorted(self.draw.randrange(self.spec.rounds - 2) for _ in kinds)
        together = False
        for kind, round in zip(kinds, moments, strict=True):
            if not together:
                self.wait(lambda round=round: self.look() >= round, self.deadline)
                end = time.monotonic() + self.draw.uniform(0, 5)
                self.wait(lambda end=end, round=round: time.monotonic() > end or self.look() > round + 1, 60)
            self.outcome.seen["kills at the same moment as the one before"] += together
            self.kill(kind)
            together = self.draw.random() < 0.25

    def cut(self, after: int, seconds: float) -> None:
        """Cut the network between sites and server for some time."""
        self.wait(lambda: self.look() >= after, self.deadline)
        time.sleep(self.draw.uniform(0, 4))
        assert self.relay.process is not None
        self.relay.process.send_signal(signal.SIGSTOP)
        self.wait(lambda: False, seconds)
        self.relay.process.send_signal(signal.SIGCONT)
        self.outcome.seen[f"cuts of the network for {seconds:g} s"] += 1

    def take_away(self, after: int, rounds: int) -> str:
        """The machine of a site is gone for some rounds, and comes back; returns its name."""
        site = self.draw.choice(self.sites)
        self.wait(lambda: self.look() >= after, self.deadline)
        self.away.add(site)
        assert site.process is not None
        site.process.kill()
        begin = self.look() + 1  # the round that goes on now
        self.wait(lambda: self.look() >= begin + rounds, self.deadline)
        self.away.clear()
        self.outcome.seen["machines gone for some rounds"] += 1
        return site.name.removeprefix("site ")

    @property
    def deadline(self) -> float:
        """How long to wait for anything, in seconds."""
        return 600.0

    def go(self, *faults: Callable[["Trial"], object]) -> Outcome:
        """Run to the end, with faults; then stop everything and say what is left."""
        self._began = time.monotonic()
        with ExitStack() as stack:
            for child in self.children:
                child.env[MARK] = str(self.folder)
                stack.enter_context(child)
            for fault in faults:
                fault(self)
            done = self.wait(lambda: self.is_finished and self.server.has_ended, self.deadline)
        self.outcome.seconds = time.monotonic() - self._began
        if not done:
            self.fault("runs that did not finish", f"after round {self._round}")
        time.sleep(1.0)
        for stray in marked(str(self.folder)):
            self.fault("stray processes", stray)
        for path in self.folder.rglob(f"*{PARTIAL}"):
            self.fault("leftover partial files", str(path.relative_to(self.folder)))
        for log in (self.server.log, *(site.log for site in self.sites)):
            if "Traceback" in (text := log.read_text("utf-8", "replace")):
                self.fault("raw tracebacks", f"{log.name}: {text[text.index('Traceback') :][:600]}")
        return self.outcome

    def fault(self, kind: str, detail: str) -> None:
        self.outcome.faults.append((kind, f"{self.outcome.name}: {detail}"))

    def compare(self, simulated: Path) -> None:
        """Hold a run in which all clients always took part against the simulated one."""
        run = self.run
        if run is None or not self.is_finished:
            return
        rows = run.clients
        if lost := [row for row in rows if row["status"] != "used"]:
            self.fault("answers that were lost", f"{len(lost)}: {lost[:3]}")
        missing = {*range(1, self.spec.rounds + 1)} - {row["round"] for row in run.rounds}
        if missing:
            self.fault("lost rounds", f"{sorted(missing)}")
        wanted, found = bits(Run(simulated)), bits(run)
        found["private"] = self.private_states(str(run.meta["deployment_run"]))
        if not lost and (differ := [key for key in wanted if found[key] != wanted[key]]):
            self.fault("runs with differing bits", f"{differ}")

    def private_states(self, id: str) -> dict[str, bytes]:
        """The private states at the sites after the last round."""
        found = {}
        for site in self.names:
            home = site_home(self.folder / f"{site}{INVITATION}", site)
            path = home / STATES / id / f"after-{self.spec.rounds}.safetensors"
            for name, tensor in load_tensors(path)[0].items() if path.is_file() else ():
                found["/".join((site, *name))] = tensor.numpy().tobytes()
        return found


def bits(run: Run) -> dict[str, Any]:
    """What must be equal in equal runs."""
    model = load_file(run.path / MODEL)
    path = run.path / PRIVATE / f"after-{len(run.rounds)}.safetensors"
    private = load_tensors(path)[0] if path.is_file() else {}
    return {
        "rounds": run.rounds,
        "clients": run.clients,
        "model": {name: tensor.numpy().tobytes() for name, tensor in model.items()},
        "private": {"/".join(name): tensor.numpy().tobytes() for name, tensor in private.items()},
    }
