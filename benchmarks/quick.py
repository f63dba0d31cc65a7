"""Is steelyard still as fast? Ratios of its engines to a hand-written loop, beside those that are recorded.

    python benchmarks/quick.py             # three passes, two to three minutes on two cores
    python benchmarks/quick.py --record    # also make them the ratios to compare with, in results/quick.json

The loop and the engine are processes of their own, one right after the other in each pass; a ratio is formed
within a pass, and the median over the passes counts. The first round is not timed. The loop uses all cores
by threads and collapses when other programs run, which makes steelyard look faster: only ratios of a quiet
machine are worth comparing or recording, so the program also says how busy the machine was.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contenders.peers import QUIET
from contenders.plans import PLANS, prepare
from contenders.process import adopt_orphans, run
from contenders.report import machine
from contenders.setting import Setting

HERE = Path(__file__).parent
RECORDED = HERE / "results" / "quick.json"
FALL = 0.9  # of the recorded ratio: less than this is reported
BUSY = 0.1  # share of the machine: more than this, used by other programs, makes ratios useless
ENGINES = {"a": "pool", "b": "vectorized", "c": "vectorized", "e": "pool"}
ROUNDS = {"a": 3, "b": 10, "c": 2, "e": 60}  # timed
LIMIT = 120.0  # seconds for a process


def measure(setting: Setting, engine: str) -> dict[str, float]:
    """The loop, then the engine: milliseconds of a median round, and how busy other programs were."""
    programs = {"loop": ["loop"], "engine": ["steelyard_engine", json.dumps({"name": engine})]}
    env = {**QUIET, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "src")])}
    found, others = {}, []
    for name, (program, *more) in programs.items():
        command = [sys.executable, "-m", f"contenders.{program}", str(setting.folder), *more]
        outcome = run(command, env, len(setting.cohorts), limit=LIMIT, enough=15.0)
        if outcome.problem:
            raise SystemExit(f"{name}: {outcome.problem}")
        found[name] = 1000 * statistics.median(outcome.seconds)
        others.append(outcome.others)
    return {**found, "others": max(others)}


def summary(engine: str, passes: list[dict[str, float]]) -> dict[str, Any]:
    """The medians over the passes."""
    return {
        "engine": engine,
        "loop_ms": round(statistics.median(one["loop"] for one in passes), 3),
        "engine_ms": round(statistics.median(one["engine"] for one in passes), 3),
        "ratio": round(statistics.median(one["loop"] / one["engine"] for one in passes), 3),
        "ratios": [round(one["loop"] / one["engine"], 3) for one in passes],
        "others": round(statistics.median(one["others"] for one in passes), 3),
    }


def fell(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> bool:
    return before is not None and now["ratio"] < FALL * before["ratio"]


def row(key: str, now: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    """A line of the table."""
    recorded, change = "–", "–"
    if before is not None:
        recorded, change = f"{before['ratio']:.2f}", f"{now['ratio'] / before['ratio'] - 1:+.0%}"
    cells = [
        f"({key}) {PLANS[key].title}",
        now["engine"],
        f"{now['loop_ms']:,.1f}",
        f"{now['engine_ms']:,.1f}",
        f"{now['ratio']:.2f} ({min(now['ratios']):.2f} to {max(now['ratios']):.2f})",
        recorded,
        change + (" **fell**" if fell(now, before) else ""),
        f"{now['others']:.0%}",
    ]
    return f"| {' | '.join(cells)} |"


def verdict(found: Mapping[str, Mapping[str, Any]], recorded: Mapping[str, Mapping[str, Any]]) -> str:
    """What the table says, in a sentence or two."""
    down = [f"({key})" for key, now in found.items() if fell(now, recorded.get(key))]
    new = [f"({key})" for key in found if key not in recorded]
    busy = max(now["others"] for now in found.values())
    lines = [f"Fell by more than 10 %: {', '.join(down)}." if down else "Nothing fell by more than 10 %."]
    if new:
        lines.append(f"Nothing is recorded for {', '.join(new)}.")
    if busy > BUSY:
        lines.append(f"Other programs used up to {busy:.0%} of the machine: run again when it is quiet.")
    return " ".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="keep these ratios in results/quick.json")
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 if a ratio fell by more than 10 %%"
    )
    return parser.parse_args()


def main() -> None:
    options = arguments()
    adopt_orphans()
    old: dict[str, Any] = json.loads(RECORDED.read_text("utf-8")) if RECORDED.is_file() else {}
    recorded = old.get("settings", {})
    passes: dict[str, list[dict[str, float]]] = {key: [] for key in options.only}
    with tempfile.TemporaryDirectory() as name:
        plans = {key: PLANS[key]._replace(rounds=ROUNDS[key]) for key in options.only}
        settings = {key: prepare(plan, Path(name) / key) for key, plan in plans.items()}
        for number in range(1, options.passes + 1):
            for key, setting in settings.items():
                passes[key].append(measure(setting, ENGINES[key]))
                one = passes[key][-1]
                text = f"pass {number} of ({key}): {one['loop'] / one['engine']:.2f} × the loop"
                print(text, file=sys.stderr, flush=True)
    found = {key: summary(ENGINES[key], each) for key, each in passes.items()}
    print(f"{machine()}; recorded: {old.get('machine', 'nothing')}\n")
    print("| | engine | loop, ms | steelyard, ms | times as fast | recorded | change | others |")
    print("|---|---|---|---|---|---|---|---|")
    for key, now in found.items():
        print(row(key, now, recorded.get(key)))
    print(f"\n{verdict(found, recorded)}")
    if options.record:
        kept = {"machine": machine(), "settings": {**recorded, **found}}
        RECORDED.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    if options.strict and any(fell(now, recorded.get(key)) for key, now in found.items()):
        sys.exit(1)


if __name__ == "__main__":
    main()
