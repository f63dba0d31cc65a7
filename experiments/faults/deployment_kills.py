"""Kill the real processes of deployments, cut their network, and take a site's machine away.

    python experiments/faults/deployment_kills.py --kills 50

Each deployment has a server and three sites on this machine, over Flower, TLS and a relay in place of a
network. At random moments one of its processes, or two, are killed with SIGKILL: a SuperNode, the process of
a site that trains, join, SuperLink or serve. What ends is started again after a second. The record, the model
and the private layers must be those of a simulated run. Training is long enough that kills hit it. Writes
results/deployment-kills.md and .json after every deployment.
"""

import argparse
import json
import random
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from deployment_trials import HASTY, KINDS, PATIENT, Outcome, Trial

import steelyard as sy
from steelyard.specs.schema import Spec, load_spec

RESULTS = Path(__file__).parent / "results"
COMMON = {"data.clients": 3, "engine": "serial"}
SPECS = {"chfl": ("chfl", {}), "majority": ("fedavg", {"weighing": "majority"})}
VARIANTS = {"chfl": "`chfl` (private layers)", "majority": "`fedavg weighing=majority` (memory of the rule)"}
KILLS_IN_A_RUN = 6
FAULTS = (
    "runs that did not finish",
    "lost rounds",
    "answers that were lost",
    "runs with differing bits",
    "stray processes",
    "leftover partial files",
    "raw tracebacks",
    "sites that were not taken back",
)


class Plan(NamedTuple):
    """What is done to one deployment."""

    name: str
    variant: str
    rounds: int
    faults: Callable[[Trial], object]
    is_whole: bool = True
    """Whether all sites take part in all rounds."""


def killing(number: int, kinds: list[str], rounds: int) -> Plan:
    variant = list(VARIANTS)[number % len(VARIANTS)]
    return Plan(f"kills {number} ({variant})", variant, rounds, lambda trial: trial.kill_all(kinds))


def cutting(number: int, seconds: float, rounds: int) -> Plan:
    variant = list(VARIANTS)[number % len(VARIANTS)]
    return Plan(f"cut {number} ({variant})", variant, rounds, lambda trial: trial.cut(2, seconds))


def leaving(number: int, rounds: int) -> Plan:
    variant = list(VARIANTS)[number % len(VARIANTS)]

    def leave(trial: Trial) -> None:
        name = trial.take_away(after=2, rounds=3)
        trial.wait(lambda: trial.is_finished, trial.deadline)
        run = trial.run
        rows = [row for row in run.clients if row["client"] == name] if run is not None else []
        late = [row["round"] for row in rows if row["status"].startswith("failed")]
        if len(late) < 3 or not rows or rows[-1]["status"] != "used":
            found = [row["status"] for row in rows]
            trial.fault("sites that were not taken back", f"{name}: {found}")
        trial.outcome.seen["rounds that went on without the site that was gone"] += len(late)

    return Plan(f"gone {number} ({variant})", variant, rounds, leave, is_whole=False)


def plans(asked: argparse.Namespace) -> list[Plan]:
    """As many deployments as are needed, with every kind of kill equally often."""
    draw, kills, rounds = random.Random(asked.seed), asked.kills, asked.rounds
    deck = ([*asked.kinds] * (kills // len(asked.kinds) + 1))[:kills]
    draw.shuffle(deck)
    hands = [deck[start : start + KILLS_IN_A_RUN] for start in range(0, kills, KILLS_IN_A_RUN)]
    return [
        *(leaving(number, rounds + 8) for number in range(asked.leaves)),
        *(cutting(number, seconds, rounds) for number, seconds in enumerate(asked.cuts)),
        *(killing(number, hand, rounds) for number, hand in enumerate(hands)),
    ]


class Campaign:
    """Deployments, and the counts of what happened to them."""

    def __init__(self, folder: Path, epochs: int, seed: int, command: str, results: Path) -> None:
        self.folder, self.epochs, self.seed = folder, epochs, seed
        self.command, self.results = command, results
        self.outcomes: list[Outcome] = []
        self.began = time.monotonic()
        self.simulated: dict[tuple[str, int], Path] = {}

    def spec(self, plan: Plan) -> Spec:
        preset, values = SPECS[plan.variant]
        return load_spec(preset, {**COMMON, **values, "rounds": plan.rounds, "training.epochs": self.epochs})

    def simulate(self, plan: Plan) -> None:
        key = (plan.variant, plan.rounds)
        if key not in self.simulated and plan.is_whole:
            out = self.folder / f"simulated-{plan.variant}-{plan.rounds}"
            path = sy.run(self.spec(plan), out=out).path
            assert path is not None
            self.simulated[key] = path

    def run(self, plan: Plan) -> Outcome:
        draw = random.Random(f"{self.seed} {plan.name}")
        folder = self.folder / plan.name.replace(" ", "-").strip("()")
        trial = Trial(plan.name, self.spec(plan), folder, draw, PATIENT if plan.is_whole else HASTY)
        outcome = trial.go(plan.faults)
        if plan.is_whole:
            trial.compare(self.simulated[plan.variant, plan.rounds])
        return outcome

    def run_all(self, chosen: list[Plan], at_once: int) -> None:
        for plan in chosen:
            self.simulate(plan)
        with ThreadPoolExecutor(at_once) as pool:
            futures = {pool.submit(self.run, plan): plan for plan in chosen}
            for done in as_completed(futures):
                outcome = done.result()
                self.outcomes.append(outcome)
                told = ", ".join(f"{name} {count}" for name, count in sorted(outcome.seen.items()) if count)
                say(f"{outcome.name}: {outcome.seconds:.0f} s; {told}; faults: {outcome.faults or 'none'}")
                self.write()

    @property
    def seen(self) -> Counter[str]:
        total: Counter[str] = Counter(deployments=len(self.outcomes))
        for outcome in self.outcomes:
            total += outcome.seen
        return total

    @property
    def faults(self) -> Counter[str]:
        return Counter(kind for outcome in self.outcomes for kind, _ in outcome.faults)

    def write(self) -> None:
        seconds, faults = round(time.monotonic() - self.began), self.faults
        self.results.mkdir(exist_ok=True)
        values = {"command": self.command, "seconds": seconds, "seen": self.seen}
        values["faults"] = {name: faults[name] for name in FAULTS}
        values["details"] = [detail for outcome in self.outcomes for detail in outcome.faults]
        values["deployments"] = {each.name: round(each.seconds) for each in self.outcomes}
        (self.results / "deployment-kills.json").write_text(json.dumps(values, indent=2) + "\n", "utf-8")
        lines = [f"# Deployments under faults\n\n`{self.command}` ({seconds} s)\n"]
        settings = f"data.clients=3 training.epochs={self.epochs}"
        lines += [f"Deployments of {', '.join(VARIANTS.values())} in turn; `{settings}`.\n"]
        lines += ["| what happened | count |", "|---|---|"]
        lines += [f"| {name} | {count} |" for name, count in sorted(self.seen.items())]
        lines += ["", "| fault | count |", "|---|---|"]
        lines += [f"| {name} | {faults[name]} |" for name in FAULTS]
        (self.results / "deployment-kills.md").write_text("\n".join(lines) + "\n", "utf-8")


def _words(value: object) -> str:
    return shlex.join(map(str, value)) if isinstance(value, list) else str(value)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help=f"{KILLS_IN_A_RUN} in each deployment")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="what is killed")
    parser.add_argument("--cuts", type=float, nargs="*", default=[60, 40], help="of the network, in seconds")
    parser.add_argument("--leaves", type=int, default=1, help="deployments with a site that is gone for long")
    parser.add_argument("--rounds", type=int, default=10, help="of each run")
    parser.add_argument("--epochs", type=int, default=60, help="of training, so that kills hit it")
    parser.add_argument("--at-once", type=int, default=3, help="deployments side by side")
    parser.add_argument("--folder", type=Path, help="keep the deployments and their logs in this folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the tables")
    asked = parser.parse_args()
    chosen = plans(asked)
    shown = {name: value for name, value in vars(asked).items() if name not in ("folder", "results", "kinds")}
    words = [f"--{name.replace('_', '-')} {_words(value)}" for name, value in shown.items()]
    words += [] if asked.kinds is KINDS else [f"--kinds {_words(asked.kinds)}"]
    command = " ".join(["python experiments/faults/deployment_kills.py", *words])
    say(f"{len(chosen)} deployments, {asked.at_once} at once")
    with TemporaryDirectory() as folder:
        campaign = Campaign(asked.folder or Path(folder), asked.epochs, asked.seed, command, asked.results)
        campaign.run_all(chosen, asked.at_once)
    print((asked.results / "deployment-kills.md").read_text("utf-8"))
    sys.exit(1 if campaign.faults.total() else 0)


if __name__ == "__main__":
    main()
