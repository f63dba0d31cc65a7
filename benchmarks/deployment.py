"""A round across processes: steelyard's deployment beside Flower's own FedAvg, with the same SuperLink.

    python benchmarks/deployment.py --out benchmarks/results

Both sides have three sites with the same model, data and number of steps, TLS, keys and SuperLink's
database, and run in turns, each pass in processes of its own. "small" is an MLP that trains about 0.1 s, with
evaluation at the sites in every round; "large" is one of 50 million parameters and one step, without
evaluation. Flower's FedAvg starts a process for each message; steelyard keeps its sites in memory, and
evaluates in the same exchange. Writes deployment.json after every pass, and deployment.md at the end.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from flwr.cli.build import build_fab_from_disk
from flwr.common.serde import user_config_to_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.fab_pb2 import Fab

from steelyard.flower import credentials, serving
from steelyard.flower.processes import Child, flower_program, free_port
from steelyard.flower.runtime import Address, Control
from steelyard.flower.trial import make_trial, site_names, try_deployment
from steelyard.runs.reader import Run
from steelyard.specs.schema import load_spec
from steelyard.types import Round

APP = Path(__file__).parent / "contenders" / "flower_fedavg"
SITES = 3
CASES: dict[str, dict[str, Any]] = {
    "small": {"hidden": 256, "steps": 150, "rounds": 6, "evaluate": True},
    "large": {"hidden": 666_660, "steps": 1, "rounds": 4, "evaluate": False},
}
WAIT_SECONDS = 900.0


def steelyard_times(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Seconds from the end of one round's training to the next, and the server's peak memory."""
    spec = load_spec(
        "fedavg",
        {
            "data.clients": SITES,
            "data.partition": "iid",
            "rounds": case["rounds"],
            "model.hidden": case["hidden"],
            "training.steps": case["steps"],
            "training.lr": 0.1,
            "evaluate_every": 1 if case["evaluate"] else case["rounds"],
            "round_seconds": WAIT_SECONDS,
        },
    )
    ends: list[float] = []

    def note(round: Round) -> None:
        ends.append(time.time())

    result = try_deployment(spec, folder, note, log=lambda text: None)
    assert result.path is not None
    seconds = [float(row["exchange"]) + float(row["aggregate"]) for row in _timings(Run(result.path))]
    return {"seconds": seconds, "server_mb": _peak_mb("self")}


def _timings(run: Run) -> list[Any]:
    return [*run.timings][:-1]  # the last exchange only scores


def flower_times(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Seconds between the rounds of Flower's FedAvg."""
    spec = load_spec("fedavg", {"data.clients": SITES})
    trial = make_trial(spec, folder)
    times = folder / "times.json"
    settings = {**case, "times": str(times)}
    with ExitStack() as stack:
        address = stack.enter_context(_superlink(trial))
        for number, name in enumerate(site_names(trial)):
            stack.enter_context(_supernode(trial, number, name, address))
        control = Control(address)
        while sum(node.status == "online" for node in control.nodes()) < SITES:
            time.sleep(0.2)
        fab = Fab(content=build_fab_from_disk(APP))
        control.client.StartRun(StartRunRequest(fab=fab, override_config=user_config_to_proto(settings)))
        end = time.monotonic() + WAIT_SECONDS
        while not times.is_file() or len(json.loads(times.read_text() or "[]")) < case["rounds"] + 2:
            if time.monotonic() > end:
                raise SystemExit(f"Flower's run did not end: see {folder}")
            time.sleep(0.5)
        control.close()
    noted = json.loads(times.read_text())[1:]  # before the first round, and after each one's training
    return {"seconds": [later - earlier for earlier, later in itertools.pairwise(noted)]}


@contextmanager
def _superlink(trial: Path) -> Iterator[Address]:
    deployment = serving.load_deployment(trial, trust=True)
    child = serving._superlink(deployment, trial / "logs")
    place = child.command.index("--isolation")
    del child.command[place : place + 4]  # processes of Flower's own, as a Flower user has them
    child.env |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    address = Address(f"127.0.0.1:{deployment.settings.internal_port}", trial / "server" / credentials.CA)
    with child:
        end = time.monotonic() + 60
        while True:
            try:
                control = Control(address)
                for site, key in deployment.admitted().items():
                    control.register(site, key)
                control.close()
                break
            except httpx.HTTPError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
        yield address


def _supernode(trial: Path, number: int, name: str, address: Address) -> Child:
    home = trial / f"{name}-site"
    command = [
        *(flower_program("flower-supernode"), "--superlink", f"localhost:{address.place.rpartition(':')[2]}"),
        *("--root-certificates", home / credentials.CA),
        *("--auth-supernode-private-key", home / f"{name}.key"),
        *("--host", "127.0.0.1", "--port", str(free_port()), "--node-config", f"site={number}"),
    ]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return Child(name, command, home / "node.log", {"FLWR_HOME": str(home / "flower"), "PATH": path})


def _peak_mb(process: str) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def report(found: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    lines = [
        "| | Flower's FedAvg, s a round | steelyard, s a round | ratio | passes |",
        "|---|---|---|---|---|",
    ]
    for name, sides in found.items():
        medians = {
            side: statistics.median(itertools.chain(*(each["seconds"] for each in passes)))
            for side, passes in sides.items()
            if passes
        }
        if len(medians) < 2:
            continue
        ratio = medians["steelyard"] / medians["flower"]
        count = min(len(passes) for passes in sides.values())
        lines.append(
            f"| {name} | {medians['flower']:.2f} | {medians['steelyard']:.2f} | **{ratio:.2f} ×** | {count} |"
        )
    return "\n".join(lines) + "\n"


SIDES = {"flower": flower_times, "steelyard": steelyard_times}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    found: dict[str, dict[str, list[dict[str, Any]]]] = {
        case: {"flower": [], "steelyard": []} for case in options.cases
    }
    for number in range(options.passes):
        for case, (side, measure) in itertools.product(options.cases, SIDES.items()):
            if side not in options.sides:
                continue
            with tempfile.TemporaryDirectory() as folder:
                result = measure(CASES[case], Path(folder) / side)
            found[case][side].append(result)
            print(
                f"pass {number + 1}, {case}, {side}: {[round(each, 2) for each in result['seconds']]}",
                flush=True,
            )
            options.out.mkdir(exist_ok=True)
            (options.out / "deployment.json").write_text(json.dumps(found, indent=1) + "\n")
    (options.out / "deployment.md").write_text(report(found))
    print(report(found))


if __name__ == "__main__":
    main()
