"""A run in which nothing happened does not look like success."""

import json
from pathlib import Path

from calls import QUICK, output, steelyard

DIVERGED = ("run", *QUICK, "training.lr=1e36")


def test_a_run_without_a_usable_reply_exits_with_1_and_says_why(place: Path) -> None:
    result = steelyard(*DIVERGED)
    assert result.exit_code == 1
    assert "warning: no round changed the model" in result.stderr
    assert "SteelyardWarning" not in result.stderr
    assert result.stdout, "the run is still shown"
    found = steelyard(*DIVERGED, "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["warning"].startswith("no round changed the model")


def test_an_attack_without_adversaries_is_a_warning(place: Path) -> None:
    result = steelyard("run", *QUICK, "adversaries.attack=gaussian")
    assert result.exit_code == 0
    assert "warning: adversaries.attack is 'gaussian', but adversaries.count is 0" in result.stderr
    assert (
        "warning" not in steelyard("run", *QUICK, "adversaries.attack=gaussian", "adversaries.count=1").stderr
    )
    assert "warning" not in steelyard("run", *QUICK).stderr
    assert json.loads(output(steelyard("run", *QUICK, "--json")))["warning"] is None


def test_a_model_that_test_data_choose_is_a_warning_and_validation_data_are_none(place: Path) -> None:
    result = steelyard("run", *QUICK, "monitor=nll")
    assert result.exit_code == 0
    assert result.stderr.count("warning: the best round is chosen by 'nll' on test data") == 1
    assert "SelectionWarning" not in result.stderr
    result = steelyard("run", *QUICK, "monitor=nll", "validation=0.2")
    assert "warning" not in result.stderr
    assert "by validation_nll" in next(
        line for line in result.stdout.splitlines() if line.startswith("best:")
    )
