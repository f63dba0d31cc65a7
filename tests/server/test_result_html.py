"""A result in a notebook: valid, safe with hostile names, and short."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import pytest

import steelyard as sy
from steelyard.server.result_html import MAX_CLIENTS, result_html
from steelyard.types import Row
from steelyard.verdicts.sentences import verdicts_of

HOSTILE = (
    "<script>alert(1)</script>",
    '" onload="x',
    "a & b",
    "\x1b[31m\u202ered",
    "$\\href{x}{y}$",
    "x" * 900,
)


def parsed(text: str) -> ElementTree.Element:
    """The output, which is also valid XML."""
    return ElementTree.fromstring(text)


def rows_of(root: ElementTree.Element) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]


def shown(clients: Sequence[Row], history: Sequence[Row] = (), **others: Any) -> ElementTree.Element:
    return parsed(result_html("a title", history, verdicts_of(clients, ()), **others))


def client(name: str, weight: float = 0.5, **others: Any) -> Row:
    return {"round": 1, "client": name, "status": "used", "weight": weight, **others}


def test_a_run_has_a_figure_and_a_row_for_each_client() -> None:
    result = sy.run("fedavg", out=None, rounds=2, **{"data.clients": 3, "training.steps": 1})
    root = parsed(result._repr_html_())
    heading, *rows = rows_of(root)
    assert heading == ["client", "samples", "weight", "accuracy", "verdict"]
    assert [row[0] for row in rows] == ["client-0", "client-1", "client-2"]
    last = result.clients[-1]
    assert rows[-1][1:4] == [str(last["num_examples"]), f" {last['weight']:.3f}", f"{last['accuracy']:.3f}"]
    assert rows[-1][4] == str(result.verdicts["client-2"])
    (line,) = root.iter("polyline")
    assert len(line.attrib["points"].split()) == 2
    (svg,) = root.iter("svg")
    assert svg.attrib["aria-label"] == f"accuracy: {result.accuracy:.4g} after round 2"
    assert not {"color", "black", "white"} & set(line.attrib)


def test_hostile_names_are_text_and_nothing_else() -> None:
    root = shown([client(name) for name in HOSTILE], warnings=["<b>bad</b>"])
    names = [row[0] for row in rows_of(root)[1:]]
    assert {*HOSTILE[:3], "red"} < set(names)
    assert not list(root.iter("script"))
    assert all("onload" not in element.attrib for element in root.iter())
    text = "".join(root.itertext())
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "<b>bad</b>" in text
    assert max(map(len, names)) <= 400
    assert "mathjax_ignore" in root.attrib["class"]


def test_at_most_forty_clients_are_shown() -> None:
    root = shown([client(f"client-{number:04}", 0.001) for number in range(1234)])
    assert len(rows_of(root)) == 1 + MAX_CLIENTS
    assert "".join(root.itertext()).endswith("… and 1,194 more")
    assert "more" not in "".join(shown([client(str(number)) for number in range(40)]).itertext())


def test_bars_are_relative_to_the_heaviest_and_negative_weights_have_none() -> None:
    root = shown([client("a", 0.8), client("b", 0.4), client("c", -0.2)])
    widths = [span.attrib["style"].split("width:")[1].split("px")[0] for span in root.iter("span")]
    assert widths == ["80", "40", "0"]


@pytest.mark.parametrize(
    ("rows", "label"),
    [
        ([{"round": 1, "accuracy": 0.5}], "accuracy: 0.5 after round 1"),
        ([{"round": 1, "mse": 2.0}, {"round": 2, "mse": float("inf")}], "mse: 2 after round 1"),
        ([{"round": n, "accuracy": None, "loss": 1.0} for n in (1, 2)], "loss: 1 after round 2"),
    ],
)
def test_the_figure_shows_the_first_metric_that_the_run_has(rows: list[Row], label: str) -> None:
    (svg,) = shown([], rows).iter("svg")
    assert svg.attrib["aria-label"] == label


def test_without_metrics_and_clients_there_is_only_the_title() -> None:
    assert "".join(shown([], [{"round": 1}]).itertext()) == "a title"


def test_long_runs_are_thinned_out() -> None:
    root = shown([], [{"round": n, "accuracy": 0.5} for n in range(1, 10_001)])
    (line,), (svg,) = root.iter("polyline"), root.iter("svg")
    assert len(line.attrib["points"].split()) <= 300
    assert svg.attrib["aria-label"].endswith("after round 10000")


def test_regression_shows_the_error() -> None:
    root = shown([client("a", mse=0.25)])
    assert rows_of(root)[0][3] == "mse"
    assert rows_of(root)[1][3] == "0.250"


def test_matplotlib_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    verdicts: Mapping[str, Any] = verdicts_of([client("a")], ())
    assert "svg" in result_html("x", [{"round": 1, "loss": 0.1}], verdicts)
