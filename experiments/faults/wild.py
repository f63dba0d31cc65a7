"""How far wild clients move the model, for every weighing rule and combiner.

    python experiments/faults/wild.py

Ten clients, of which one to three send updates of 10 to 1e29 honest lengths: random directions, one common
direction, or the reversed honest mean. Each round goes through the server as in a run (`Aggregator`), three
rounds in a row, once with the default screen of lengths and once without it. A figure is the largest distance
of the merged update from the honest mean, in mean honest norms. Writes results/wild.md and .json.
"""

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from rich.progress import track
from torch import Tensor

from steelyard import components
from steelyard.algorithm import Algorithm
from steelyard.combining import Combiner
from steelyard.errors import InputError
from steelyard.server.aggregation import Aggregator
from steelyard.settings import Server
from steelyard.sharing import Posterior, WholeModel
from steelyard.types import Message, Reply, RoundInfo, State, Weighed
from steelyard.weighing import Weigher
from steelyard.weighing.geometry import Geometry

RESULTS = Path(__file__).parent / "results"
CLIENTS, SIZE, ROUNDS = 10, 1000, 3
SCALES = (10.0, 99.0, 1e3, 1e6, 1e9, 1e12, 1e29)
WILD = (1, 2, 3)
NOISE = (1.0, 3.0)  # of honest clients, beside a common direction of length 1: cosines of 0.5 and 0.1
KINDS = ("random", "common", "reversed")
SCREENS = {"default": Server().max_norm_ratio, "off": math.inf}
NAMES = [f"c{number}" for number in range(CLIENTS)]
Distances = dict[str, list[float]]
LIMIT = 2.0  # honest lengths: rules called robust stay within it


def honest_updates(noise: float, seed: int) -> Iterator[Tensor]:
    """The honest updates [J, K] of each round."""
    draw = torch.Generator().manual_seed(seed)
    common = torch.randn(SIZE, generator=draw) / math.sqrt(SIZE)
    own = torch.randn(CLIENTS, SIZE, generator=draw) / math.sqrt(SIZE)
    for _ in range(ROUNDS):
        fresh = torch.randn(CLIENTS, SIZE, generator=draw) / math.sqrt(SIZE)
        yield common + noise * (own + fresh) / math.sqrt(2)


def wild_updates(kind: str, count: int, honest: Tensor, seed: int) -> Tensor:
    """Updates [W, K] of the length of an honest one."""
    draw = torch.Generator().manual_seed(seed)
    length = torch.linalg.vector_norm(honest, dim=1).mean()
    rows = torch.randn(1 if kind == "common" else count, SIZE, generator=draw)
    if kind == "reversed":
        rows = -honest.mean(dim=0, keepdim=True) + 1e-3 * honest.std() * rows
    return (length * rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)).expand(count, -1)


class Crowd(NamedTuple):
    """The wild clients of a case."""

    kind: str
    count: int
    scale: float
    noise: float
    """Of the honest clients."""


def moved(aggregator: Aggregator, crowd: Crowd) -> float:
    """The largest distance over the rounds, in honest lengths; infinite if the model is not finite."""
    posterior = "variance" in aggregator.combiner.needs
    start = Message(torch.zeros(SIZE), torch.full((SIZE,), 0.01) if posterior else None)
    state, worst = aggregator.init(start), 0.0
    for number, updates in enumerate(honest_updates(crowd.noise, seed=1), start=1):
        honest = updates[crowd.count :]
        rows = torch.cat([crowd.scale * wild_updates(crowd.kind, crowd.count, honest, 10 + number), honest])
        replies = [Reply(name, start._replace(mean=row), 100) for name, row in zip(NAMES, rows, strict=True)]
        state = aggregator.aggregate(replace(state, message=start), replies, NAMES, number).state
        off = torch.linalg.vector_norm(state.message.mean.double() - honest.double().mean(dim=0))
        distance = float(off / torch.linalg.vector_norm(honest.double(), dim=1).mean())
        worst = max(worst, distance if math.isfinite(distance) else math.inf)
    return worst


class Once(Weigher):
    """A weighing rule whose results are kept: they are the same for every combiner."""

    def __init__(self, rule: Weigher) -> None:
        self.rule, self.results, self.case = rule, dict[object, Weighed](), None

    def init(self) -> State:
        return self.rule.init()

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        key = (self.case, round.number)
        if key not in self.results:
            self.results[key] = self.rule.weigh(geometry, round, state)
        return self.results[key]


def distances(weigher: Once, combiner: Combiner, ratio: float) -> Distances:
    """{scale: the largest distance with one, two and three wild clients}."""
    aggregator = Aggregator(weigher, combiner, Server(max_norm_ratio=ratio, quorum=0.0), SIZE)

    def worst(count: int, scale: float) -> float:
        found = []
        for kind, noise in itertools.product(KINDS, NOISE):
            crowd = Crowd(kind, count, scale, noise)
            weigher.case = (crowd, ratio)
            found.append(moved(aggregator, crowd))
        return max(found)

    return {f"{scale:g}": [worst(count, scale) for count in WILD] for scale in SCALES}


def rules() -> Iterator[tuple[str, str, Once, Combiner]]:
    """Every weighing rule with every combiner that it can be used with."""
    for weighing in components.names("weighing"):
        rule = components.build("weighing", {"name": weighing})
        once = Once(rule)
        for combining in components.names("combining"):
            combiner = components.build("combining", {"name": combining})
            sharing = Posterior() if "variance" in combiner.needs else WholeModel()
            try:
                Algorithm(sharing=sharing, weighing=rule, combining=combiner)
            except InputError:
                continue
            yield weighing, combining, once, combiner


def main() -> None:
    torch.set_num_threads(1)
    results: dict[str, Distances] = {}
    for weighing, combining, weigher, combiner in track(list(rules())):
        for name, ratio in SCREENS.items():
            results[f"{weighing} | {combining} | {name}"] = distances(weigher, combiner, ratio)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "wild.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    text = table(results)
    (RESULTS / "wild.md").write_text(text, "utf-8")
    print(text)


def table(results: dict[str, Distances]) -> str:
    """One row for each rule and combiner; a cell has the distances with 1, 2 and 3 wild clients of 10."""
    lines = [
        "| weighing | combining | screen | " + " | ".join(f"{scale:g}" for scale in SCALES) + " | holds |",
        "|---|---|---|" + "---|" * (len(SCALES) + 1),
    ]
    for key, by_scale in results.items():
        cells = [" / ".join(f"{value:.2g}" for value in by_scale[f"{scale:g}"]) for scale in SCALES]
        holds = all(value <= LIMIT for values in by_scale.values() for value in values)
        lines.append(f"| {key} | {' | '.join(cells)} | {'yes' if holds else ''} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
