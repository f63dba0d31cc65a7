"""`steelyard report`, and what `show` says of a run's clients."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import steelyard as sy
from steelyard.cli import app


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    result = sy.run("poisoned", out=folder, rounds=2, weighing="majority", engine="serial")
    assert result.path is not None
    return result.path


def steelyard(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def test_a_report_is_one_file_that_names_every_client(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    values = json.loads(steelyard("report", run, "--out", target, "--json"))
    assert values == {"report": str(target), "bytes": target.stat().st_size, "runs": [str(run)]}
    text = target.read_text("utf-8")
    assert text.lstrip().lower().startswith("<!doctype html>")
    assert "Content-Security-Policy" in text
    assert [path.name for path in tmp_path.glob("*page*")] == ["page.html"]


def test_the_report_of_one_run_is_put_into_its_folder(run: Path) -> None:
    text = steelyard("report", run)
    assert (run / "report.html").is_file()
    assert str(run / "report.html") in text.replace("\n", "")
    (run / "report.html").unlink()


def test_several_runs_are_one_report(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    steelyard("report", run, run)
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{run}", "--out", "page.png"], "ends with .html"),
        (["{run}", "--out", "missing/page.html"], "there is no folder missing"),
        (["nothing"], "nothing is not a recorded run"),
        (["{run}"] * 13, "at most 12 runs, not 13"),
    ],
)
def test_mistakes_are_explained(run: Path, words: list[str], said: str) -> None:
    assert said in steelyard("report", *(word.format(run=run) for word in words), code=2).replace("\n", " ")


def test_show_says_why(run: Path) -> None:
    text = " ".join(steelyard("show", run).split())
    for verdict in sy.Run(run).verdicts.values():
        if verdict.stands_out or verdict.adversary:  # the others share a line
            assert " ".join(str(verdict).split()) in text
    clients = json.loads(steelyard("show", run, "--json"))["clients"]
    assert [row["verdict"] for row in clients] == [str(each) for each in sy.Run(run).verdicts.values()]


def test_the_record_has_the_verdicts(run: Path) -> None:
    import sqlite3

    rows = sqlite3.connect(run / "record.sqlite").execute("SELECT client, verdict FROM verdicts").fetchall()
    assert dict(rows) == {client: str(verdict) for client, verdict in sy.Run(run).verdicts.items()}
