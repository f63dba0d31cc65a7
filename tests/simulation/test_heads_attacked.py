"""Heads from clients that are hostile or broken: a run goes on, and does not follow them."""

import statistics
from dataclasses import replace

import pytest
from bodies import AVG, data, federation, perceptron

from steelyard.attacks import Attack, Gaussian, SignFlip
from steelyard.data.clients import Client, Population
from steelyard.server.result import Result
from steelyard.settings import Server
from steelyard.types import ClientId
from steelyard.weighing import GeometricMedian, IvarVb, Samples, Weigher

# With hostile parties


def crowd() -> list[Client]:
    """Seven clients of two kinds, with enough to learn from."""
    return [
        Client(
            f"c{number}",
            data(40, 5 + number % 2, number),
            data(60, 5 + number % 2, 50 + number),
            model=perceptron(seed=number, width=5 + number % 2),
        )
        for number in range(7)
    ]


def honest(result: Result) -> float:
    """The mean accuracy of the head that is shared, on what the honest see."""
    rows = [row for row in result.clients if row["round"] == 4 and row["client"] != "c6"]
    return statistics.fmean(float(row["accuracy"]) for row in rows)  # type: ignore[arg-type]


def poisoned(weighing: Weigher, attack: Attack | None) -> Result:
    adversaries = {} if attack is None else {"c6": attack}
    algorithm = replace(AVG, weighing=weighing, server=Server(max_norm_ratio=float("inf")))
    return federation(algorithm, crowd(), rounds=4, adversaries=adversaries).run()


@pytest.fixture(scope="module")
def clean() -> float:
    return honest(poisoned(Samples(), None))


@pytest.mark.parametrize("weighing", [IvarVb(), GeometricMedian()], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("attack", [Gaussian(10.0), SignFlip(30.0)], ids=lambda each: type(each).__name__)
def test_a_poisoned_head_is_weighed_down(attack: Attack, weighing: Weigher, clean: float) -> None:
    assert clean > 0.75
    trusting, wary = poisoned(Samples(), attack), poisoned(weighing, attack)
    assert honest(trusting) < clean - 0.1
    assert honest(wary) > clean - 0.04
    weights = [float(row["weight"]) for row in wary.clients if row["client"] == "c6"]  # type: ignore[arg-type]
    assert max(weights) < 0.02
    assert wary.history[-1]["detection_auroc"] == 1


# With a broken one


def half_broken(name: ClientId) -> Client:
    if name == "b":
        raise OSError("disk error")
    return Client(name, data(12, 5, 1), model=perceptron())


def test_a_client_that_cannot_be_made_does_not_end_the_run() -> None:
    result = federation(AVG, Population("abc", half_broken, [12] * 3), rounds=2).run()
    assert [row["status"] for row in result.clients][1] == "failed while training: OSError: disk error"
