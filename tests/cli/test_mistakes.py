"""Bad input gets one sentence and code 2, a failure code 1."""

import json
from pathlib import Path

import pytest
from calls import QUICK, output, steelyard

from steelyard.runs.reader import Run

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
    "runs that are not there": (
        ("compare", "runs/*"),
        "runs/* is no preset, and there is no such file or folder",
    ),
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
    "a folder that is no run": (("show", "."), ". is not a recorded run: it has no record.sqlite."),
    "a folder that is not there": (("show", "gone"), "gone is not a recorded run: there is no such folder."),
    "a folder of runs": (
        ("show", "recorded"),
        "recorded is not a recorded run: name one in it, such as recorded/b.",
    ),
    "a model of no run": (("calibration", "."), "is not a recorded run"),
    "an unknown data set": (("data", "get", "mnits"), "did you mean 'mnist'?"),
    "a wrong split": (("data", "show", "data.partition=shads"), "did you mean 'shards'?"),
    "a split of numbers": (("data", "show", "data.dataset=synthetic-linear"), "no classes to draw"),
}


@pytest.mark.parametrize(("arguments", "sentence"), BAD.values(), ids=BAD)
def test_bad_input_gets_one_sentence_and_code_2(
    arguments: tuple[str, ...], sentence: str, place: Path
) -> None:
    (place / "broken.toml").write_text("rounds = = 3")
    (place / "binary.toml").write_bytes(b"\x89PNG\xff\xfe")
    for name in ("a", "b"):
        (place / "recorded" / name).mkdir(parents=True)
        (place / "recorded" / name / "record.sqlite").touch()
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


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("data", "show", "fedavg", "fedprox"), "one preset or spec at a time"),
        (("run", "rounds=1", "--out", "a-file"), "a-file"),
        (("compare", "fedavg", "--seeds", "0,0"), "--seeds"),
        (("list", "rule"), "did you mean 'sharing' or 'weighing' or 'combining'?"),
        (("list", "rules"), "did you mean 'sharing' or 'weighing' or 'combining'?"),
        (("list", "combiners"), "did you mean 'combining'?"),
        (("list", "aggregators"), "choose from attacks, combining, datasets"),
        (("data", "get", "json:loads"), "SOURCE"),
    ],
)
def test_other_mistakes_are_explained_and_end_with_code_2(
    place: Path, words: tuple[str, ...], part: str
) -> None:
    (place / "a-file").write_text("not a folder")
    result = steelyard(*words)
    assert result.exit_code == 2
    assert part in result.stderr
