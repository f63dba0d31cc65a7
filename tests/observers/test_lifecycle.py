"""Trackers are told how a run begins and ends; one that fails is dropped, and the run goes on."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tracked_runs import SMALL, Diary, interrupted_run, small_run

import steelyard as sy
from steelyard.errors import InputError, ObserverWarning
from steelyard.observers.base import Watching
from steelyard.observers.facts import RunFacts, need
from steelyard.runs.summary import flattened


def test_a_tracker_is_told_the_beginning_every_round_and_the_end(tmp_path: Path) -> None:
    diary = Diary()
    result = small_run(tmp_path, diary)
    assert [kind for kind, _ in diary.told] == ["begin", "round", "round", "end"]
    assert diary.told[1:] == [("round", 1), ("round", 2), ("end", "finished")]
    facts = diary.facts
    assert result.path is not None
    assert (facts.name.partition("+")[0], facts.rounds, facts.after) == ("fedavg", 2, None)
    assert facts.folder == result.path.resolve()
    assert facts.parameters["training.steps"] == 1
    assert facts.parameters["weighing"] == "samples"
    assert facts.parameters["data.partition.alpha"] == 0.3
    assert "observers" not in facts.parameters


def test_observers_have_names_in_python_too(tmp_path: Path) -> None:
    data = (torch.randn(20, 3), torch.arange(20) % 2)
    federation = sy.Federation({"a": data, "b": data}, torch.nn.Linear(3, 2), rounds=1)
    result = federation.run("csv", {"name": "jsonlines", "path": str(tmp_path / "a.jsonl")}, out=tmp_path)
    federation.resume(result, "csv", rounds=2)
    assert result.path is not None
    assert len((result.path / "rounds.csv").read_text().splitlines()) == 3
    assert (tmp_path / "a.jsonl").is_file()
    spec = {"rounds": 1, "data.clients": 2, "training.steps": 1, "out": tmp_path / "specs"}
    recorded = sy.run(None, "csv", **spec)
    assert recorded.path is not None
    assert (recorded.path / "rounds.csv").is_file()


@pytest.mark.parametrize(
    ("observer", "sentence"),
    [
        ("cvs", r"^unknown observer 'cvs': did you mean 'csv'\?"),
        (3, r"^an observer must be a function of a round, a name such as 'csv', or .*, not 3\.$"),
        (["csv"], r"^an observer must be a function of a round, .*, not \['csv'\]\.$"),
        (sy.observers.CSV, r"^the observer CSV is a class, not an object of it: write CSV\(\)\.$"),
    ],
)
def test_what_is_no_observer_is_refused_before_anything_is_recorded(
    observer: Any, sentence: str, tmp_path: Path
) -> None:
    data = (torch.randn(20, 3), torch.arange(20) % 2)
    federation = sy.Federation({"a": data, "b": data}, torch.nn.Linear(3, 2), rounds=1)
    with pytest.raises(InputError, match=sentence):
        federation.run(observer, out=tmp_path / "runs")
    with pytest.raises(InputError, match=sentence):
        sy.run(None, observer, out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_federation_without_a_spec_gives_the_settings_of_its_algorithm() -> None:
    data = (torch.randn(20, 3), torch.arange(20) % 2)
    diary = Diary()
    sy.Federation({"a": data, "b": data}, torch.nn.Linear(3, 2), rounds=1, seed=7).run(diary)
    facts = diary.facts
    assert facts.folder is None
    assert {
        "clients": 2,
        "seed": 7,
        "weighing": "Samples",
        "training.lr": 0.1,
    }.items() <= facts.parameters.items()


def test_the_record_is_complete_when_a_tracker_ends(tmp_path: Path) -> None:
    seen = []

    class Reader(Diary):
        def end(self, status: str) -> None:
            assert self.facts.folder is not None
            seen.append(sy.Run(self.facts.folder).meta["status"])

    small_run(tmp_path, Reader())
    assert seen == ["finished"]


def test_an_interrupted_run_and_its_continuation(tmp_path: Path) -> None:
    first, second = Diary(), Diary()
    path = interrupted_run(tmp_path, first, after=2)
    assert first.told[1:] == [("round", 1), ("round", 2), ("end", "interrupted")]
    sy.resume(path, second)
    after = second.facts.after
    assert after is not None
    assert after <= 2
    assert second.told[1:] == [*(("round", number) for number in range(after + 1, 5)), ("end", "finished")]


@pytest.mark.parametrize("failing", ["begin", "round", "end"])
def test_a_tracker_that_fails_is_dropped_once_and_changes_nothing(tmp_path: Path, failing: str) -> None:
    wanted = small_run(None)
    broken, healthy = Diary(failing), Diary()
    with pytest.warns(ObserverWarning, match=r"observer Diary failed.*OSError: the disk is full") as caught:
        result = small_run(tmp_path, broken, healthy)
    assert len(caught) == 1
    assert list(result.history) == list(wanted.history)
    assert broken.told[-1][0] == failing
    assert [kind for kind, _ in broken.told].count("round") == {"begin": 0, "round": 1, "end": 2}[failing]
    assert healthy.told[-1] == ("end", "finished")
    assert result.path is not None
    assert sy.Run(result.path).meta["status"] == "finished"


def test_an_input_error_in_the_beginning_is_raised_and_later_it_only_drops_the_tracker() -> None:
    other = Diary()
    with pytest.raises(InputError, match="the disk"):
        small_run(None, other, Diary("begin", InputError))
    assert other.told[1:] == [("end", "failed")]
    with pytest.warns(ObserverWarning, match="InputError"):
        small_run(None, Diary("round", InputError))


def test_errors_of_plain_functions_end_the_run_as_they_always_did() -> None:
    def fail(round: Any) -> None:
        raise ZeroDivisionError

    diary = Diary()
    with pytest.raises(ZeroDivisionError):
        small_run(None, diary, fail)
    assert diary.told[-1] == ("end", "failed")


def test_a_tracker_that_was_not_begun_is_not_ended() -> None:
    diary = Diary()
    with Watching([diary]):
        pass
    assert diary.told == []


def test_settings_are_flattened_and_the_name_of_a_choice_stands_for_it() -> None:
    table = {"seed": 1, "model": {"name": "mlp", "hidden": 3, "of": [1, 2]}, "name": "x"}
    assert flattened(table) == {
        "seed": 1,
        "model": "mlp",
        "model.hidden": 3,
        "model.of": "[1, 2]",
        "name": "x",
    }
    assert flattened({"training": sy.Training()})["training"] == "Training"
    assert flattened(sy.Algorithm(objective="cross-entropy"))["objective.label_smoothing"] == 0.0


def test_a_library_that_is_not_installed_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(InputError, match=r'pip install "steelyard\[mlflow\]"'):
        need("no_such_library_at_all", "mlflow")


def test_without_the_library_a_run_is_refused_before_it_has_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steelyard.observers.facts.find_spec", lambda name: None)
    for name in ("mlflow", "tensorboard"):
        with pytest.raises(InputError, match="is not installed: pip install"):
            sy.run("fedavg", out=tmp_path, observers=[name], **SMALL)
    assert not any(tmp_path.iterdir())


def test_a_tracker_needs_a_place_to_write_to() -> None:
    for tracker in (sy.observers.CSV(), sy.observers.JSONLines(), sy.observers.TensorBoard()):
        with pytest.raises(InputError, match="not recorded, so its observer needs a `path`"):
            tracker.begin(RunFacts("x", 1))
