"""What the live page costs a run, and how long a report takes to write.

    python benchmarks/page.py                  # rounds with and without the page
    python benchmarks/page.py --report RUN     # seconds and size of a report

The run is setting (e) of `benchmarks/simulation.py`, recorded: ten clients that do nothing, in a pool of two
workers, so that a round takes about as little as a round can. It runs alone; beside the page that nobody has
open; with a reader of the page's events; and with the page open in Chromium, which draws on the same
machine. Every variant is a process of its own. They take turns, and ratios are taken within a pass.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

VARIANTS = ("alone", "page", "reader", "browser")
LABELS = {
    "alone": "recorded, no page",
    "page": "page, nobody looks",
    "reader": "page, one reader of its events",
    "browser": "page, open in Chromium on this machine",
}
CHROMIUM = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-sync",
]


def run_once(variant: str, rounds: int, folder: Path) -> list[float]:
    """Seconds of each round, in this process."""
    import torch

    import steelyard as sy
    from steelyard.engines import Pool
    from steelyard.page.child import PageChild

    data = (torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))
    clients = {f"client-{number}": data for number in range(10)}
    algorithm = sy.Algorithm(training=sy.Training(steps=0))
    federation = sy.Federation(
        clients, torch.nn.Linear(3, 2), algorithm, rounds=rounds, engine=Pool(workers=2)
    )
    path = folder / f"{variant}-{time.time_ns()}"
    recorder, times = sy.Recorder(path), [time.perf_counter()]
    with ExitStack() as stack:
        if variant != "alone":
            child = stack.enter_context(PageChild(path))
            viewer = stack.enter_context(look_at(child.url, variant))
            if viewer is not None:
                viewer.stdout.readline()  # it is connected
        federation.run(lambda round: times.append(time.perf_counter()), recorder=recorder)
    return [after - before for before, after in itertools.pairwise(times[100:])]


def look_at(url: str, variant: str) -> Any:
    """A process that looks at a page."""
    from contextlib import nullcontext

    if variant == "page":
        return nullcontext()
    return _Ended(
        subprocess.Popen(
            [sys.executable, __file__, "--look", variant, url], stdout=subprocess.PIPE, stdin=subprocess.PIPE
        )
    )


class _Ended:
    """A process that is ended with the block."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process

    def __enter__(self) -> "subprocess.Popen[bytes]":
        return self.process

    def __exit__(self, *error: object) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait(20)


def read_events(url: str) -> None:
    """Read the events of a page until standard input ends."""
    import threading

    import httpx

    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    with httpx.stream("GET", f"{url}events", timeout=None) as answer:
        for number, _ in enumerate(answer.iter_lines()):
            if number == 0:
                print("connected", flush=True)


def browse(url: str) -> None:
    """Have a page open until standard input ends."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        program = next(path for path in CHROMIUM if Path(path).exists())
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(url)
        page.wait_for_selector("h1")
        print("connected", flush=True)
        sys.stdin.read()
        browser.close()


def compare(passes: int, rounds: int, out: Path | None) -> None:
    table: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(passes):
            order = VARIANTS if number % 2 == 0 else VARIANTS[::-1]
            row = {}
            for variant in order:
                command = [sys.executable, __file__, "--one", variant, "--rounds", str(rounds), folder]
                found = subprocess.run(command, check=True, stdout=subprocess.PIPE)
                row[variant] = 1000 * statistics.mean(json.loads(found.stdout))
            table.append(row)
            print({name: round(ms, 3) for name, ms in row.items()}, file=sys.stderr, flush=True)
    print("| | ms a round, mean | beside no page, median of passes (smallest to largest) |\n|---|---|---|")
    for variant in VARIANTS:
        ratios = sorted(row[variant] / row["alone"] for row in table)
        ms = statistics.median(row[variant] for row in table)
        spread = f"{statistics.median(ratios):.3f} × ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        print(f"| {LABELS[variant]} | {ms:.2f} | {spread} |")
    if out is not None:
        out.write_text(json.dumps(table, indent=1) + "\n")


def time_report(runs: list[Path]) -> None:
    """Seconds of three reports, each written by a new process, and the size of the file."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "report.html")
        for _ in range(3):
            start = time.perf_counter()
            program = Path(sys.executable).with_name("steelyard")
            subprocess.run([program, "report", *runs, "--out", target], check=True, stdout=subprocess.DEVNULL)
            print(f"{time.perf_counter() - start:.2f} s, {target.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--passes", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--report", nargs="+", type=Path, help="time the report of these runs")
    parser.add_argument("--out", type=Path, help="write the milliseconds of all passes to this JSON file")
    parser.add_argument("--one", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--look", choices=("reader", "browser"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.look:
        (read_events if chosen.look == "reader" else browse)(chosen.folder[0])
    elif chosen.one:
        print(json.dumps(run_once(chosen.one, chosen.rounds, Path(chosen.folder[0]))))
    elif chosen.report:
        time_report(chosen.report)
    else:
        compare(chosen.passes, chosen.rounds, chosen.out)


if __name__ == "__main__":
    main()
