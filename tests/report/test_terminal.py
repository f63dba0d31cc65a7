import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from steelyard.report.terminal import (
    catalogue,
    client_report,
    comparison_report,
    run_report,
    sparkline,
    verdict_report,
)


def shown(view: RenderableType, width: int = 120) -> str:
    """The text of a view, without trailing spaces."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(view)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def client(name: str, weight: float | None = 0.5, **more: Any) -> dict[str, Any]:
    row = {"client": name, "num_examples": 1234, "rounds": 4, "weight": weight, "accuracy": 0.9}
    return {
        **row,
        "equal_share": 0.5,
        "rejected": 0,
        "verdict": f"{name} counted.",
        "stands_out": True,
        **more,
    }


def summary(**more: Any) -> dict[str, Any]:
    return {
        "path": "runs/mine",
        "name": "mine",
        "about": "digits · 2 clients",
        "status": "finished",
        "error": None,
        "seed": 0,
        "rounds": 3,
        "seconds": 1.25,
        "metrics": {"accuracy": 0.91234, "nll": 0.5, "client_accuracy_worst10": 0.75},
        "accuracies": [0.0, 0.5, 1.0],
        "clients": [client("a"), client("b")],
        **more,
    }


def line_of(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(name))


def test_a_client_is_shown_with_samples_weight_and_accuracy() -> None:
    line = line_of(shown(client_report([client("oslo", 0.25)])), "oslo")
    for value in ("1,234", "0.250", "0.900"):
        assert value in line


def test_bars_are_as_long_as_weights_are_heavy() -> None:
    text = shown(client_report([client("a", 0.5), client("b", 0.25), client("c", 0.0)]))
    bars = [sum(not each.isascii() for each in line_of(text, name)) for name in "abc"]
    assert bars == [16, 8, 0]


def test_missing_values_are_dashes() -> None:
    line = line_of(shown(client_report([client("a", None, num_examples=None, accuracy=None)])), "a")
    assert line.count("–") == 2
    assert "None" not in line


def test_verdicts_are_shown_from_the_smallest_share_on() -> None:
    rows = [
        client("a", 0.4, verdict="a counted for 40 %: its figures were usual."),
        client("b", 0.1, verdict="b counted for 10 %: it sent [red]noise[/]."),
        client("c", None, equal_share=None, verdict="c took part in no round."),
    ]
    lines = [line.strip() for line in shown(verdict_report(rows)).splitlines()]
    assert lines == ["why", rows[2]["verdict"], rows[1]["verdict"], rows[0]["verdict"]]


def test_of_many_verdicts_the_first_are_shown() -> None:
    rows = [client(f"c{number}", number / 100, verdict=f"c{number} counted.") for number in range(45)]
    text = shown(verdict_report(rows))
    assert "c39 counted." in text
    assert "c40 counted." not in text
    assert "… and 5 more: `steelyard report` shows all" in text


def test_clients_that_nothing_sets_apart_share_one_line() -> None:
    alike = [client(f"c{number}", 0.2, equal_share=0.2, stands_out=False) for number in range(3)]
    odd = client("odd", 0.02, equal_share=0.2)

    def lines(rows: list[dict[str, Any]]) -> list[str]:
        return [line.strip() for line in shown(verdict_report(rows), 80).splitlines()[1:]]

    assert lines(alike) == ["all 3 clients counted for 20 % each, an equal share: nothing sets them apart."]
    others = "the other 3 clients counted for 20 % each, an equal share: nothing sets them apart."
    assert " ".join(lines([*alike, odd])) == f"odd counted. {others}"
    unequal = [odd, *alike[:2], client("c2", 0.25, equal_share=0.2, stands_out=False)]
    assert lines(unequal)[1:] == [
        "the other 3 clients counted for 20 % to 25 % each: nothing sets them apart."
    ]
    assert lines([odd, *alike[:2]]) == ["odd counted.", "c0 counted.", "c1 counted."], "two are no group"
    hostile = client("c3", 0.2, equal_share=0.2, stands_out=False, adversary=True)
    assert lines([*alike, hostile])[0] == "c3 counted.", "an adversary that nothing sets apart is news"


def test_adversaries_are_marked_where_there_are_any() -> None:
    text = shown(client_report([client("a", adversary=True), client("b", adversary=False)]))
    assert "adversary" in line_of(text, "a")
    assert "adversary" not in line_of(text, "b")
    assert "0.900" in line_of(text, "b")
    for rows in ([client("a"), client("b")], [client("a", adversary=False)]):
        assert "adversary" not in shown(client_report(rows))


@pytest.mark.parametrize(("count", "lines", "rest"), [(40, 40, None), (41, 40, 1), (100, 40, 60)])
def test_a_long_table_says_how_many_more_there_are(count: int, lines: int, rest: int | None) -> None:
    text = shown(client_report([client(f"client-{number:03}") for number in range(count)]))
    assert text.count("client-") == lines
    assert ("more" in text) == (rest is not None)
    if rest:
        assert f"and {rest} more" in text


def test_a_sparkline_runs_from_lowest_to_highest() -> None:
    assert sparkline([0.0, 1.0]) == "▁█"
    assert sparkline([0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875]) == "▁▂▃▄▅▆▇█"
    assert sparkline([]) == ""


def test_a_long_sparkline_keeps_its_ends() -> None:
    line = sparkline([1.0, *[0.0] * 498, 1.0])
    assert len(line) == 60
    assert (line[0], line[30], line[-1]) == ("█", "▁", "█")


def test_metrics_of_ones_own_are_on_a_line_below_the_scores() -> None:
    metrics = {"accuracy": 0.9, "nll": 0.5, "top_3": 0.25, "client_f1": 0.125}
    lines = shown(run_report(summary(metrics=metrics, own_metrics=["top_3", "f1", "missing"]))).splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("test accuracy  0.9000"))
    assert lines[place + 1] == "top 3  0.2500    client f1  0.1250"


def test_a_report_shows_clients_scores_and_path() -> None:
    text = shown(run_report(summary()))
    for part in ("mine", "digits · 2 clients", "3 rounds in 1.2 s", "0.9123", "0.5000", "0.7500", "▁▅█"):
        assert part in text
    assert "test accuracy" in text
    assert line_of(text, "recorded in").endswith("runs/mine")


def test_a_report_names_the_best_round_if_one_was_looked_for() -> None:
    best = {"round": 17, "metric": "validation_nll", "score": 0.2104}
    line = line_of(shown(run_report(summary(best=best))), "best:")
    assert line.split(maxsplit=1)[1] == "round 17 by validation_nll 0.2104"
    assert "best" not in shown(run_report(summary(best=None)))


def test_a_run_that_did_not_finish_says_so() -> None:
    assert "interrupted after 3 rounds" in shown(run_report(summary(status="interrupted")))
    failed = shown(run_report(summary(status="failed", error="it broke")))
    assert "failed after 3 rounds" in failed
    assert "it broke" in failed


def test_a_run_without_rounds_can_be_shown() -> None:
    empty = summary(rounds=0, seconds=0.0, metrics={}, accuracies=[], clients=[], status="failed")
    text = shown(run_report(empty))
    assert "failed after 0 rounds" in text
    assert "accuracy" not in text


def contender(name: str, **metrics: dict[str, float | None]) -> dict[str, Any]:
    """A row of a comparison over the seeds 3 and 5."""
    return {"name": name, "metrics": metrics, "runs": ["runs/3", "runs/5"], "seeds": [3, 5]}


def test_a_comparison_has_mean_and_deviation_of_every_contender() -> None:
    rows = [
        contender("fedavg", accuracy={"mean": 0.9, "sd": 0.0125}),
        contender("fedprox", accuracy={"mean": 0.95, "sd": None}),
    ]
    text = shown(comparison_report(rows, [3, 5]))
    assert "seeds 3, 5" in text
    assert "0.9000 ± 0.0125" in line_of(text, "fedavg")
    assert line_of(text, "fedprox").endswith("0.9500")


def test_a_contender_without_a_score_gets_a_dash() -> None:
    rows = [contender("a", nll={"mean": 1.0, "sd": 0.5}), contender("b")]
    assert line_of(shown(comparison_report(rows, [3, 5])), "b").endswith("–")


def test_a_catalogue_lists_every_row_under_its_headings() -> None:
    text = shown(catalogue("things", [("one", "the first"), ("two", "the second")], ("name", "about")))
    assert text.splitlines()[0] == "things"
    assert line_of(text, "name").split() == ["name", "about"]
    assert line_of(text, "two").split(maxsplit=1) == ["two", "the second"]


def test_text_from_outside_is_shown_as_it_is() -> None:
    reason = "KeyError: [/tmp/x] and [red]"
    assert reason in shown(verdict_report([client("[bold]", verdict=f"[bold] failed: {reason}")]))
    assert "[bold]" in shown(client_report([client("[bold]")]))
    assert reason in shown(run_report(summary(status="failed", error=reason)))
