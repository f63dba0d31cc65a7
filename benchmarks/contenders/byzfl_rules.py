"""ByzFL's aggregators and steelyard's rules on the same updates, in one process with the same torch.

python -m contenders.byzfl_rules FOLDER CLIENTS SIZE REPETITIONS
"""

import importlib
import json
import statistics
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import steelyard as sy
from contenders.turns import in_turns, middle_ratio, spoil, updates

Pair = tuple[Callable[[], Tensor], Callable[[], Tensor]]


def load(folder: Path) -> Any:
    """ByzFL's aggregators without the rest of the package, which needs torchvision and seaborn."""
    package = types.ModuleType("byzfl")
    package.__path__ = [str(folder / "byzfl")]
    sys.modules["byzfl"] = package
    return importlib.import_module("byzfl.aggregators.aggregators")


def weighed_mean(rows: Tensor, rule: str, **settings: Any) -> Tensor:
    return sy.combine(rows, sy.weigh(rows, rule, **settings).weights).mean


def pairs(byzfl: Any, rows: Tensor) -> dict[str, Pair]:
    """{rule: (ours, ByzFL's)}. ByzFL's Krum adds up one neighbour more, hence f − 1.

    ByzFL's geometric median makes a fixed number of steps: timed with as many as ours needs, and its default.
    """
    clients = len(rows)
    f, trim = clients // 10, clients // 5
    steps = int(sy.weigh(rows, "geometric-median").evidence["iterations"])
    weiszfeld = "geometric-median"
    return {
        "median": (lambda: sy.combine(rows, rule="median").mean, lambda: byzfl.Median()(rows)),
        "trimmed mean, 20 %": (
            lambda: sy.combine(rows, rule="trimmed-mean", trim=trim / clients).mean,
            lambda: byzfl.TrMean(trim)(rows),
        ),
        "krum": (lambda: weighed_mean(rows, "krum", f=f - 1), lambda: byzfl.Krum(f)(rows)),
        "multi-krum": (lambda: weighed_mean(rows, "multi-krum", f=f), lambda: byzfl.MultiKrum(f)(rows)),
        f"geometric median, {steps} steps": (
            lambda: weighed_mean(rows, weiszfeld),
            lambda: byzfl.GeometricMedian(T=steps)(rows),
        ),
        "geometric median, ByzFL's 3 steps": (
            lambda: weighed_mean(rows, weiszfeld),
            lambda: byzfl.GeometricMedian()(rows),
        ),
    }


def main() -> None:
    folder, clients, size, repetitions = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    rows = spoil(updates(clients, size))
    for name, (ours, theirs) in pairs(load(folder), rows).items():
        difference = float((ours() - theirs()).abs().max())
        same = torch.allclose(ours(), theirs(), rtol=1e-4, atol=1e-5)
        taken = in_turns({"steelyard": ours, "byzfl": theirs}, repetitions)
        result = {
            "rule": name,
            "steelyard": statistics.median(taken["steelyard"]),
            "byzfl": statistics.median(taken["byzfl"]),
            "faster": middle_ratio(taken["byzfl"], taken["steelyard"]),
            "same": same,
            "difference": difference,
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
