"""Simulation speed of steelyard's engines, a hand-written PyTorch loop, Flower, pfl, BlazeFL and fluke.

    python benchmarks/simulation.py                     # every setting and contender, three passes
    python benchmarks/simulation.py --only a e --contenders loop pool flower --passes 1
    python benchmarks/simulation.py --report            # only the tables of what was measured so far

All contenders get the same data, initial model, clients, batches and evaluation of the whole test set after
each round. Each runs in its own process (`contenders/`). They take turns in each pass, so that other load on
the machine slows all of them equally. The first round is not timed. Other frameworks are installed on first
use, each in its own virtual environment.

Each setting is a file of JSON in `results/simulation/`, named after the setting and, where not all contenders
ran, after those that did; it is written after every process. `results/simulation.md` has all tables.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contenders.peers import QUIET, UnavailableError, python_of
from contenders.plans import PLANS, flops, peak, prepare
from contenders.process import adopt_orphans, run
from contenders.report import ENGINES, EXTRAS, machine, markdown
from contenders.setting import Setting
from contenders.slices import Slice, file_for, passed, read_all

from steelyard import components

HERE = Path(__file__).parent
PROGRAMS = {
    "loop": ["loop"],
    "flower": ["flower_simulation"],
    "pfl": ["pfl_simulation"],
    "blazefl": ["blazefl_simulation"],
    "blazefl-threads": ["blazefl_simulation", "threads"],
    "fluke": ["fluke_simulation"],
}
CONTENDERS = ("loop", *ENGINES, *(name for name in PROGRAMS if name != "loop"))
MORE = {"ray": {"node": "auto"}}  # nodes train clients together where `auto` does
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
        return engine_job(contender, setting, name=contender, **MORE.get(contender, {}))
    program, *more = PROGRAMS[contender]
    python = sys.executable if contender == "loop" else python_of(contender.partition("-")[0], venvs)
    command = [python, "-m", f"contenders.{program}", str(setting.folder), *more]
    return Job(contender, command, len(setting.cohorts))


def compare(
    jobs: Sequence[Job], found: Slice, passes: int, limit: float, memory: bool, keep: Callable[[], None]
) -> None:
    """Run the jobs in turn in each pass, then once more to measure memory; failed jobs are not run again."""
    env = {**QUIET, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "src")])}
    for number in range(1, passes + 1 + memory):
        measuring = number > passes
        for job in jobs:
            before = found.results.get(job.label, [])
            if before and before[-1].problem:
                continue
            start = time.perf_counter()
            outcome = run(job.command, env, job.rounds, limit=limit, enough=ENOUGH, memory=measuring)
            if measuring:
                before[0].megabytes = None if outcome.problem else outcome.megabytes
            else:
                found.results[job.label] = [*before, passed(outcome)]
                found.versions |= outcome.versions
            what = "memory" if measuring else f"pass {number}"
            took = f"{time.perf_counter() - start:.1f} s, {outcome.others:.0%} of the machine busy otherwise"
            note(f"  {job.label}, {what}: {outcome.problem or took}")
            keep()


def doubling(folder: Path) -> list[Job]:
    """The pool in (a) with 4, 8 and 16 of the 20 clients in a round, without the evaluation."""
    jobs = []
    for count in (4, 8, 16):
        spec = {**PLANS["a"].spec, "clients_per_round": count, "evaluate_every": 10**6}
        setting = prepare(PLANS["a"]._replace(spec=spec), folder / f"a{count}")
        jobs.append(engine_job(str(count), setting, name="pool"))
    return jobs


def workers(folder: Path) -> list[Job]:
    """The pool with one worker and with two."""
    settings = {key: prepare(PLANS[key], folder / f"{key}-workers") for key in "ad"}
    return [
        engine_job(f"{key} {count}", setting, name="pool", workers=count)
        for key, setting in settings.items()
        for count in (1, 2)
    ]


MORE: Mapping[str, Callable[[Path], list[Job]]] = {"doubling": doubling, "workers": workers}


def jobs_for(contenders: Sequence[str], setting: Setting, venvs: Path, skipped: dict[str, str]) -> list[Job]:
    """The contenders that can run; `skipped` gets the others, with the reason."""
    jobs = []
    for contender in contenders:
        try:
            if contender not in skipped:
                jobs.append(job_for(contender, setting, venvs))
        except UnavailableError as error:
            skipped[contender] = str(error)
            note(f"  {contender} is skipped: {error}")
    return jobs


def measure(
    key: str, contenders: Sequence[str], options: argparse.Namespace, folder: Path, skipped: dict[str, str]
) -> None:
    """Measure a setting, and write its slice and all tables after each process."""
    note(f"({key})")
    if key in MORE:
        found, jobs = Slice(key, key, machine(), peak(), 0.0), MORE[key](folder)
        path = file_for(options.results, key, CONTENDERS, CONTENDERS)
    else:
        setting = prepare(PLANS[key], folder / key)
        found = Slice(key, PLANS[key].title, machine(), peak(), flops(setting))
        jobs = jobs_for(contenders, setting, options.venvs, skipped)
        found.skipped = {name: skipped[name] for name in contenders if name in skipped}
        path = file_for(options.results, key, contenders, CONTENDERS)

    def keep() -> None:
        found.write(path)
        write_report(options.results)

    compare(jobs, found, options.passes, options.limit, options.memory and key in PLANS, keep)


def write_report(results: Path) -> str:
    """Write the tables of all slices beside their folder."""
    text = markdown(read_all(results), CONTENDERS)
    results.with_suffix(".md").write_text(text, "utf-8")
    return text


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    settings = [*PLANS, *EXTRAS]
    parser.add_argument("--only", nargs="+", choices=settings, default=settings, help="the settings")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--limit", type=float, default=180, help="seconds for a contender in a setting")
    parser.add_argument(
        "--memory", action=argparse.BooleanOptionalAction, default=True, help="measure memory"
    )
    parser.add_argument("--report", action="store_true", help="measure nothing, write the tables")
    parser.add_argument(
        "--results", type=Path, default=HERE / "results" / "simulation", help="folder of JSON"
    )
    parser.add_argument("--venvs", type=Path, default=HERE / ".venvs", help="folder of the frameworks' venvs")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    skipped: dict[str, str] = {}
    if not options.report:
        adopt_orphans()
        with tempfile.TemporaryDirectory() as folder:
            for key in options.only:
                measure(key, options.contenders, options, Path(folder), skipped)
    print(write_report(options.results))


if __name__ == "__main__":
    main()
