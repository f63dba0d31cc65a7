"""What the live page costs a run, how soon it shows a round, and how long a report takes to write.

    python benchmarks/page.py                  # rounds with and without the page
    python benchmarks/page.py --delay          # seconds until a browser shows a round
    python benchmarks/page.py --report RUN     # seconds and size of a report

The run is setting (e) of `benchmarks/simulation.py`, recorded: ten clients that do nothing, in a pool of two
workers, so that a round takes about as little as a round can. Beside it is the page that no browser has
open; the page with a reader of its events; or the page in Chromium, which draws the heat map on the same
machine. Every two seconds, the page's process is stopped or goes on. A ratio compares a part of the run with
the page with the parts without it just before and after.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

VARIANTS = ("page", "reader", "browser")
LABELS = {
    "page": "not open in any browser",
    "reader": "one reader of its events",
    "browser": "open in Chromium on this machine",
}
CHROMIUM = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-sync",
]
PART_SECONDS = 2.0


class Parts:
    """An observer that stops the page's process and lets it go on, in turn. It times the parts of the run."""

    def __init__(self, process: int, parts: int) -> None:
        self.process, self.parts = process, parts
        self.found: list[float] = []
        """Milliseconds a round of each part."""
        self._begin()

    def _begin(self) -> None:
        self.start, self.rounds = time.perf_counter(), 0

    def __call__(self, round: object) -> None:
        self.rounds += 1
        seconds = time.perf_counter() - self.start
        if seconds < PART_SECONDS:
            return
        self.found.append(1000 * seconds / self.rounds)
        if len(self.found) > self.parts:
            raise KeyboardInterrupt
        os.kill(self.process, signal.SIGSTOP if len(self.found) % 2 else signal.SIGCONT)
        self._begin()


def run_once(variant: str, parts: int, folder: Path) -> list[float]:
    """Milliseconds a round of each part, in this process: first without the page, then with it, in turn."""
    from contenders.plans import PLANS

    from steelyard.engines import Pool
    from steelyard.page.child import PageChild
    from steelyard.runs.writer import Recorder
    from steelyard.specs.building import build
    from steelyard.specs.schema import load_spec

    federation = build(load_spec({**PLANS["e"].spec, "rounds": 10**6}))
    federation.engine = Pool(workers=2)
    path = folder / f"{variant}-{time.time_ns()}"
    recorder = Recorder(path)
    with ExitStack() as stack:
        child = stack.enter_context(PageChild(path))
        stack.callback(child.process.send_signal, signal.SIGCONT)
        viewer = stack.enter_context(look_at(child.url, path.name, variant))
        if viewer is not None:
            viewer.stdout.readline()  # it is connected
        observer = Parts(child.process.pid, parts)
        with suppress(KeyboardInterrupt):
            federation.run(observer, recorder=recorder)
    return observer.found[1:]  # the first part has the start of everything


def ratios(parts: list[float]) -> list[float]:
    """Parts with the page beside the mean of the parts without it before and after."""
    return [
        parts[place] / ((parts[place - 1] + parts[place + 1]) / 2) for place in range(1, len(parts) - 1, 2)
    ]


def look_at(url: str, run: str, variant: str) -> Any:
    """A process that looks at the page of a run."""
    from contextlib import nullcontext

    if variant == "page":
        return nullcontext()
    return _Ended(
        subprocess.Popen(
            [sys.executable, __file__, "--look", variant, f"{url}run/{run}/"],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
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
        answer.raise_for_status()
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
        page.evaluate("setInterval(() => document.getElementById('weights')?.scrollIntoView(), 1000)")
        print("connected", flush=True)
        sys.stdin.read()
        browser.close()


def compare(variants: list[str], parts: int, out: Path | None) -> None:
    table: dict[str, list[float]] = {}
    print("| page | ms a round without it | with it, median (quartiles) |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for variant in variants:
            command = [sys.executable, __file__, "--one", variant, "--parts", str(parts), folder]
            found = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            table[variant] = json.loads(found.stdout)
            low, middle, high = statistics.quantiles(ratios(table[variant]), n=4)
            alone = statistics.median(table[variant][::2])
            print(
                f"| {LABELS[variant]} | {alone:.2f} | {middle:.3f} × ({low:.3f} to {high:.3f}) |", flush=True
            )
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


def time_delay(rounds: int = 20) -> None:
    """Seconds from the end of the transaction that records a round until Chromium shows it."""
    from playwright.sync_api import sync_playwright

    from steelyard.page.child import PageChild
    from steelyard.runs.writer import Recorder
    from steelyard.types import Round

    rows = tuple({"client": f"client-{n}", "status": "used", "weight": 0.1} for n in range(10))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        program = next(path for path in CHROMIUM if Path(path).exists())
        page = playwright.chromium.launch(executable_path=program, args=FLAGS).new_page()
        with Recorder(Path(folder, "run")) as recorder, PageChild(Path(folder, "run")) as child:
            page.goto(child.url)
            page.get_by_text("No round yet").first.wait_for()
            delays = []
            for number in range(1, rounds + 1):
                time.sleep(0.5 + 0.173 * (number % 7))
                recorder(Round(number, {"accuracy": 0.5}, rows, {"evaluate": 0.0}))
                start = time.perf_counter()
                page.get_by_text(f"after {number} round").first.wait_for()
                delays.append(time.perf_counter() - start)
    print(", ".join(f"{delay:.2f}" for delay in delays), file=sys.stderr)
    print(f"{rounds} rounds: median {statistics.median(delays):.2f} s, at most {max(delays):.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--parts", type=int, default=31, help="parts of two seconds for each variant")
    parser.add_argument("--delay", action="store_true", help="time how soon a browser shows a round")
    parser.add_argument("--report", nargs="+", type=Path, help="time the report of these runs")
    parser.add_argument("--out", type=Path, help="write the milliseconds of all parts to this JSON file")
    parser.add_argument("--one", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--look", choices=("reader", "browser"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.look:
        (read_events if chosen.look == "reader" else browse)(chosen.folder[0])
    elif chosen.one:
        print(json.dumps(run_once(chosen.one, chosen.parts, Path(chosen.folder[0]))))
    elif chosen.delay:
        time_delay()
    elif chosen.report:
        time_report(chosen.report)
    else:
        compare(chosen.variants, chosen.parts, chosen.out)


if __name__ == "__main__":
    main()
