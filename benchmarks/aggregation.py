"""Time of every weighing rule, compared with one Gram matrix and one weighted mean of the same updates.

    python benchmarks/aggregation.py                 # every rule and shape, ByzFL, an 8 GB file; ten minutes
    python benchmarks/aggregation.py --quick         # small shapes and a small file; a few minutes
    python benchmarks/aggregation.py --rules ivar-vb krum --no-peers --no-file

Each repetition times the Gram matrix, the weighted mean ("mix"), and the remaining work of every rule. A
rule's time is their sum; ratios are taken within a repetition. ByzFL is downloaded on first use. Results are
written to benchmarks/results/aggregation.md and .json as they come in.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from contenders.aggregation_report import markdown
from contenders.peers import UnavailableError, folder_of
from contenders.plans import peak
from contenders.report import machine
from contenders.rule_times import baseline, naive_ivar, time_rules
from contenders.turns import spoil, updates

from steelyard import components

HERE = Path(__file__).parent
SHAPES = [(clients, size) for size in (10**5, 10**6, 10**7) for clients in (20, 100, 500)]
QUICK = [(20, 10**5), (100, 10**5), (20, 10**6)]
MAX_BYTES = 4e9
LONG = 2e10  # J²K; from here on, fewer repetitions
FILE_RULE = "ivar-vb"


def time_shape(clients: int, size: int, rules: list[str]) -> Iterator[dict[str, Any]]:
    """Time every rule on clean updates, then on the same updates with outliers."""
    rows = updates(clients, size)
    baseline(rows)
    repetitions = 3 if clients**2 * size >= LONG else 7
    built = {name: components.build("weighing", {"name": name}) for name in rules}
    for scene in ("clean", "outliers"):
        rows = spoil(rows) if scene == "outliers" else rows
        for name, result in time_rules(rows, built, repetitions):
            note(f"  {scene}, {name}: {1000 * result['whole']:.0f} ms, {result['ratio']:.2f} × Gram + mix")
            yield {"clients": clients, "size": size, "scene": scene, "rule": name, **result}


def call(module: str, *arguments: object) -> Iterator[dict[str, Any]]:
    """Run a program of `contenders/`; yields the JSON lines that it prints."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "src")])}
    command = [sys.executable, "-m", f"contenders.{module}", *map(str, arguments)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        raise UnavailableError(f"{module} ended with {process.returncode}")


def time_file(clients: int, size: int) -> dict[str, Any]:
    """Write a file of updates, then weigh and combine it in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        if shutil.disk_usage(folder).free < 1.2 * 4 * clients * size:
            raise UnavailableError("the disk is too full")
        path, random = Path(folder) / "updates", np.random.default_rng(0)
        common = random.standard_normal(size, dtype=np.float32)
        with path.open("wb") as file:
            for _ in range(clients):
                file.write(common + random.standard_normal(size, dtype=np.float32))
        [times] = call("mapped_file", path, clients, size, FILE_RULE)
        return {"clients": clients, "size": size, "rule": FILE_RULE, "bytes": path.stat().st_size, **times}


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    rules = list(components.names("weighing"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rules", nargs="+", choices=rules, default=rules)
    parser.add_argument("--no-peers", action="store_true", help="skip ByzFL and the naive loop")
    parser.add_argument("--no-file", action="store_true", help="skip the memory-mapped file")
    parser.add_argument("--venvs", type=Path, default=HERE / ".venvs", help="folder to install ByzFL in")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    found: dict[str, Any] = {"header": machine(), "quick": options.quick, "rules": [], "notes": []}

    def save() -> None:
        options.results.mkdir(parents=True, exist_ok=True)
        (options.results / "aggregation.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        (options.results / "aggregation.md").write_text(markdown(found), "utf-8")

    def skip(text: str) -> None:
        found["notes"].append(text)
        note(text)

    found["peak"] = peak()
    for clients, size in QUICK if options.quick else SHAPES:
        note(f"J = {clients}, K = {size:,}")
        if 4 * clients * size > MAX_BYTES:
            skip(f"J = {clients}, K = {size:,} is skipped: {4 * clients * size / 1e9:.0f} GB.")
            continue
        for result in time_shape(clients, size, options.rules):
            found["rules"].append(result)
            save()
        found["peak"] = max(found["peak"], peak())  # the machine may have been busy before
    shape = (20, 10**5) if options.quick else (100, 10**6)
    if not options.no_peers:
        found["naive"] = naive_ivar(*shape)
        found["peers"] = {"clients": shape[0], "size": shape[1], "rules": []}
        try:
            for times in call("byzfl_rules", folder_of("byzfl", options.venvs), *shape, 5):
                note(f"  ByzFL, {times['rule']}: steelyard is {times['faster']:.1f} × as fast")
                found["peers"]["rules"].append(times)
                save()
        except UnavailableError as error:
            skip(f"ByzFL is skipped: {error}.")
    if not options.no_file:
        note("the memory-mapped file")
        try:
            found["file"] = time_file(*((50, 10**6) if options.quick else (200, 10**7)))
        except UnavailableError as error:
            skip(f"The file is skipped: {error}.")
    save()
    print(markdown(found))


if __name__ == "__main__":
    main()
