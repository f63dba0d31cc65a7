"""The ray engine in turns with the engine of its nodes, and what a round moves in a cluster.

    python benchmarks/ray_cluster.py                 # Ray on this machine: one node with all cores
    python benchmarks/ray_cluster.py --nodes 2       # two nodes on this machine, which share its cores
    python benchmarks/ray_cluster.py --moves         # bytes and seconds of a round on 10 to 1,000 nodes

Rounds of the two engines take turns within one process; a ratio is formed within a turn. Prints Markdown.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from contenders.plans import PLANS
from contenders.turns import in_turns, middle_ratio

from steelyard.engines import Engine, Pool, Ray, Vectorized
from steelyard.server.federation import advance
from steelyard.specs.building import build
from steelyard.specs.schema import load_spec
from steelyard.threads import cores

BESIDE: dict[str, Engine] = {"a": Pool(), "b": Vectorized(), "c": Vectorized()}
MODELS = {"mlp of (c)": 50_890, "ResNet-18": 11_181_642}
"""Parameters."""
CLIENTS = 1000  # in a round
NODES = (10, 100, 1000)
NETWORKS = (10, 25)  # Gbit/s


class Moves(NamedTuple):
    """Bytes that a round moves."""

    node_down: float
    node_up: float
    server_down: float
    server_up: float
    sums_up: float
    """At the server, if nodes sent sums in float64 in place of updates."""


def moves(parameters: int, clients: int, nodes: int) -> Moves:
    """The model goes to each node once; each update comes up."""
    model = 4.0 * parameters
    return Moves(model, clients / nodes * model, nodes * model, clients * model, 2 * nodes * model)


def seconds(size: float, network: float) -> float:
    """To move some bytes over a link of so many Gbit/s."""
    return size * 8 / (network * 1e9)


def table_of_moves() -> None:
    links = [f"{network} Gbit/s, s" for network in NETWORKS]
    sums = [f"sums, {network} Gbit/s, s" for network in NETWORKS]
    head = ("model", "nodes", "a node down", "a node up", "server down", "server up", *links, *sums)
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for name, parameters in MODELS.items():
        for nodes in NODES:
            each = moves(parameters, CLIENTS, nodes)
            cells = [f"{size / 1e6:,.1f} MB" for size in each[:4]]
            cells += [
                f"{seconds(each.server_down, network):.2f} + {seconds(up, network):.2f}"
                for up in (each.server_up, each.sums_up)
                for network in NETWORKS
            ]
            print(f"| {name} | {nodes:,} | " + " | ".join(cells) + " |")


class Rounds:
    """The rounds of a setting with an engine, one at each call."""

    def __init__(self, key: str, engine: Engine, stack: ExitStack) -> None:
        federation = build(load_spec({**PLANS[key].spec, "rounds": 10**5}))
        federation.engine = engine
        self.sites: Any = stack.enter_context(federation.open())
        self.server: Any = federation.server(self.sites)
        self.state = self.server.init()

    def __call__(self) -> None:
        _, self.state = advance(self.server, self.state)


@contextmanager
def cluster(nodes: int) -> Iterator[str | None]:
    """The address of a cluster on this machine; None for one node, which the engine starts itself."""
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        os.environ |= {"RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
        if nodes == 1:
            yield None
            return
        from ray.cluster_utils import Cluster

        each = {"num_cpus": max(1, cores() // nodes)}
        found = Cluster(initialize_head=True, head_node_args={**each, "include_dashboard": False})
        for _ in range(nodes - 1):
            found.add_node(**each)
        try:
            yield found.address
        finally:
            found.shutdown()


def compare(key: str, nodes: int, rounds: int) -> None:
    """Print a row: milliseconds a round, median, and the median of the ratios within turns."""
    with cluster(nodes) as address, ExitStack() as stack:
        start = time.perf_counter()
        ray = Rounds(key, Ray(address=address, node="auto"), stack)
        ray()
        started = time.perf_counter() - start
        beside = Rounds(key, BESIDE[key], stack)
        beside()
        times = in_turns({"beside": beside, "ray": ray}, rounds)
        ms = {name: 1000 * statistics.median(found) for name, found in times.items()}
        ratio = middle_ratio(times["ray"], times["beside"])
        print(
            f"| ({key}) {beside.sites.about} | {ms['beside']:,.1f} | {ray.sites.about} | {ms['ray']:,.1f} "
            f"| {ratio:.2f} × | {started:.1f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(BESIDE), default=list(BESIDE))
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--moves", action="store_true", help="only the arithmetic")
    options = parser.parse_args()
    if options.moves:
        table_of_moves()
        sys.exit()
    print("| beside | ms a round | ray | ms a round | ray / beside | start and first round, s |")
    print("|---|---|---|---|---|---|")
    for key in options.only:
        compare(key, options.nodes, options.rounds)


if __name__ == "__main__":
    main()
