"""Two versions of steelyard in turns: is the second as fast as the first?

    git worktree add ../before COMMIT
    python benchmarks/versions.py ../before . --only a b e s --passes 5

Each version runs as a process of its own from its own checkout, on the same settings as
`benchmarks/simulation.py`, one right after the other in each pass. The first round is not timed. A ratio is
formed within a pass, and the table shows the median over the passes.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from contenders.peers import QUIET
from contenders.plans import PLANS, Plan, prepare
from contenders.process import adopt_orphans, run
from contenders.setting import Setting

ENGINES = {"b": "auto", "c": "auto"}  # in all other settings the pool
MORE = {
    "s": Plan(
        "1,000 clients scored on test sets of their own, no training",
        {
            "data": {"clients": 1000, "partition": "iid", "shift": "rotation"},
            "clients_per_round": 2,
            "model": "logistic",
            "training": {"steps": 0},
        },
        5,
    )
}


def milliseconds(checkout: Path, setting: Setting, engine: str, limit: float) -> float:
    """The median round of one process."""
    command = [sys.executable, "-m", "contenders.steelyard_engine", str(setting.folder)]
    paths = os.pathsep.join(str(checkout.resolve() / part) for part in ("benchmarks", "src"))
    rounds = len(setting.cohorts)
    outcome = run(
        [*command, json.dumps({"name": engine})],
        {**QUIET, "PYTHONPATH": paths},
        rounds,
        limit=limit,
        enough=1e9,
    )
    if outcome.problem:
        raise SystemExit(f"{checkout}: {outcome.problem}")
    return 1000 * statistics.median(outcome.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="a checkout of the first version")
    parser.add_argument("after", type=Path, help="a checkout of the second version")
    plans = PLANS | MORE
    parser.add_argument("--only", nargs="+", choices=list(plans), default=["a", "b", "e", "s"])
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--rounds", type=int, help="timed rounds in a process, in place of the plan's")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a process")
    chosen = parser.parse_args()
    adopt_orphans()
    print("| | before, ms | after, ms | after / before |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for key in chosen.only:
            plan = plans[key]._replace(rounds=chosen.rounds or plans[key].rounds)
            setting = prepare(plan, Path(folder) / key)
            pairs = []
            for _ in range(chosen.passes):
                versions = (chosen.before, chosen.after)
                pairs.append(
                    [milliseconds(each, setting, ENGINES.get(key, "pool"), chosen.limit) for each in versions]
                )
                print(f"({key}) " + ", ".join(f"{ms:.2f}" for ms in pairs[-1]), file=sys.stderr, flush=True)
            before, after = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratio = statistics.median(second / first for first, second in pairs)
            print(f"| ({key}) {plan.title} | {before:.2f} | {after:.2f} | {ratio:.3f} × |", flush=True)


if __name__ == "__main__":
    main()
