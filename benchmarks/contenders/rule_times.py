"""Times weighing rules against a Gram matrix and a mix, and ivar-mle against a naive implementation."""

import statistics
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from contenders.turns import in_turns, middle_ratio, seconds, spoil, updates
from steelyard import components
from steelyard.threads import on_one_thread
from steelyard.types import RoundInfo
from steelyard.weighing import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.gram import Products


def first_round(clients: int) -> RoundInfo:
    return RoundInfo(1, tuple(map(str, range(clients))), torch.ones(clients, dtype=torch.float64))


class Warm(Geometry):
    """A geometry whose Gram matrix is already computed; `wanted` tells whether the rule used it."""

    def __init__(self, cold: Geometry) -> None:
        super().__init__(cold.updates)
        self.cold, self.wanted = cold, False

    @cached_property
    def norms(self) -> Tensor:
        return self.cold.norms

    @cached_property
    def products(self) -> Products:
        self.wanted = True
        return self.cold.products


def baseline(rows: Tensor) -> tuple[Geometry, float, float]:
    """A geometry with its Gram matrix computed, and the seconds of the Gram matrix and of one mix."""
    geometry, equal = Geometry(rows), torch.full((len(rows),), 1 / len(rows), dtype=torch.float64)
    return geometry, seconds(lambda: geometry.products), seconds(lambda: geometry.mix(equal))


def time_rules(
    rows: Tensor, rules: dict[str, Weigher], repetitions: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Time the J × J work of each rule, and a Gram matrix and a mix just before.

    The time of a rule is their sum, because it reads the updates for nothing else.
    """
    info, weigh = first_round(len(rows)), on_one_thread(lambda rule, *rest: rule.weigh(*rest))
    times: dict[str, dict[str, list[float]]] = {name: {} for name in rules}
    evidence: dict[str, Any] = {}
    for _ in range(repetitions):
        cold, gram, mix = baseline(rows)
        for name, rule in rules.items():
            warm = Warm(cold)
            start = time.perf_counter()
            evidence[name] = weigh(rule, warm, info, rule.init()).evidence
            own = time.perf_counter() - start
            whole = own + mix + (gram if warm.wanted else 0.0)
            for key, value in (("gram", gram), ("mix", mix), ("own", own), ("whole", whole)):
                times[name].setdefault(key, []).append(value)
    for name, raw in times.items():
        both = [gram + mix for gram, mix in zip(raw["gram"], raw["mix"], strict=True)]
        yield (
            name,
            {
                **{key: statistics.median(values) for key, values in raw.items()},
                "ratio": middle_ratio(raw["whole"], both),
                "own_ratio": middle_ratio(raw["own"], both),
                "iterations": float(evidence[name]["iterations"]) if "iterations" in evidence[name] else None,
                "raw": raw,
            },
        )


def naive_ivar(clients: int, size: int) -> dict[str, Any]:
    """ivar-mle as written in the paper: every iteration reads all updates twice."""
    rows = spoil(updates(clients, size))
    rule = components.build("weighing", {"name": "ivar-mle"})
    info = first_round(clients)
    passes = int(rule.weigh(Geometry(rows), info, rule.init()).evidence["iterations"])

    def naive() -> Tensor:
        weights = torch.full((clients,), 1 / clients)
        for _ in range(passes):
            truth = weights @ rows
            variances = torch.stack([(row - truth).square().mean() for row in rows])
            weights = 1 / variances.clamp(min=1e-3 * float(variances.quantile(0.5)))
            weights /= weights.sum()
        return weights @ rows

    def ours() -> Tensor:
        geometry = Geometry(rows)
        return geometry.mix(rule.weigh(geometry, info, rule.init()).weights)

    same = torch.allclose(naive(), ours(), rtol=1e-3, atol=1e-4)
    taken = in_turns({"naive": naive, "ours": ours}, 3)
    middle = {name: statistics.median(values) for name, values in taken.items()}
    return {"clients": clients, "size": size, "passes": passes, "same": same, **middle}
