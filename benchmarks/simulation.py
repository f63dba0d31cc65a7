"""Simulation speed of steelyard's engines, a hand-written PyTorch loop, Flower and pfl.

    python benchmarks/simulation.py                     # every setting and contender, three passes
    python benchmarks/simulation.py --only a e --contenders loop pool flower --passes 1 --json raw.json

All contenders get the same data, initial model, clients, batches and evaluation of the whole test set after
each round. Each runs in its own process (`contenders/`). They take turns in each pass, so that other load on
the machine slows all of them equally. The first round is not timed. Flower and pfl are installed on first
use, each in its own virtual environment. Prints Markdown on standard output and progress on standard error.
The last full result is in benchmarks/README.md.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from contenders.peers import QUIET, UnavailableError, python_of
from contenders.plans import PLANS, peak, prepare
from contenders.process import adopt_orphans, run
from contenders.report import ENGINES, Results, header, middle, milliseconds, report, table
from contenders.setting import Setting

from steelyard import components

HERE = Path(__file__).parent
PROGRAMS = {"loop": "loop", "flower": "flower_simulation", "pfl": "pfl_simulation"}
CONTENDERS = ("loop", *ENGINES, "flower", "pfl")
ENOUGH = 20.0  # seconds of timed rounds after which a contender is stopped


class Job(NamedTuple):
    """A contender in a setting."""

    label: str
    command: list[str]
    rounds: int


def engine_job(label: str, setting: Setting, **choice: Any) -> Job:
    command = [sys.executable, "-m", "contenders.steelyard_engine", str(setting.folder), json.dumps(choice)]
    return Job(label, command, len(setting.cohorts))


def job_for(contender: str, setting: Setting, venvs: Path) -> Job:
    """A contender in a setting; raises UnavailableError with the reason if it cannot run."""
    if contender in ENGINES:
        try:
            components.build("engines", {"name": contender})
        except Exception as error:  # its optional dependency is not installed
            raise UnavailableError(str(error)) from error
        return engine_job(contender, setting, name=contender)
    python = sys.executable if contender == "loop" else python_of(contender, venvs)
    command = [python, "-m", f"contenders.{PROGRAMS[contender]}", str(setting.folder)]
    return Job(contender, command, len(setting.cohorts))


def compare(jobs: Sequence[Job], passes: int, limit: float, memory: bool = True) -> Results:
    """Run the jobs in turn in each pass, then once more to measure memory; failed jobs are not run again."""
    env = {**QUIET, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "src")])}
    results: Results = {job.label: [] for job in jobs}
    for number in range(1, passes + 1 + memory):
        measuring = number > passes
        for job in jobs:
            before = results[job.label]
            if before and before[-1].problem:
                continue
            start = time.perf_counter()
            outcome = run(job.command, env, job.rounds, limit=limit, enough=ENOUGH, memory=measuring)
            if measuring:
                before[0].megabytes = None if outcome.problem else outcome.megabytes
            else:
                before.append(outcome)
            what = "memory" if measuring else f"pass {number}"
            took = f"{time.perf_counter() - start:.1f} s, {outcome.others:.0%} of the machine busy otherwise"
            note(f"  {job.label}, {what}: {outcome.problem or took}")
    return results


def doubling(folder: Path, passes: int, limit: float) -> Results:
    """The pool in (a) with 4, 8 and 16 of the 20 clients in a round, without the evaluation."""
    jobs = []
    for count in (4, 8, 16):
        spec = {**PLANS["a"].spec, "clients_per_round": count, "evaluate_every": 10**6}
        setting = prepare(PLANS["a"]._replace(spec=spec), folder / f"a{count}")
        jobs.append(engine_job(str(count), setting, name="pool"))
    results = compare(jobs, passes, limit, memory=False)
    cells = {count: milliseconds("", outcomes) for count, outcomes in results.items()}
    for count, twice in (("4", "8"), ("8", "16")):
        before, after = middle(results[count]), middle(results[twice])
        if before and after:
            cells[f"{count} → {twice}"] = f"{after / before:.2f} ×"
    table(
        "More clients a round: the pool in (a) without evaluation, milliseconds a round",
        {"clients a round": cells},
    )
    return results


def workers(settings: Mapping[str, Setting], passes: int, limit: float) -> dict[str, Results]:
    """The pool with one worker and with two."""
    rows, found = {}, {}
    for key, setting in settings.items():
        jobs = [engine_job(str(count), setting, name="pool", workers=count) for count in (1, 2)]
        found[key] = results = compare(jobs, passes, limit, memory=False)
        one, two = middle(results["1"]), middle(results["2"])
        cells = {
            f"{count} worker{'s' * (count == '2')}": milliseconds("", outcomes)
            for count, outcomes in results.items()
        }
        rows[f"({key})"] = {**cells, "faster by": f"{one / two:.2f} ×" if one and two else "–"}
    table("Workers of the pool, milliseconds a round", rows)
    return found


def save(path: Path | None, **raw: Any) -> None:
    """Write the raw numbers so far."""
    if path is not None:
        path.write_text(json.dumps(raw, indent=1, default=asdict) + "\n", "utf-8")


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(PLANS), default=list(PLANS))
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--limit", type=float, default=180, help="seconds for a contender in a setting")
    parser.add_argument("--json", type=Path, help="a file for the raw numbers")
    parser.add_argument(
        "--venvs", type=Path, default=HERE / ".venvs", help="folder of Flower's and pfl's venvs"
    )
    return parser.parse_args()


def main() -> None:
    options = arguments()
    adopt_orphans()
    speed = peak()
    found: dict[str, Results] = {}
    settings: dict[str, Setting] = {}
    skipped: dict[str, str] = {}
    more: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for key in options.only:
            note(f"({key}) {PLANS[key].title}")
            settings[key] = prepare(PLANS[key], folder / key)
            speed = max(speed, peak())  # the machine may have been busy before
            jobs = []
            for contender in [name for name in options.contenders if name not in skipped]:
                try:
                    jobs.append(job_for(contender, settings[key], options.venvs))
                except UnavailableError as error:
                    skipped[contender] = str(error)
                    note(f"  {contender} is skipped: {error}")
            found[key] = compare(jobs, options.passes, options.limit)
            save(options.json, header=header(found), peak=speed, settings=found)
        print(header(found))
        report(found, settings, speed)
        for contender, reason in skipped.items():
            print(f"\n* {contender} is skipped: {reason}")
        if "pool" in options.contenders and "a" in settings:
            note("the pool in (a) with 4, 8 and 16 clients a round")
            more["doubling"] = doubling(folder, options.passes, options.limit)
        if "pool" in options.contenders and (few := {key: settings[key] for key in "ad" if key in settings}):
            note("the pool with 1 and 2 workers")
            more["workers"] = workers(few, options.passes, options.limit)
    save(options.json, header=header(found), peak=speed, settings=found, **more)


if __name__ == "__main__":
    main()
