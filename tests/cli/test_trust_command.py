"""Strangers' files on the command line."""

import json
import os
import pty
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from calls import output, process, steelyard

STRANGER = """
from pathlib import Path
Path("imported").touch()

from steelyard.nn.zoo import mlp
"""
SPEC = 'model = "stranger:mlp"\nrounds = 1\ntraining.steps = 1\ndata.clients = 2\n'


@pytest.fixture
def file(place: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("STEELYARD_CONFIG", str(place / "settings"))
    monkeypatch.delitem(sys.modules, "stranger", raising=False)
    (place / "stranger.py").write_text(STRANGER)
    (place / "theirs.toml").write_text(SPEC)
    return "theirs.toml"


COMMANDS = [
    ("run", "theirs.toml"),
    ("compare", "fedavg", "theirs.toml", "--seeds", "0"),
    ("grid", "theirs.toml", "--rows", "weighing=samples,uniform"),
    ("data", "show", "theirs.toml"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_without_a_terminal_a_strangers_file_gets_one_sentence_and_code_2(
    place: Path, file: str, words: tuple[str, ...]
) -> None:
    result = steelyard(*words)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "theirs.toml names code that is not part of steelyard (stranger:mlp)" in result.stderr
    assert not (place / "imported").exists()
    assert output(steelyard(*words, "--trust"))
    assert (place / "imported").exists()


def test_a_strangers_run_is_not_resumed_or_loaded(place: Path, file: str) -> None:
    path = json.loads(output(steelyard("run", file, "--trust", "--json")))["path"]
    moved = Path(path).rename("theirs")
    with closing(sqlite3.connect(moved / "record.sqlite")) as record, record:
        record.execute("UPDATE meta SET value = 'interrupted' WHERE key = 'status'")
    for words in (("calibration", moved), ("resume", moved)):
        result = steelyard(*words)
        assert result.exit_code == 2
        assert "names code" in result.stderr
        assert output(steelyard(*words, "--trust"))


def test_a_run_from_names_that_were_typed_is_resumed_without_asking(place: Path, file: str) -> None:
    words = ("run", "model=stranger:mlp", "rounds=1", "training.steps=1", "data.clients=2", "--json")
    path = json.loads(output(steelyard(*words)))["path"]
    assert output(steelyard("resume", path))
    assert output(steelyard("calibration", path))
    assert output(steelyard("run", f"{path}/spec.toml"))


def test_a_folder_is_trusted_listed_and_removed(place: Path, file: str) -> None:
    assert output(steelyard("trust", "--list")) == "no folder is trusted.\n"
    assert output(steelyard("trust", ".")) == f"{place} is trusted from now on.\n"
    assert output(steelyard("trust", "--list")) == f"{place}\n"
    assert output(steelyard("run", file))
    assert json.loads(output(steelyard("trust", "--list", "--json"))) == {"folders": [str(place)]}
    assert output(steelyard("trust", ".", "--remove")) == f"{place} is not trusted any longer.\n"
    assert steelyard("run", file).exit_code == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("trust",), "name one folder"),
        (("trust", ".", "--list"), "name one folder"),
        (("trust", "missing"), "missing is not a folder"),
        (("trust", "theirs.toml"), "theirs.toml is not a folder"),
        (("trust", ".", "--remove"), "is not in the list of trusted folders"),
    ],
)
def test_mistakes_with_trust_are_explained(file: str, words: tuple[str, ...], sentence: str) -> None:
    result = steelyard(*words)
    assert result.exit_code == 2
    assert sentence in result.stderr


def on_a_terminal(answer: str, *words: str) -> tuple[int, str]:
    """The exit code of a command on a terminal where the user types an answer, and what it showed."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "steelyard", *words]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                if answer and b"Run this code?" in shown + part:
                    os.write(ours, answer.encode())
                    answer = ""
                shown += part
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    return running.returncode, shown.decode()


@pytest.mark.parametrize(("answer", "code"), [("n\n", 2), ("\n", 2), ("y\n", 0), ("t\n", 0)])
def test_on_a_terminal_the_user_is_asked(place: Path, file: str, answer: str, code: int) -> None:
    found, shown = on_a_terminal(answer, "run", file)
    assert found == code, shown
    assert "theirs.toml" in shown
    assert "stranger:mlp" in shown
    assert "Run this code? [y/N]" in shown
    assert (place / "imported").exists() == (code == 0)
    assert json.loads(output(steelyard("trust", "--list", "--json")))["folders"] == (
        [str(place)] if answer == "t\n" else []
    )


HOSTILE = "from pathlib import Path; Path(__file__).with_suffix('.imported').touch()\n"
SHADOWS = ("rich", "json", "typer", "torch", "pydantic", "numpy", "pickle", "secrets", "ipywidgets", "attr")


@pytest.fixture
def shadows(place: Path) -> Path:
    """A folder with modules that have the names of others, installed or not."""
    for name in SHADOWS:
        (place / f"{name}.py").write_text(HOSTILE)
    return place


@pytest.mark.parametrize("interpreter", [(), ("-P",)], ids=["python -m", "python -P -m"])
def test_modules_in_the_current_folder_do_not_take_the_place_of_others(
    shadows: Path, finished: Path, interpreter: tuple[str, ...]
) -> None:
    (shadows / "theirs.toml").write_text('model = "ipywidgets:anything"')
    for words in (("list", "weighing"), ("show", str(finished)), ("spec", "theirs.toml"), ("--help",)):
        command = [sys.executable, *interpreter, "-m", "steelyard", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    assert not list(shadows.glob("*.imported"))


def test_worker_processes_do_not_search_the_current_folder_first(shadows: Path) -> None:
    words = ("rounds=1", "data.clients=2", "training.steps=1", "--rows", "weighing=samples,uniform")
    done = process("grid", *words, "--workers", "2", "--no-record")
    assert done.returncode == 0, done.stderr
    assert not list(shadows.glob("*.imported"))


def test_spec_imports_nothing_unless_the_file_is_trusted(place: Path, file: str) -> None:
    text = output(steelyard("spec", file, "weighing=stranger:Nothing"))
    assert 'name = "stranger:mlp"' in text
    assert "hidden" not in text
    assert not (place / "imported").exists()
    assert "hidden = 64" in output(steelyard("spec", file, "--trust"))
    assert (place / "imported").exists()
