import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

import steelyard as sy
from steelyard import registry
from steelyard.cli import KINDS, app
from steelyard.layers import parse_override
from steelyard.record import Recorder, Run
from steelyard.spec import load_spec
from steelyard.types import Round

QUICK = ("rounds=2", "data.clients=3", "training.steps=2")

MINE = """
import torch
from torch import nn


class Linear(nn.Module):
    def __init__(self, input_shape, num_classes):
        super().__init__()
        self.layer = nn.Linear(64, num_classes)

    def forward(self, inputs):
        return self.layer(inputs.flatten(1))


def empty_second(labels, clients):
    rows = list(range(len(labels)))
    return [torch.tensor(rows[1:]), torch.tensor([]), *[torch.tensor(rows[:1])] * (clients - 2)]


class Stubborn(Linear):
    def forward(self, inputs):
        if self.training:
            raise RuntimeError("this model does not like to train")
        return super().forward(inputs)


def three_classes():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a module of the user's own, no data sets, no network and a wide screen."""

    def offline(url: str, path: Path) -> None:
        raise OSError("there is no network in tests")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("STEELYARD_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("steelyard.data.origins.download", offline)
    (tmp_path / "mine_for_cli.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = sy.run(out=tmp_path_factory.mktemp("runs"), rounds=2, **{"data.clients": 3, "training.steps": 2})
    assert result.path is not None
    return result.path


def steelyard(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Like the installed command: -P keeps Python itself from looking for modules in this folder."""
    command = [sys.executable, "-P", "-m", "steelyard", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def output(result: Result) -> str:
    assert result.exit_code == 0, result.stderr
    return result.stdout


# As a process of its own


def test_run_alone_shows_ten_clients_the_accuracy_and_the_path(place: Path) -> None:
    done = process("run")
    assert (done.returncode, done.stderr) == (0, "")
    assert [f"client-{number}" in done.stdout for number in range(10)] == [True] * 10
    assert "test accuracy" in done.stdout
    (path,) = (place / "runs").iterdir()
    assert str(path.relative_to(place)) in done.stdout
    assert len(Run(path).rounds) == 30


def test_help_is_quick_and_does_not_load_torch() -> None:
    start = time.perf_counter()
    command = [sys.executable, "-X", "importtime", "-m", "steelyard", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert time.perf_counter() - start < 2
    assert done.returncode == 0
    assert "steelyard run" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "steelyard.cli" in imported
    assert imported.isdisjoint({"torch", "numpy", "sklearn", "pydantic", "matplotlib"})


def test_a_users_module_is_found_where_the_user_stands_and_bad_input_ends_with_code_2() -> None:
    done = process("run", "model=mine_for_cli:three_classes")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == ("error: client 'client-0' has classes 0 to 9, but the model has only 3 outputs.\n")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell that starts something in the background makes it deaf to Ctrl-C; processes inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_control_c_keeps_the_finished_rounds_and_the_model(place: Path) -> None:
    command = [sys.executable, "-m", "steelyard", "run", "rounds=100000", "--out", "out"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            wait_for_rounds(place / "out", 2)
            running.send_signal(signal.SIGINT)
            stdout, stderr = running.communicate(timeout=30)
        finally:
            running.kill()
    assert running.returncode == 1
    assert stdout == ""
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    (path,) = (place / "out").iterdir()
    numbers = [row["round"] for row in Run(path).rounds]
    assert len(numbers) >= 2
    assert numbers == list(range(1, len(numbers) + 1))
    assert Run(path).meta["status"] == "interrupted"
    assert sy.load_model(path)


def wait_for_rounds(out: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.05)
        for path in out.glob("*/record.sqlite"):
            run = Run(path.parent)
            if run.is_readable() and len(run.rounds) >= count:
                return
    pytest.fail(f"no {count} rounds in 60 s")


# Commands


def test_run_writes_the_settings_it_was_given(place: Path) -> None:
    summary = json.loads(
        output(steelyard("run", "fedprox", "objective.mu=0.5", *QUICK, "--out", "out", "--json"))
    )
    spec = Run(summary["path"]).spec
    assert (spec["objective"]["name"], spec["objective"]["mu"]) == ("proximal", 0.5)
    assert (spec["rounds"], spec["data"]["clients"]) == (2, 3)
    assert Path(summary["path"]).resolve().parent == place / "out"


def test_what_a_run_keeps_as_its_spec_can_be_run_and_gives_the_same(finished: Path) -> None:
    again = json.loads(output(steelyard("run", finished / "spec.toml", "--json")))
    assert Run(again["path"]).rounds == Run(finished).rounds


def test_the_seed_option_beats_the_file_and_the_data_seed_follows(place: Path) -> None:
    (place / "mine.toml").write_text("seed = 5\nrounds = 1\n[data]\nclients = 2\n")
    for arguments, seed in (((), 5), (("--seed", "3"), 3), (("--seed", "0"), 0)):
        summary = json.loads(output(steelyard("run", "mine.toml", *arguments, "--json")))
        assert summary["seed"] == seed
        assert Run(summary["path"]).spec["data"]["seed"] == seed


def test_one_run_at_a_time() -> None:
    result = steelyard("run", "fedavg", "fedprox")
    assert result.exit_code == 2
    assert "fedavg and fedprox" in result.stderr


def test_compare_shows_mean_and_deviation_of_each(place: Path) -> None:
    text = output(steelyard("compare", "fedavg", "fedprox", "--seeds", "0,1", *QUICK, "--out", "out"))
    for name in ("fedavg", "fedprox"):
        line = next(line for line in text.splitlines() if line.startswith(name))
        assert line.count("±") == 4
    assert len(list((place / "out").iterdir())) == 4


def test_show_shows_a_run_as_it_was_shown_when_it_ended(place: Path) -> None:
    text = output(steelyard("run", *QUICK, "--out", "out"))
    (path,) = Path("out").iterdir()
    assert output(steelyard("show", path)) == text
    assert "client-2" in text


def test_data_show_draws_the_split_as_a_png(place: Path) -> None:
    text = output(steelyard("data", "show", "data.clients=4", "--png", "deep/split.png"))
    assert (place / "deep/split.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert "deep/split.png" in text


def test_data_show_counts_every_row_of_every_class() -> None:
    found = json.loads(output(steelyard("data", "show", "data.clients=4", "--json")))
    assert len(found["counts"]) == 4
    assert sum(map(sum, found["counts"].values())) == 1442
    assert {len(counts) for counts in found["counts"].values()} == {10}


def test_data_where_names_the_folders_that_are_looked_in(place: Path) -> None:
    text = output(steelyard("data", "where"))
    assert str(place / "data") in text
    assert str(place / "cache") in text
    assert "comes with scikit-learn" in text
    assert "steelyard data get mnist" in text


def test_the_version_is_shown() -> None:
    assert output(steelyard("--version")) == f"{sy.__version__}\n"


@pytest.mark.parametrize("kind", [*registry.FAMILIES, "presets"])
def test_everything_that_a_spec_can_name_is_listed(kind: str) -> None:
    found = json.loads(output(steelyard("list", kind, "--json")))[kind]
    text = output(steelyard("list", kind))
    assert found
    for each in found:
        assert each["about"], each["name"]
        assert any(line.startswith(each["name"]) for line in text.splitlines())
    if kind != "presets":
        assert [each["name"] for each in found] == list(registry.names(kind))


# JSON


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", *QUICK),
        ("compare", "fedavg", "--seeds", "0", *QUICK),
        ("show", "RUN"),
        ("list", "rules"),
        ("list", "presets"),
        ("data", "list"),
        ("data", "where"),
        ("data", "get", "digits"),
        ("data", "show", "data.clients=3"),
    ],
    ids=" ".join,
)
def test_with_json_the_output_is_one_object_and_nothing_else(
    arguments: tuple[str, ...], finished: Path
) -> None:
    words = [str(finished) if word == "RUN" else word for word in arguments]
    found = json.loads(output(steelyard(*words, "--json")))
    assert isinstance(found, dict)
    assert found
    assert "error" not in found or found["error"] is None


def test_json_of_a_run_has_everything_that_is_shown(finished: Path) -> None:
    found = json.loads(output(steelyard("show", finished, "--json")))
    assert (found["path"], found["status"], found["rounds"]) == (str(finished), "finished", 2)
    assert found["metrics"]["accuracy"] == Run(finished).rounds[-1]["accuracy"]
    assert [each["client"] for each in found["clients"]] == ["client-0", "client-1", "client-2"]
    assert sum(each["weight"] for each in found["clients"]) == pytest.approx(1)


def test_json_of_a_comparison_has_means_deviations_and_runs() -> None:
    found = json.loads(output(steelyard("compare", "fedavg", "--seeds", "0,1", *QUICK, "--json")))
    assert found["seeds"] == [0, 1]
    assert set(found["rows"][0]["metrics"]["accuracy"]) == {"mean", "sd"}
    assert len(found["rows"][0]["runs"]) == 2


def test_json_has_null_where_a_number_is_not_finite(place: Path) -> None:
    with Recorder(place / "run") as recorder:
        recorder.write(Round(1, {"loss": float("inf"), "accuracy": 0.5}, ()))
    found = json.loads(output(steelyard("show", "run", "--json")), parse_constant=pytest.fail)
    assert found["metrics"] == {"loss": None, "accuracy": 0.5}


# Errors

BAD = {
    "a wrong key": (("run", "rouds=3"), "unknown key 'rouds': did you mean 'rounds'?"),
    "a wrong key in a table": (("run", "data.cleints=3"), "did you mean 'data.clients'?"),
    "a wrong type": (("run", "rounds=many"), "rounds should be a valid integer"),
    "a wrong type in a table": (("run", "training.lr=fast"), "lr should be a valid number"),
    "a wrong value": (("run", "training.lr=-1"), "training.lr must be greater than 0"),
    "a wrong setting": (("run", "fedprox", "objective.nu=1"), "did you mean 'mu'?"),
    "a wrong preset": (("run", "fedproxx"), "unknown preset 'fedproxx': did you mean 'fedprox'?"),
    "a wrong preset to compare": (("compare", "fedavg", "fedproxx"), "did you mean 'fedprox'?"),
    "nothing to compare": (("compare", "rounds=3"), "name at least one"),
    "seeds that are no numbers": (
        ("compare", "fedavg", "--seeds", "a,b"),
        "--seeds takes different whole numbers",
    ),
    "a missing file": (("run", "gone.toml"), "cannot read the spec gone.toml: No such file"),
    "a file that is not TOML": (("run", "broken.toml"), "the spec broken.toml is not valid TOML"),
    "a file that is not text": (("run", "binary.toml"), "the spec binary.toml is not valid TOML"),
    "an empty client": (("run", "data.partition=mine_for_cli:empty_second"), "client-1"),
    "a model of too few classes": (("run", "model=mine_for_cli:three_classes"), "only 3 outputs"),
    "a model that is not there": (("run", "model=mine_for_cli:nothing"), "cannot be imported"),
    "a model for other images": (("run", "model=light-cnn"), "light-cnn needs images"),
    "a folder that is no run": (("show", "."), "is not a recorded run"),
    "an unknown data set": (("data", "get", "mnits"), "did you mean 'mnist'?"),
    "a wrong split": (("data", "show", "data.partition=shads"), "did you mean 'shards'?"),
}


@pytest.mark.parametrize(("arguments", "sentence"), BAD.values(), ids=BAD)
def test_bad_input_gets_one_sentence_and_code_2(
    arguments: tuple[str, ...], sentence: str, place: Path
) -> None:
    (place / "broken.toml").write_text("rounds = = 3")
    (place / "binary.toml").write_bytes(b"\x89PNG\xff\xfe")
    plain, as_json = steelyard(*arguments), steelyard(*arguments, "--json")
    for result in (plain, as_json):
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert sentence in result.stderr
    assert plain.stdout == ""
    assert json.loads(as_json.stdout) == {"error": as_json.stderr.removeprefix("error: ").strip()}
    assert not (place / "runs").exists()


@pytest.mark.parametrize("arguments", [("run", "data.dataset=mnist"), ("data", "get", "mnist")])
def test_a_data_set_that_is_nowhere_says_where_to_put_it(
    arguments: tuple[str, ...], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(place / "no-programs"))
    result = steelyard(*arguments, "--json")
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    for part in ("mnist is not on this computer", f"STEELYARD_DATA is {place / 'data'}", "no network"):
        assert part in error
        assert part in result.stderr
    assert "Traceback" not in result.stderr


def test_a_run_in_which_every_client_fails_ends_with_code_1_and_is_recorded(place: Path) -> None:
    result = steelyard("run", "model=mine_for_cli:Stubborn", *QUICK)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: client 'client-0' failed in round 1 while training")
    assert "does not like to train" in result.stderr
    (path,) = (place / "runs").iterdir()
    assert Run(path).meta["status"] == "failed"
    assert "does not like to train" in output(steelyard("show", path))


@pytest.mark.parametrize("arguments", [("show",), ("run", "--no-such-option"), ("no",)])
def test_a_wrong_use_of_a_command_ends_with_code_2_and_how_to_use_it(arguments: tuple[str, ...]) -> None:
    result = steelyard(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage:" in result.stderr


# Help


def leaves(command: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every command that does something, by the words that call it."""
    if not hasattr(command, "commands"):
        return {path: command}
    return {
        words: leaf
        for name, each in command.commands.items()
        for words, leaf in leaves(each, (*path, name)).items()
    }


COMMANDS = leaves(typer.main.get_command(app))


def test_the_commands_are_those_that_are_promised() -> None:
    top = {("run",), ("compare",), ("show",), ("list",)}
    assert set(COMMANDS) >= top | {("data", name) for name in ("list", "get", "where", "show")}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_says_what_a_command_does_and_takes(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    text = " ".join(output(steelyard(*words, "--help")).split())
    assert (command.help or "").splitlines()[0] in text
    assert "--json" in text
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            assert parameter.metavar in text
    if words in {("run",), ("compare",), ("data", "show")}:
        assert f"Example{'s' * (words == ('run',))}:" in text
        assert f"steelyard {' '.join(words)} " in text.partition("Example")[2]


def test_without_a_command_there_is_help() -> None:
    result = steelyard()
    text = result.stdout + result.stderr
    for name in ("run", "compare", "show", "list", "data"):
        assert f" {name} " in text


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("data", "show", "fedavg", "fedprox"), "one preset or spec at a time"),
        (("run", "rounds=1", "--out", "a-file"), "a-file"),
        (("compare", "fedavg", "--seeds", "0,0"), "--seeds"),
        (("list", "rule"), "did you mean 'rules'"),
        (("data", "get", "json:loads"), "SOURCE"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(place: Path, words: tuple[str, ...], part: str) -> None:
    (place / "a-file").write_text("not a folder")
    result = steelyard(*words)
    assert result.exit_code == 2
    assert part in result.stderr


def test_a_spec_file_may_have_any_name(place: Path) -> None:
    (place / "my spec.toml").write_text("rounds = 1\n[data]\nclients = 2\n")
    assert "my-spec" in output(steelyard("run", "my spec.toml"))


def test_everything_that_a_spec_can_name_can_be_listed() -> None:
    assert set(KINDS) == {*registry.FAMILIES, "presets"}


def test_spec_prints_a_file_that_runs_as_it_is(place: Path) -> None:
    words = ("fedprox", *QUICK, "objective.mu=0.3")
    (place / "mine.toml").write_text(output(steelyard("spec", *words)))
    assert load_spec("mine.toml") == load_spec("fedprox", dict(map(parse_override, words[1:])))
    assert json.loads(output(steelyard("spec", *words, "--json")))["objective"]["mu"] == 0.3
    assert output(steelyard("run", "mine.toml"))
