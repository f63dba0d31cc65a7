"""Many fuzzed answers through the server and the recorder.

    python experiments/faults/fuzz.py --answers 1000000

Rounds have 60 honest clients and 100 hostile ones, whose answers are malformed at random in one to three
places (tests/server/fuzzed_answers.py). The same rounds are run without the hostile clients, and the records
are compared. Rules of weighing and what travels (a model, a posterior) take turns. Writes results/fuzz.md and
.json.
"""

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "server"))

from fuzzed_runs import Findings, fuzz  # noqa: E402

from steelyard import components  # noqa: E402

RESULTS = Path(__file__).parent / "results"
ROUNDS = 250  # of one run, with 100 fuzzed answers each
RULES = ("samples", "majority", "geometric-median", "multi-krum", "consensus", "ivar-vb")
CASES = list(itertools.product(RULES, (False, True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    totals: dict[str, list[int]] = {}
    start, done = time.perf_counter(), 0
    for seed, (rule, posterior) in enumerate(itertools.cycle(CASES), start=arguments.seed):
        if done >= arguments.answers:
            break
        with TemporaryDirectory() as folder:
            weigher = components.build("weighing", {"name": rule})
            found = fuzz(Path(folder), ROUNDS, posterior, seed, weighing=weigher)
        key = f"{rule} | {'posterior' if posterior else 'model'}"
        totals[key] = [sum(pair) for pair in zip(totals.get(key, [0] * len(found)), found, strict=True)]
        done += found.answers
        print(f"{done:,} answers", file=sys.stderr)
    write(totals, arguments.answers, arguments.seed, time.perf_counter() - start)


def write(totals: dict[str, list[int]], answers: int, seed: int, seconds: float) -> None:
    command = f"python experiments/faults/fuzz.py --answers {answers} --seed {seed}"
    everything = [sum(column) for column in zip(*totals.values(), strict=True)]
    names = [name.replace("_", " ") for name in Findings._fields]
    lines = [f"| weighing | travels | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    rows = {**totals, "all | ": everything}
    lines += [f"| {key} | {' | '.join(f'{value:,}' for value in row)} |" for key, row in rows.items()]
    text = "\n".join([f"`{command}`: {seconds:.0f} s on one core.", "", *lines, ""])
    values = {key: dict(zip(Findings._fields, row, strict=True)) for key, row in totals.items()}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "fuzz.json").write_text(
        json.dumps({"command": command, "seconds": round(seconds), "runs": values}, indent=1) + "\n", "utf-8"
    )
    (RESULTS / "fuzz.md").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
