"""MLflow and TensorBoard, read back through their own readers."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tracked_runs import HOSTILE, interrupted_run, one_round, small_run

import steelyard as sy
from steelyard.errors import ObserverWarning
from steelyard.observers import MLflow, TensorBoard
from steelyard.observers.facts import RunFacts
from steelyard.observers.scalars import safe_name, scalars
from steelyard.types import Round

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of SQLAlchemy, which MLflow uses


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{folder}/mlflow.db"
    for name in ("steelyard", "resumed"):
        MlflowClient(uri).create_experiment(name, artifact_location=str(folder / name))
    return uri


@pytest.fixture(autouse=True)
def report(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A report that costs nothing, where a test does not ask for the real one."""
    if "real_report" not in request.fixturenames:
        module = ModuleType("steelyard.page.report")

        def write_report(paths: list[Path], out: Path) -> Path:
            out.write_text(f"report of {paths[0].name}")
            return out

        monkeypatch.setattr(module, "write_report", write_report, raising=False)
        monkeypatch.setitem(sys.modules, "steelyard.page.report", module)


@pytest.fixture
def real_report() -> None:
    """The report as it is written."""


def events(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder)).Reload()


def values(found: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(event.step, round(event.value, 5)) for event in found.Scalars(tag)]


def rounded(pairs: list[tuple[Any, Any]]) -> list[tuple[int, float]]:
    """TensorBoard keeps numbers of single precision."""
    return [(step, round(value, 5)) for step, value in pairs]


def history(uri: str, run: str, key: str) -> list[tuple[int, float]]:
    return sorted((metric.step, metric.value) for metric in MlflowClient(uri).get_metric_history(run, key))


def test_one_run_with_all_four_trackers(tmp_path: Path, store: str) -> None:
    named = ["tensorboard", "csv", "jsonlines", {"name": "mlflow", "tracking_uri": store}]
    result = small_run(tmp_path, observers=named)
    assert result.path is not None
    accuracies = [(row["round"], row["accuracy"]) for row in result.history]
    weights = [(row["round"], row["weight"]) for row in result.clients if row["client"] == "client-1"]

    found = events(result.path / "tensorboard")
    assert values(found, "accuracy") == rounded(accuracies)
    assert values(found, "clients/client-1/weight") == rounded(weights)
    assert len(values(found, "seconds/exchange")) == 2
    assert "parameters/text_summary" in found.Tags()["tensors"]

    client = MlflowClient(store)
    (run,) = client.search_runs([client.get_experiment_by_name("steelyard").experiment_id])
    name = "fedavg+rounds=2+data.clients=3+training.steps=1"
    assert (run.info.status, run.info.run_name) == ("FINISHED", name)
    assert history(store, run.info.run_id, "accuracy") == accuracies
    assert history(store, run.info.run_id, "clients/client-1/weight") == weights
    assert len(history(store, run.info.run_id, "clients/client-2/accuracy")) == 2
    assert run.data.params["training.steps"] == "1"
    assert run.data.params["rounds"] == "2"
    assert run.data.tags["steelyard.folder"] == str(result.path.resolve())
    (artifact,) = client.list_artifacts(run.info.run_id)
    assert artifact.path == "report.html"
    for name in ("rounds.csv", "clients.csv", "rounds.jsonl"):
        assert (result.path / name).read_text("utf-8").count("\n") > 1


def test_a_resumed_run_goes_on_with_the_same_mlflow_run_and_no_round_is_twice(
    tmp_path: Path, store: str
) -> None:
    first = (TensorBoard(), MLflow(store, "resumed"), TensorBoard(tmp_path / "own"))
    path = interrupted_run(tmp_path / "runs", *first, after=3)
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("resumed").experiment_id
    assert [run.info.status for run in client.search_runs([experiment])] == ["KILLED"]
    (run,) = client.search_runs([experiment])
    assert len(history(store, run.info.run_id, "accuracy")) == 3
    result = sy.resume(path, TensorBoard(), MLflow(store, "resumed"))
    (run,) = client.search_runs([experiment])
    wanted = [(row["round"], row["accuracy"]) for row in result.history]
    assert len(wanted) == 4
    assert run.info.status == "FINISHED"
    assert history(store, run.info.run_id, "accuracy") == wanted
    assert values(events(path / "tensorboard"), "accuracy") == rounded(wanted)
    assert len(values(events(tmp_path / "own"), "accuracy")) == 3


def test_rounds_that_a_resumed_run_makes_again_replace_the_old_ones_in_tensorboard(tmp_path: Path) -> None:
    for after, loss in ((None, 9.0), (1, 5.0)):
        tracker = TensorBoard(tmp_path)
        tracker.begin(RunFacts("x", 3, after=after))
        for number in (1, 2, 3) if after is None else (2,):
            tracker(Round(number, {"loss": loss}, ()))
        tracker.end("finished")
    assert values(events(tmp_path), "loss") == [(1, 9.0), (2, 5.0)]


def test_hostile_names_have_keys_of_their_own_in_both(tmp_path: Path, store: str) -> None:
    board, runs = TensorBoard(tmp_path / "board"), MLflow(store, "hostile")
    for tracker in (board, runs):
        tracker.begin(RunFacts("<b>x</b>", 1, {"a": "y" * 9000, "b": None}))
        tracker(one_round())
        tracker.end("failed")
    keys = {f"clients/{safe_name(name)}/weight" for name in HOSTILE}
    assert len(keys) == len(HOSTILE)
    assert {tag for tag in events(tmp_path / "board").Tags()["scalars"] if tag.endswith("weight")} == keys
    run = MlflowClient(store).get_run(runs.run_id)
    assert {key for key in run.data.metrics if key.endswith("weight")} == keys
    assert run.data.metrics["used"] == 8
    assert "loss" not in run.data.metrics  # NaN
    assert run.info.status == "FAILED"


def test_the_state_of_mlflow_itself_is_not_changed(tmp_path: Path, store: str) -> None:
    before = mlflow.get_tracking_uri()
    tracker = MLflow(store)
    tracker.begin(RunFacts("x", 1))
    tracker(one_round())
    assert mlflow.active_run() is None
    tracker.end("finished")
    assert mlflow.get_tracking_uri() == before


def test_a_round_is_one_call(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = MLflow(store)
    tracker.begin(RunFacts("x", 1))
    sizes: list[int] = []
    monkeypatch.setattr(
        MlflowClient, "log_batch", lambda self, run, metrics=(), **others: sizes.append(len(metrics))
    )
    rows = tuple({"client": str(number), "weight": 0.1, "accuracy": 0.5} for number in range(1000))
    tracker(Round(1, {"used": 1000.0}, rows))
    assert sizes == [401]


def test_a_server_that_does_not_answer_does_not_end_the_run(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise mlflow.MlflowException("connection refused")

    monkeypatch.setattr(MlflowClient, "log_batch", refuse)
    with pytest.warns(ObserverWarning, match="observer MLflow failed.*connection refused") as caught:
        assert len(small_run(None, MLflow(store)).history) == 2
    assert len(caught) == 1


def test_the_report_is_an_artifact(tmp_path: Path, store: str, real_report: None) -> None:
    small_run(tmp_path, tracker := MLflow(store))
    path = MlflowClient(store).download_artifacts(tracker.run_id, "report.html", str(tmp_path))
    assert "<html" in Path(path).read_text("utf-8")


def test_only_finite_numbers_of_the_first_200_clients_are_logged() -> None:
    rows = tuple({"client": f"{number:04}", "weight": 0.5, "status": "used"} for number in range(300))
    found = scalars(Round(1, {"loss": float("inf"), "used": 300.0}, rows, {"exchange": 1.0}))
    assert len(found) == 202
    assert found["seconds/exchange"] == 1.0
    assert "clients/0199/weight" in found
    assert "loss" not in found


def test_a_name_that_pretends_to_be_the_safe_name_of_another_does_not_collide() -> None:
    assert safe_name("client-0") == "client-0"
    assert safe_name("sigma.layer1") == "sigma.layer1"
    made = safe_name("a/b")
    assert made.startswith("a_b-")
    assert safe_name(made) != made
    assert safe_name("..") not in ("..", ".")
    assert safe_name("") != ""
    assert len(safe_name("x" * 300)) < 80
