"""Runs of a program are recorded, go on after an interruption to the same bits, and for more rounds."""

import copy
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_federation import CLIENTS, TEST, linear
from torch import Tensor, nn
from torchmetrics.classification import MulticlassF1Score
from typer.testing import CliRunner

import steelyard as sy
from steelyard.attacks import SignFlip
from steelyard.cli import app
from steelyard.errors import InputError, SteelyardWarning
from steelyard.runs import writer
from steelyard.runs.folder import MODEL
from steelyard.runs.run_settings import SETTINGS
from steelyard.runs.writer import Recorder
from steelyard.schedules import Schedule
from steelyard.types import Round


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))


def federation(**settings: Any) -> sy.Federation:
    algorithm = settings.pop("algorithm", {})
    training = {"steps": 3, "lr": 0.2, **settings.pop("training", {})}
    algorithm = sy.Algorithm(**{"server": {"momentum": 0.5}, "training": training, **algorithm})
    settings = {"test": TEST, "rounds": 6, "clients_per_round": 3, "engine": "serial", **settings}
    return sy.Federation(CLIENTS, settings.pop("model", None) or net(), algorithm, **settings)


HEAD: dict[str, Any] = {"algorithm": {"sharing": "head", "server": {}}}


def bits(model: nn.Module) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in model.state_dict().items()}


def rows(result: sy.Result) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if value is not None}
        for row in (*result.history, *result.clients)
        if row.get("status") != "idle"  # clients that are only scored, after the last planned round
    ]


class BreakOffError(Exception):
    """Ends a run in the middle."""


def break_off(round: Round) -> None:
    if round.number == 3:
        raise BreakOffError


def broken(path: Path, **settings: Any) -> Path:
    with pytest.raises(BreakOffError):
        federation(**settings).run(break_off, recorder=path)
    return path


def test_out_is_the_folder_of_many_runs_and_recorder_that_of_one(tmp_path: Path) -> None:
    first, second = (federation(rounds=1).run(out=tmp_path / "runs") for _ in range(2))
    assert first.path is not None
    assert second.path is not None
    assert first.path.parent == second.path.parent == tmp_path / "runs"
    assert f"-{federation(rounds=1).name}-s0" in first.path.name
    assert first.path != second.path
    assert federation(rounds=1).run(recorder=str(tmp_path / "mine")).path == tmp_path / "mine"
    meta = sy.Run(tmp_path / "mine").meta
    assert (meta["name"], meta["status"]) == (federation(rounds=1).name, "finished")
    with pytest.raises(InputError, match="give one of them"):
        federation().run(out=tmp_path, recorder=tmp_path / "x")
    with pytest.raises(InputError, match="recorder must be the path of a folder, or a Recorder, not 3"):
        federation().run(recorder=3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="exists and is not empty"):
        federation().run(recorder=tmp_path / "mine")


@pytest.mark.parametrize("every_round", [True, False])
@pytest.mark.parametrize("settings", [{}, HEAD, {**HEAD, "spill": True}], ids=["whole", "head", "spilled"])
def test_an_interrupted_run_ends_as_if_nothing_had_happened(
    settings: dict[str, Any], every_round: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if every_round:
        monkeypatch.setattr(writer, "STATE_SECONDS", 0.0)
    wanted = federation(**settings).run(recorder=tmp_path / "whole")
    numbers: list[int] = []
    path = broken(tmp_path / "broken", **settings)
    found = federation(**settings).resume(path, lambda round: numbers.append(round.number))
    assert numbers == [4, 5, 6]
    assert bits(found.model) == bits(wanted.model)
    assert (path / MODEL).read_bytes() == (tmp_path / "whole" / MODEL).read_bytes()
    assert rows(found) == rows(wanted)
    for client in CLIENTS:
        assert bits(found.model_of(client)) == bits(wanted.model_of(client))


def test_a_finished_run_is_read_back_and_not_changed(tmp_path: Path) -> None:
    wanted = federation(monitor="accuracy", validation=0.2).run(recorder=tmp_path / "run")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*.s*")}
    found = federation(monitor="accuracy", validation=0.2).resume(tmp_path / "run")
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*.s*")} == before
    assert bits(found.model) == bits(wanted.model)
    assert rows(found) == rows(wanted)
    assert found.best_round == wanted.best_round
    assert found.path == wanted.path


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"training": {"lr": 0.3}}, r"training\.lr was 0\.2, now 0\.3"),
        ({"seed": 1}, "seed was 0, now 1"),
        ({"clients_per_round": 2}, "clients_per_round was 3, now 2"),
        ({"test": None}, "test examples was 60, now None"),
        ({"algorithm": {"weighing": "uniform"}}, "weighing was Samples, now Uniform"),
        ({"adversaries": {"oslo": "sign-flip"}}, r"adversaries\.oslo was not set, now SignFlip"),
        ({"engine": "vectorized"}, "engine was serial, pool or ray, now vectorized"),
        ({"model": linear()}, "model was "),
    ],
)
def test_a_changed_setting_is_refused_by_name(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = broken(tmp_path / "run")
    with pytest.raises(InputError, match=f"would not end with the numbers of an unbroken run: .*{words}"):
        federation(**settings).resume(path)
    federation().resume(path)


def test_other_private_layers_to_begin_with_are_noticed(tmp_path: Path) -> None:
    path = broken(tmp_path / "run", **HEAD)
    with pytest.raises(InputError, match="the first values of what is not shared was"):
        federation(**HEAD, model=nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))).resume(path)


def frozen(seed: int, norm: bool = False) -> nn.Module:
    """A model whose first layer is not trained; all that is trained is the same with every seed."""
    model = net()
    torch.manual_seed(seed)
    for parameter in model[0].parameters():
        nn.init.normal_(parameter).requires_grad_(False)
    if norm:
        model.insert(1, nn.BatchNorm1d(4))
        nn.init.normal_(model[1].running_mean)
    return model


TRAINABLE: dict[str, Any] = {"algorithm": {"sharing": "trainable"}}
FIXED: dict[str, Any] = {"algorithm": {"sharing": {"name": "trainable", "buffers": "fixed"}}}


@pytest.mark.parametrize("settings", [TRAINABLE, FIXED], ids=["frozen", "fixed-buffers"])
def test_other_values_that_do_not_travel_are_noticed(settings: dict[str, Any], tmp_path: Path) -> None:
    first, other = frozen(0, settings is FIXED), frozen(1, settings is FIXED)
    if settings is FIXED:
        other[0].load_state_dict(first[0].state_dict())
    path = broken(tmp_path / "run", **settings, model=first)
    result = federation(**settings, model=first).run(rounds=2)
    for run in (path, result):
        with pytest.raises(InputError, match="the first values of what is not shared was"):
            federation(**settings, model=other).resume(run)
        assert federation(**settings, model=first).resume(run).state.round == 6


def test_other_values_of_what_is_shared_do_not_matter(tmp_path: Path) -> None:
    path = broken(tmp_path / "run")
    other = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))
    assert bits(federation(model=other).resume(path).model) == bits(federation().run().model)


def test_another_layer_of_the_same_shapes_is_noticed(tmp_path: Path) -> None:
    path = broken(tmp_path / "run")
    with pytest.raises(InputError, match="model was"):
        federation(model=nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))).resume(path)


def cross_entropy(outputs: Tensor, targets: Tensor, weight: float = 1.0) -> Tensor:
    return weight * F.cross_entropy(outputs, targets)


def right(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(1) == targets).float().mean()


def falling(factor: float) -> Schedule:
    """A schedule of one's own; the code of its class is another for another factor."""
    body = f"    def decay(self, past, rounds):\n        return {factor} ** past"
    found: dict[str, Any] = {"Schedule": Schedule, "__name__": __name__}
    exec(f"class Falling(Schedule):\n{body}", found)
    made: Schedule = found["Falling"]()
    return made


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param(
            {"algorithm": {"objective": nn.CrossEntropyLoss(label_smoothing=0.1)}},
            {"algorithm": {"objective": nn.CrossEntropyLoss(label_smoothing=0.5)}},
            id="smoothing",
        ),
        pytest.param(
            {"algorithm": {"objective": nn.CrossEntropyLoss(weight=torch.ones(3))}},
            {"algorithm": {"objective": nn.CrossEntropyLoss(weight=torch.tensor([9.0, 1, 1]))}},
            id="weight",
        ),
        pytest.param(
            {"algorithm": {"objective": partial(cross_entropy, weight=2.0)}},
            {"algorithm": {"objective": partial(cross_entropy, weight=3.0)}},
            id="partial",
        ),
        pytest.param(
            {"algorithm": {"training": sy.Training(steps=3, schedule=lambda progress: 1.0)}},
            {"algorithm": {"training": sy.Training(steps=3, schedule=lambda progress: 0.5)}},
            id="schedule",
        ),
        pytest.param(
            {"algorithm": {"training": sy.Training(steps=3, schedule=falling(0.9))}},
            {"algorithm": {"training": sy.Training(steps=3, schedule=falling(0.5))}},
            id="class",
        ),
        pytest.param(
            {"training": {"lr": 0.1, "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1)}},
            {"training": {"lr": 0.1, "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.2)}},
            id="optimizer",
        ),
        pytest.param(
            {"task": sy.Task(call=lambda model, x: model(x))},
            {"task": sy.Task(call=lambda model, x: model(2 * x))},
            id="call",
        ),
        pytest.param(
            {"metrics": {"f1": MulticlassF1Score(3)}},
            {"metrics": {"f1": MulticlassF1Score(3, average="micro")}},
            id="metric",
        ),
        pytest.param({"metrics": {"own": right}}, {"metrics": {"own": cross_entropy}}, id="own-metric"),
        pytest.param(
            {"adversaries": {"oslo": SignFlip(scale=2.0)}},
            {"adversaries": {"oslo": SignFlip(scale=3.0)}},
            id="attack",
        ),
    ],
)
def test_a_changed_object_is_refused(before: dict[str, Any], now: dict[str, Any]) -> None:
    result = federation(**before).run(rounds=1)
    with pytest.raises(InputError, match=r"would not end with the numbers of an unbroken run: .* was "):
        federation(**now).resume(result)
    assert federation(**copy.deepcopy(before)).resume(result, rounds=2).state.round == 2


def test_an_object_that_counts_its_calls_has_not_changed_for_the_same_federation() -> None:
    calls: list[int] = []

    def counting(outputs: Tensor, targets: Tensor) -> Tensor:
        calls.append(1)
        return cross_entropy(outputs, targets)

    made = federation(algorithm={"objective": counting})
    result = made.run(rounds=1)
    assert calls
    assert made.resume(result, rounds=2).state.round == 2


def test_an_engine_of_the_same_bits_may_go_on(tmp_path: Path) -> None:
    path = broken(tmp_path / "run")
    found = federation(engine={"name": "pool", "workers": 2}).resume(path)
    assert bits(found.model) == bits(federation().run().model)


def test_anyway_goes_on_and_says_what_was_changed(tmp_path: Path) -> None:
    path = broken(tmp_path / "run")
    with pytest.warns(SteelyardWarning, match=r"training\.lr was 0\.2, now 0\.3"):
        found = federation(training={"lr": 0.3}).resume(path, anyway=True)
    assert len(found.history) == 6
    assert "training.lr" in sy.Run(path).meta["anyway"]
    assert json.loads(sy.Run(path).meta[SETTINGS])["training.lr"] == 0.3


def test_another_environment_is_refused(tmp_path: Path) -> None:
    path = broken(tmp_path / "run")
    file = path / "environment.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "python": "3.1"}))
    with pytest.raises(InputError, match=r"python was 3\.1, now .*anyway=True"):
        federation().resume(path)


@pytest.mark.parametrize("settings", [{}, HEAD, {**HEAD, "spill": True}], ids=["whole", "head", "spilled"])
def test_more_rounds_have_the_bits_of_a_run_that_was_planned_so(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    wanted = federation(**settings).run(recorder=tmp_path / "whole")
    federation(**{**settings, "rounds": 4}).run(recorder=tmp_path / "run")
    found = federation(**{**settings, "rounds": 4}).resume(tmp_path / "run", rounds=6)
    assert bits(found.model) == bits(wanted.model)
    assert rows(found) == rows(wanted)
    for client in CLIENTS:
        assert bits(found.model_of(client)) == bits(wanted.model_of(client))
    assert sy.Run(tmp_path / "run").meta["rounds"] == "6"
    assert len(federation(**settings).resume(tmp_path / "run").history) == 6


@pytest.mark.parametrize("settings", [{}, HEAD], ids=["whole", "head"])
def test_a_result_in_memory_goes_on_and_is_not_changed(settings: dict[str, Any]) -> None:
    wanted = federation(**settings).run()
    short = federation(**settings).run(rounds=4)
    before = {client: bits(short.model_of(client)) for client in CLIENTS}
    found = federation(**settings).resume(short)
    assert bits(found.model) == bits(wanted.model)
    assert rows(found) == rows(wanted)
    assert bits(found.model_of("oslo")) == bits(wanted.model_of("oslo"))
    assert {client: bits(short.model_of(client)) for client in CLIENTS} == before
    with pytest.raises(InputError, match="the result is after round 4, but rounds is 3"):
        federation(**settings).resume(short, rounds=3)


def test_a_result_in_memory_goes_on_with_other_settings_only_if_that_is_meant(tmp_path: Path) -> None:
    short = federation().run(rounds=2)
    other = federation(training={"lr": 0.3}, seed=7)
    words = r"the run would not end .* seed was 0, now 7, training\.lr was 0\.2, now 0\.3; .*`anyway=True`"
    with pytest.raises(InputError, match=words):
        other.resume(short, recorder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.warns(SteelyardWarning, match="was") as caught:
        found = other.resume(short, recorder=tmp_path / "run", anyway=True)
    assert {warning.filename for warning in caught} == {__file__}, "they point to the call"
    assert len(found.history) == 6
    assert "training.lr was 0.2" in sy.Run(tmp_path / "run").meta["anyway"]
    with pytest.raises(InputError, match="its settings are not recorded"):
        federation().resume(replace(short, settings=None))


def test_a_result_in_memory_goes_on_in_another_environment_only_if_that_is_meant() -> None:
    short = federation().run(rounds=2)
    assert short.settings is not None
    with pytest.raises(InputError, match=r"torch was 1\.0, now "):
        federation().resume(replace(short, settings={**short.settings, "torch": "1.0"}))


@pytest.mark.parametrize("settings", [{}, HEAD, {**HEAD, "spill": True}], ids=["whole", "head", "spilled"])
def test_a_result_in_memory_can_be_recorded_from_now_on(settings: dict[str, Any], tmp_path: Path) -> None:
    wanted = federation(**settings).run(recorder=tmp_path / "whole")
    short = federation(**{**settings, "spill": False}).run(rounds=2)
    with pytest.raises(BreakOffError):
        federation(**settings).resume(short, break_off, recorder=tmp_path / "run")
    found = federation(**settings).resume(tmp_path / "run")
    assert rows(found) == rows(wanted)
    assert bits(found.model) == bits(wanted.model)
    for client in CLIENTS:
        assert bits(found.model_of(client)) == bits(wanted.model_of(client))
    with pytest.raises(InputError, match="leave out `out` and `recorder`"):
        federation(**settings).resume(tmp_path / "run", out=tmp_path)


def test_a_state_goes_on_in_a_record_of_its_own_that_can_be_resumed(tmp_path: Path) -> None:
    short = federation().run(rounds=2)
    with pytest.raises(BreakOffError):
        federation().run(break_off, state=short.state, recorder=tmp_path / "run")
    assert [row["round"] for row in sy.Run(tmp_path / "run").rounds] == [3]
    found = federation().resume(tmp_path / "run")
    assert [row["round"] for row in found.history] == [3, 4, 5, 6]
    assert bits(found.model) == bits(federation().run().model)


def test_a_run_that_is_interrupted_while_a_round_is_recorded_saves_no_state_without_its_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Recorder.__call__

    def interrupted(self: Recorder, round: Round) -> None:
        if round.number == 3:
            raise BreakOffError
        record(self, round)

    monkeypatch.setattr(Recorder, "__call__", interrupted)
    with pytest.raises(BreakOffError):
        federation().run(recorder=tmp_path / "run")
    monkeypatch.setattr(Recorder, "__call__", record)
    run = sy.Run(tmp_path / "run")
    assert [row["round"] for row in run.rounds] == [1, 2, 3]
    assert run.meta["saved"] == "3"
    assert bits(federation().resume(tmp_path / "run").model) == bits(federation().run().model)


def test_a_state_without_the_private_layers_is_refused() -> None:
    short = federation(**HEAD).run(rounds=2)
    with pytest.raises(InputError, match=r"not the private layers of the clients; .*federation\.resume"):
        federation(**HEAD).run(state=short.state)


def test_another_number_of_rounds_must_be_meant(tmp_path: Path) -> None:
    federation().run(recorder=tmp_path / "run")
    with pytest.raises(InputError, match=r"was to have 6 rounds, and this federation has 9: pass `rounds=9`"):
        federation(rounds=9).resume(tmp_path / "run")
    with pytest.raises(InputError, match="has 6 rounds already: `rounds` must be at least 6, not 5"):
        federation().resume(tmp_path / "run", rounds=5)
    with pytest.raises(InputError, match="rounds must be at least 1, not 0"):
        federation().run(rounds=0)


def test_what_is_no_folder_is_refused() -> None:
    with pytest.raises(InputError, match="out must be the path of a folder, not 3"):
        federation().run(out=3)  # type: ignore[arg-type]


def test_a_shorter_federation_says_how_to_read_or_train_on_a_longer_run(tmp_path: Path) -> None:
    federation().run(recorder=tmp_path / "run")
    with pytest.raises(InputError, match=r"has 6 rounds already, and this federation has 3; .*`rounds=16`"):
        federation(rounds=3).resume(tmp_path / "run")


def test_more_rounds_are_counted_from_those_that_are_done(tmp_path: Path) -> None:
    whole = bits(federation(rounds=6).run().model)
    first = federation(rounds=4).run()
    assert bits(federation(rounds=4).resume(first, rounds="+2").model) == whole
    assert bits(federation(rounds=4).run(state=first.state, rounds="+2").model) == whole
    federation().run(recorder=tmp_path / "run", rounds="+4")
    found = federation().resume(tmp_path / "run", rounds="+2")
    assert (found.state.round, bits(found.model)) == (6, whole)
    for text in ("2", "+", "-2", "+2.5", "more"):
        with pytest.raises(InputError, match='or, for more rounds, a text such as "\\+10", not'):
            federation().run(rounds=text)


def test_a_run_that_lost_its_patience_gets_more_of_it_with_more_rounds(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"patience": 1, "validation": 0.2, "training": {"steps": 0}}
    early = federation(**settings).run(recorder=tmp_path / "run")
    assert early.state.round == 2
    assert federation(**settings).resume(tmp_path / "run").state.round == 2
    assert federation(**settings).resume(tmp_path / "run", rounds=6).state.round == 3


def test_a_run_of_a_spec_is_not_that_of_a_federation(tmp_path: Path) -> None:
    result = sy.run(None, out=tmp_path, rounds=1, **{"data.clients": 3, "training.steps": 1})
    assert result.path is not None
    with pytest.raises(InputError, match=r"made from a spec; `steelyard\.resume`"):
        federation().resume(result.path)


def test_the_command_line_says_that_a_program_must_go_on(tmp_path: Path) -> None:
    path = broken(tmp_path / "run")
    with pytest.raises(InputError, match=r"has no spec\.toml: a program made it.*federation\.resume"):
        sy.resume(path)
    found = CliRunner().invoke(app, ["resume", str(path)])
    assert found.exit_code != 0
    assert "federation.resume(" in found.stderr.replace("\n", " ")


def test_a_recorder_of_ones_own_is_enough_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(BreakOffError):
        federation().run(break_off, recorder=Recorder(tmp_path / "run"))
    assert bits(federation().resume(tmp_path / "run").model) == bits(federation().run().model)
