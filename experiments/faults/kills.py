"""Kill real `steelyard run` and `steelyard resume` processes, and let two of them meet in one folder.

    python experiments/faults/kills.py --kills 200 --pairs 50

Each process is forked from this one, which has torch imported, runs the command line, and is killed with
SIGKILL at a random moment: half of them within a second of their start, the others relative to the moment at
which the folder of the run appears. Killed runs are resumed (and killed again) until they finish; tables,
states, private states and model are compared with those of a run that was left alone. States are saved every
0.1 s here, so that kills also hit the saving. Writes results/kills.md and .json after every trial.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from steelyard.cli import app
from steelyard.runs import writer
from steelyard.runs.folder import DATABASE, HIDDEN, MODEL, PRIVATE, states_in
from steelyard.runs.reader import Run, runs_in
from steelyard.specs.building import build
from steelyard.specs.schema import load_spec
from steelyard.tensor_files import load_tensors

RESULTS = Path(__file__).parent / "results"
STATE_SECONDS = 0.1
COMMON = ["data.clients=4", "training.steps=2", "model.hidden=16", "engine=serial"]
HEADS = ["sharing={name='head', adopt=false}", "objective=distillation"]
VARIANTS: dict[str, list[str]] = {
    "fedavg": [],
    "majority (memory of the rule)": ["weighing=majority"],
    "averaged server": ["server.average=5", "server.momentum=0.5"],
    "private heads": HEADS,
    "private heads in files": [*HEADS, "spill=true"],
    "two workers": ["engine={name='pool', workers=2}"],
}
FAULTS = ("lost rounds", "not resumable", "stray files", "differing bits", "raw tracebacks", "two writers")


def start(words: Sequence[str], log: Path) -> int:
    """Fork a process that runs a command of steelyard; returns its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        writer.STATE_SECONDS = STATE_SECONDS
        app([*words], prog_name="steelyard")
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException:
        import traceback

        traceback.print_exc()
    os._exit(70)


def code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def is_alive(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def private_states(folder: Path) -> Any:
    """The private states after the last round, by client, as bytes."""
    last = max(states_in(folder))
    path = folder / PRIVATE / f"after-{last}.safetensors"
    if not path.is_file():
        return {}
    tensors, values = load_tensors(path)
    listed = values.get("files", {})
    for client, name in listed.items():
        loaded = load_tensors(path.with_name(name))[0]
        tensors |= {(client, *key): tensor for key, tensor in loaded.items()}
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def bits(folder: Path) -> dict[str, Any]:
    """Everything that must be equal in equal runs."""
    run, last = Run(folder), max(states_in(folder))
    return {
        "rounds": run.rounds,
        "clients": run.clients,
        "state": (last, states_in(folder)[last].read_bytes()),
        "model": (folder / MODEL).read_bytes(),
        "private": private_states(folder),
    }


def stray_files(folder: Path) -> list[str]:
    """Files of a finished run that nothing refers to.

    SQLite's journal stays if a process is killed when it closes the record, after all is committed; it
    goes when the next writer closes it.
    """
    kept = {"lock", "spec.toml", "environment.json", DATABASE, f"{DATABASE}-journal", MODEL, PRIVATE}
    kept |= {path.name for path in states_in(folder).values()}
    stray = [path.name for path in folder.iterdir() if path.name not in kept]
    stray += ["a third state"] if len(states_in(folder)) > 2 else []
    commits = list((folder / PRIVATE).glob("after-*.safetensors"))
    used = {path.name for path in commits}
    for commit in commits:
        used |= set(load_tensors(commit)[1].get("files", {}).values())
    stray += [path.name for path in (folder / PRIVATE).glob("*") if path.name not in used]
    return stray + (["a fourth commit"] if len(commits) > 3 else [])


class Trials:
    """Counts of what happened."""

    def __init__(self, folder: Path, rounds: int, seed: int) -> None:
        self.folder, self.rounds, self.draw = folder, rounds, random.Random(seed)
        self.faults: Counter[str] = Counter(dict.fromkeys(FAULTS, 0))
        self.seen: Counter[str] = Counter()
        self.details: list[str] = []
        self.wanted: dict[str, dict[str, Any]] = {}
        self.began = time.monotonic()
        for name in VARIANTS:
            out = folder / f"whole-{name}"
            assert code_of(start(["run", *self.words(name), "--out", str(out)], folder / "log")) == 0, name
            self.wanted[name] = bits(runs_in(out)[0].path)

    def words(self, variant: str) -> list[str]:
        return [f"rounds={self.rounds}", *COMMON, *VARIANTS[variant]]

    def fault(self, kind: str, detail: str) -> None:
        self.faults[kind] += 1
        self.details.append(f"{kind}: {detail}")

    def kill_later(self, pid: int, out: Path) -> bool:
        """Kill a process at a random moment; False if it ended before."""
        if self.draw.random() < 0.5:
            when, seconds = "within 1 s of the start", self.draw.uniform(0, 1)
        else:
            when = "after the folder appeared"
            seconds = self.draw.choice((self.draw.uniform(0, 0.15), self.draw.uniform(0, 1.5)))
            while is_alive(pid) and not list(out.glob(f"*/{DATABASE}")):
                time.sleep(0.001)
        time.sleep(seconds)
        alive = is_alive(pid)
        os.kill(pid, signal.SIGKILL)
        code_of(pid)
        if alive:
            self.seen["kills"] += 1
            self.seen[f"kills {when}"] += 1
        return alive

    def kill_trial(self, number: int) -> None:
        variant = list(VARIANTS)[number % len(VARIANTS)]
        out, log = self.folder / f"kill-{number}", self.folder / f"kill-{number}.log"
        out.mkdir()
        self.kill_later(start(["run", *self.words(variant), "--out", str(out)], log), out)
        if not runs_in(out):
            self.seen["killed before there was a folder"] += 1
            again = start(["run", *self.words(variant), "--out", str(out)], log)  # removes what was left
            code_of(again)
        folder = runs_in(out)[0].path
        while self.draw.random() < 0.5:
            if not self.kill_later(start(["resume", str(folder)], log), out):
                break
        numbers = [row["round"] for row in Run(folder).rounds]
        if numbers != list(range(1, len(numbers) + 1)):
            self.fault("lost rounds", f"kill {number} ({variant}): the record had {numbers}")
        before = len(numbers)
        code = code_of(start(["resume", str(folder)], log))
        self.judge(f"kill {number} ({variant})", variant, out, log, [code], before)

    def pair_trial(self, number: int) -> None:
        """Two processes at once: run and resume, two resumes after a kill, or a stopped run and a resume."""
        variant = list(VARIANTS)[number % len(VARIANTS)]
        out, log = self.folder / f"pair-{number}", self.folder / f"pair-{number}.log"
        out.mkdir()
        first = start(["run", *self.words(variant), "--out", str(out)], log)
        while is_alive(first) and not runs_in(out):
            time.sleep(0.001)
        folder = runs_in(out)[0].path
        time.sleep(self.draw.uniform(0, 0.8))
        kind = ("run and resume", "two resumes", "stopped run and resume")[number // len(VARIANTS) % 3]
        if kind == "two resumes":
            os.kill(first, signal.SIGKILL)
            code_of(first)
            first = start(["resume", str(folder)], log)
            time.sleep(self.draw.choice((0.0, self.draw.uniform(0, 0.5))))
        elif kind == "stopped run and resume":
            os.kill(first, signal.SIGSTOP)
        second = start(["resume", str(folder)], log)
        codes = []
        if kind == "stopped run and resume":
            codes.append(code_of(second))
            os.kill(first, signal.SIGCONT)
            codes.append(code_of(first))
        else:
            codes += [code_of(first), code_of(second)]
        self.seen["pairs"] += 1
        self.seen[f"pairs: {kind}"] += 1
        self.seen["pairs: the second was refused"] += 2 in codes
        if sorted(codes) not in ([0, 0], [0, 2]):
            self.fault("two writers", f"pair {number} ({variant}, {kind}): exit codes {codes}")
        self.judge(f"pair {number} ({variant}, {kind})", variant, out, log, [], 0)

    def judge(self, name: str, variant: str, out: Path, log: Path, codes: list[int], before: int) -> None:
        """Compare a run that has ended with the one that was left alone."""
        if "Traceback" in (text := log.read_text("utf-8", "replace")):
            self.fault("raw tracebacks", f"{name}: {text[-300:]}")
        runs = runs_in(out)
        if any(codes) or len(runs) != 1 or runs[0].meta["status"] != "finished":
            self.fault("not resumable", f"{name}: exit codes {codes}, {text[-300:]}")
            return
        folder, wanted = runs[0].path, self.wanted[variant]
        found = bits(folder)
        if len(found["rounds"]) < max(before, len(wanted["rounds"])):
            self.fault("lost rounds", f"{name}: {len(found['rounds'])} of {len(wanted['rounds'])}")
        if differ := [key for key in wanted if found[key] != wanted[key]]:
            self.fault("differing bits", f"{name}: {differ}")
        if stray := stray_files(folder) + [path.name for path in out.glob(f"{HIDDEN}*")]:
            self.fault("stray files", f"{name}: {stray}")

    def write(self, command: str, results: Path) -> None:
        seconds = round(time.monotonic() - self.began)
        values = {"command": command, "seconds": seconds, "faults": self.faults, "seen": self.seen}
        results.mkdir(exist_ok=True)
        text = json.dumps({**values, "details": self.details, "variants": VARIANTS}, indent=2)
        (results / "kills.json").write_text(text + "\n", "utf-8")
        lines = [f"# Killed runs and pairs of processes\n\n`{command}` ({seconds} s)\n"]
        lines += [f"Runs of {self.rounds} rounds in turn: {', '.join(VARIANTS)}; `{' '.join(COMMON)}`.\n"]
        lines += ["| what happened | count |", "|---|---|"]
        lines += [f"| {name} | {count} |" for name, count in sorted(self.seen.items())]
        lines += ["", "| fault | count |", "|---|---|"]
        lines += [f"| {name} | {self.faults[name]} |" for name in FAULTS]
        (results / "kills.md").write_text("\n".join(lines) + "\n", "utf-8")


def run_trials(kills: int, pairs: int, rounds: int, seed: int, results: Path) -> Trials:
    """Until there were as many kills and pairs as asked for."""
    build(load_spec(None, {"data.clients": 4}))  # loads what all of the forked processes need
    asked = {"kills": kills, "pairs": pairs, "rounds": rounds, "seed": seed}
    options = " ".join(f"--{name} {value}" for name, value in asked.items())
    command = f"python experiments/faults/kills.py {options}"
    with TemporaryDirectory() as folder:
        trials, number = Trials(Path(folder), rounds, seed), 0
        while trials.seen["kills"] < kills:
            trials.kill_trial(number)
            trials.write(command, results)
            number += 1
        for pair in range(pairs):
            trials.pair_trial(pair)
            trials.write(command, results)
    return trials


def main() -> None:
    torch.set_num_threads(1)  # threads of OpenMP do not survive a fork: a child would wait for them for ever
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=300, help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the tables")
    options = parser.parse_args()
    trials = run_trials(**vars(options))
    print((options.results / "kills.md").read_text("utf-8"))
    sys.exit(1 if trials.faults.total() else 0)


if __name__ == "__main__":
    main()
