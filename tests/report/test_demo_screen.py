import io
from typing import Any

import pytest
from rich.console import Console

from steelyard.report.demo import demo_report, mean_weight_auroc

NOISY = (1, 2, 7)


def run(rule: str, noise: float) -> dict[str, Any]:
    """Ten clients; the noisy three have `noise` each, the others share the rest."""
    clients = [
        {
            "client": f"client-{number}",
            "num_examples": 1234,
            "weight": noise if number in NOISY else (1 - 3 * noise) / 7,
            "adversary": number in NOISY,
        }
        for number in range(10)
    ]
    return {
        "path": f"runs/20260101-000000-poisoned-{rule}-s0",
        "rounds": 30,
        "seconds": 1.0,
        "metrics": {"accuracy": 0.625, "client_accuracy_worst10": 0.5},
        "accuracies": [0.0, *[0.5] * 28, 1.0],
        "clients": clients,
    }


RUNS = {"samples": run("samples", 0.12), "ivar-vb": run("ivar-vb", 0.05), "majority": run("majority", 0.0)}


def screen(width: int = 80, runs: dict[str, dict[str, Any]] = RUNS) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(demo_report(runs), crop=False)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def line_of(lines: list[str], name: str) -> str:
    return next(line for line in lines if line.startswith(name))


def test_it_fits_a_small_screen() -> None:
    lines = screen()
    assert len(lines) < 40
    assert max(map(len, lines)) <= 80


def test_every_client_has_a_row_with_three_weights_and_adversaries_are_marked() -> None:
    lines = screen()
    for number in range(10):
        line = line_of(lines, f"client-{number}")
        assert ("sends noise" in line) == (number in NOISY)
        assert line.split()[1] == "1,234"
        assert len([word for word in line.split() if word.startswith("0.")]) == 3
    assert "0.120" in line_of(lines, "client-1")
    assert line_of(lines, "client-1").endswith("0.000")


def test_bars_have_one_scale_across_the_rules() -> None:
    line = line_of(screen(), "client-0")
    assert [word.count("━") + word.count("╸") / 2 for word in line.split() if word[0] in "━╸"] == [5, 7, 8]


def test_scores_are_below_their_rules() -> None:
    lines = screen()
    places = [lines[3].index(name) for name in ("FedAvg", "IVAR-VB", "majority")]
    for name, values in {
        "test accuracy": ["0.625"] * 3,
        "worst 10 % of clients": ["0.500"] * 3,
        "adversaries weigh least": ["no", "yes", "yes"],
        "detection AUROC": ["0.000", "1.000", "1.000"],
    }.items():
        line = line_of(lines, name)
        assert [line[place:].split()[0] for place in places] == values


def test_long_paths_are_not_cut() -> None:
    path = "/a/long/way/" * 10 + "run"
    lines = screen(runs={**RUNS, "majority": {**RUNS["majority"], "path": path}})
    assert any(line.endswith(f"steelyard show {path}") for line in lines)


def test_missing_values_are_dashes() -> None:
    lines = screen(runs={rule: {**each, "metrics": {}} for rule, each in RUNS.items()})
    assert line_of(lines, "test accuracy").count("–") == 3


@pytest.mark.parametrize(("weights", "auroc"), [((0.1, 0.9), 1.0), ((0.9, 0.1), 0.0), ((0.5, 0.5), 0.5)])
def test_adversaries_are_found_by_low_weights(weights: tuple[float, float], auroc: float) -> None:
    assert mean_weight_auroc([{"weight": weights[0], "adversary": True}, {"weight": weights[1]}]) == auroc
    assert mean_weight_auroc([{"weight": weights[0]}, {"weight": weights[1]}]) is None
