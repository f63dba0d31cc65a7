"""What each command does."""

import json
import tomllib
from pathlib import Path

import pytest
from calls import QUICK, output, steelyard

import steelyard as sy
from steelyard import components
from steelyard.cli.catalogue import KINDS
from steelyard.runs.reader import Run
from steelyard.specs.schema import load_spec
from steelyard.specs.sources import parse_override, presets


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


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_data_show_draws_the_split_as_the_name_of_the_file_says(
    ending: str, start: bytes, place: Path
) -> None:
    (place / "deep").mkdir()
    text = output(steelyard("data", "show", "data.clients=4", "--figure", f"deep/split.{ending}"))
    assert (place / f"deep/split.{ending}").read_bytes().startswith(start)
    assert f"deep/split.{ending}" in text


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


@pytest.mark.parametrize("kind", [*components.FAMILIES, "presets"])
def test_everything_that_a_spec_can_name_is_listed(kind: str) -> None:
    found = json.loads(output(steelyard("list", kind, "--json")))[kind]
    text = output(steelyard("list", kind))
    assert found
    for each in found:
        assert each["about"], each["name"]
        assert any(line.startswith(each["name"]) for line in text.splitlines())
    if kind != "presets":
        assert [each["name"] for each in found] == list(components.names(kind))


def test_a_spec_file_may_have_any_name(place: Path) -> None:
    (place / "my spec.toml").write_text("rounds = 1\n[data]\nclients = 2\n")
    assert "my-spec" in output(steelyard("run", "my spec.toml"))


def test_everything_that_a_spec_can_name_can_be_listed() -> None:
    assert set(KINDS) == {*components.FAMILIES, "presets", "training", "server", "scores"}


@pytest.mark.parametrize("width", ["20", "80", "300"])
@pytest.mark.parametrize("name", presets())
def test_spec_prints_valid_toml_of_every_preset_at_any_width(
    name: str, width: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    text = output(steelyard("spec", name))
    spec = load_spec(name)
    assert tomllib.loads(text)["about"] == spec.about
    (place / "mine.toml").write_text(text)
    again = load_spec("mine.toml")
    assert again == spec
    assert again.fingerprint() == spec.fingerprint()
    assert output(steelyard("spec", "mine.toml")) == text


def test_spec_prints_a_file_that_runs_as_it_is(place: Path) -> None:
    words = ("fedprox", *QUICK, "objective.mu=0.3")
    (place / "mine.toml").write_text(output(steelyard("spec", *words)))
    assert load_spec("mine.toml") == load_spec("fedprox", dict(map(parse_override, words[1:])))
    assert json.loads(output(steelyard("spec", *words, "--json")))["objective"]["mu"] == 0.3
    assert output(steelyard("run", "mine.toml"))


def test_the_header_of_a_run_says_what_was_changed() -> None:
    text = output(steelyard("run", "fedavg", "weighing=majority", *QUICK))
    name = "fedavg+rounds=2+data.clients=3+weighing=majority+training.steps=2"
    assert text.startswith(f"{name}  digits")
    (folder,) = Path("runs").iterdir()
    assert folder.name.endswith(f"-{name}-s0")


def test_training_server_and_scores_are_listed_with_their_defaults() -> None:
    training = {
        each["name"]: each for each in json.loads(output(steelyard("list", "training", "--json")))["training"]
    }
    assert training["training.lr"]["default"] == 0.1
    assert training["training.clip_norm"]["default"] is None
    assert "gradient" in training["training.clip_norm"]["about"]
    server = json.loads(output(steelyard("list", "server", "--json")))["server"]
    assert all(each["about"] for each in (*training.values(), *server))
    assert "server.clip" in output(steelyard("list", "server"))
    listed = output(steelyard("list", "scores"))
    summary = json.loads(output(steelyard("run", *QUICK, "data.holdout=0.2", "--json")))
    for name in summary["metrics"]:
        assert any(line.startswith(f"{name} ") for line in listed.splitlines()), name


def test_spec_shows_options_that_are_not_set_as_comments(place: Path) -> None:
    text = output(steelyard("spec", "fedavg"))
    lines = text.splitlines()
    top = lines[: lines.index("[engine]")]
    assert {'# clients_per_round = "none"', '# patience = "none"'} <= set(top)
    assert '# shift = "none"' in lines[lines.index("[data]") : lines.index("[data.dataset]")]
    assert '# steps = "none"' in lines[lines.index("[training]") : lines.index("[server]")]
    assert '# clip = "none"' in lines[lines.index("[server]") :]
    assert tomllib.loads(text) == tomllib.loads(load_spec("fedavg").to_toml())
    (place / "all.toml").write_text("\n".join(line.removeprefix("# ") for line in lines))  # they can be set
    assert load_spec(place / "all.toml").fingerprint() == load_spec("fedavg").fingerprint()
