"""How long a weighing rule takes beside a Gram matrix and a mix, and beside the same rule written naively."""

import statistics
from typing import Any

import torch
from torch import Tensor

from contenders.turns import in_turns, middle_ratio, seconds, spoil, updates
from steelyard import registry
from steelyard.geometry import Geometry
from steelyard.types import RoundInfo
from steelyard.weighing import Weigher


def first_round(clients: int) -> RoundInfo:
    return RoundInfo(1, tuple(map(str, range(clients))), torch.ones(clients, dtype=torch.float64))


def baseline(rows: Tensor) -> tuple[float, float]:
    """Seconds of one Gram matrix and of one mix."""
    geometry, equal = Geometry(rows), torch.full((len(rows),), 1 / len(rows), dtype=torch.float64)
    return seconds(lambda: geometry.products), seconds(lambda: geometry.mix(equal))


def time_rule(rows: Tensor, rule: Weigher, repetitions: int) -> dict[str, Any]:
    """A rule from the updates to the mean, the part of it that is J×J work, and the baseline before it."""
    info = first_round(len(rows))
    found: dict[str, list[float]] = {name: [] for name in ("gram", "mix", "whole", "own")}
    for _ in range(repetitions):
        gram, mix = baseline(rows)
        geometry = Geometry(rows)

        def whole(geometry: Geometry = geometry) -> None:
            geometry.mix(rule.weigh(geometry, info, rule.init()).weights)

        found["gram"].append(gram)
        found["mix"].append(mix)
        found["whole"].append(seconds(whole))
        found["own"].append(seconds(lambda geometry=geometry: rule.weigh(geometry, info, rule.init())))
    both = [gram + mix for gram, mix in zip(found["gram"], found["mix"], strict=True)]
    middle = {name: statistics.median(values) for name, values in found.items()}
    evidence = rule.weigh(geometry, info, rule.init()).evidence
    return {
        **middle,
        "ratio": middle_ratio(found["whole"], both),
        "own_ratio": middle_ratio(found["own"], both),
        "iterations": float(evidence["iterations"]) if "iterations" in evidence else None,
        "raw": found,
    }


def naive_ivar(clients: int, size: int) -> dict[str, Any]:
    """ivar-mle as it is written in the paper: every iteration reads all updates, twice."""
    rows = spoil(updates(clients, size))
    rule = registry.build("rules", {"name": "ivar-mle"})
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
