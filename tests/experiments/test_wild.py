"""A small form of experiments/faults/wild.py: rules called robust stay near the honest mean."""

import math
from pathlib import Path

import pytest

from steelyard import components
from steelyard.combining import Mean, Median, Rklb
from steelyard.combining.base import Combiner
from steelyard.server.aggregation import Aggregator
from steelyard.settings import Server

FOLDER = Path(__file__).parents[2] / "experiments" / "faults"
ROBUST = (
    "centered-clipping",
    "concord",
    "geometric-median",
    "ivar-mle",
    "ivar-vb",
    "krum",
    "majority",
    "multi-krum",
    "nnm",
)
SCREENS = {"default": Server().max_norm_ratio, "off": math.inf}
LIMIT = 2.0  # honest lengths


def worst(rule: str, combiner: Combiner, screen: str, scale: float) -> float:
    import wild

    server = Server(max_norm_ratio=SCREENS[screen], quorum=0.0)
    aggregator = Aggregator(components.build("weighing", {"name": rule}), combiner, server, wild.SIZE)
    crowds = [
        wild.Crowd(kind, count, scale, noise)
        for kind in wild.KINDS
        for count in (1, 3)
        for noise in wild.NOISE
    ]
    return max(wild.moved(aggregator, crowd) for crowd in crowds)


@pytest.mark.parametrize("scale", [10.0, 99.0, 1e3, 1e9, 1e29])
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("rule", ROBUST)
def test_a_robust_rule_stays_within_two_honest_lengths(rule: str, screen: str, scale: float) -> None:
    assert worst(rule, Mean(), screen, scale) <= LIMIT


@pytest.mark.parametrize("combiner", [Mean(), Rklb()], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("rule", sorted(components.names("weighing")))
def test_the_screen_holds_for_every_rule_and_combiner(rule: str, combiner: Combiner) -> None:
    import wild

    weigher = components.build("weighing", {"name": rule})
    aggregator = Aggregator(weigher, combiner, Server(quorum=0.0), wild.SIZE)
    assert wild.moved(aggregator, wild.Crowd("random", 3, 1e29, 1.0)) <= LIMIT


@pytest.mark.parametrize("rule", ["samples", "uniform"])
def test_the_median_is_robust_with_any_counts_and_the_mean_is_not(rule: str) -> None:
    assert worst(rule, Median(), "off", 1e29) <= LIMIT
    assert worst(rule, Mean(), "off", 1e29) > 1e27
    assert worst(rule, Mean(), "default", 99.0) > 10, "within the screen"


def test_results_of_a_rule_are_kept_for_other_combiners() -> None:
    import wild

    assert wild.LIMIT == LIMIT
    once = wild.Once(components.build("weighing", {"name": "uniform"}))
    found = wild.distances(once, Mean(), 100.0)
    assert found.keys() == {f"{scale:g}" for scale in wild.SCALES}
    assert len(once.results) > 100
    assert wild.distances(once, Mean(), 100.0) == found
