"""Callbacks see every round with its model and state, and may stop the run."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_federation import CLIENTS, TEST, linear
from torch import nn

import steelyard as sy
from steelyard import RoundEvent
from steelyard.errors import InputError
from steelyard.runs.folder import MODEL
from steelyard.types import Round


def federation(**settings: Any) -> sy.Federation:
    return sy.Federation(CLIENTS, linear(), **{"test": TEST, "rounds": 5, "engine": "serial", **settings})


def bits(model: nn.Module) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in model.state_dict().items()}


def test_a_callback_sees_the_round_its_state_and_its_model() -> None:
    models, numbers, order = {}, [], []

    def watch(event: RoundEvent) -> None:
        assert event.model is event.model
        models[event.round.number] = bits(event.model)
        numbers.append((event.round.number, event.state.round, event.round.metrics["accuracy"]))
        order.append("callback")

    def observe(round: Round) -> None:
        order.append("observer")

    result = federation(callbacks=watch).run(observe)
    assert numbers == [(row["round"], row["round"], row["accuracy"]) for row in result.history]
    for rounds in (1, 3, 5):
        assert models[rounds] == bits(federation(rounds=rounds).run().model)
    assert order == ["observer", "callback"] * 5


def test_none_means_no_callbacks() -> None:
    assert len(federation(callbacks=None).run(callbacks=None).history) == 5


def test_the_model_is_a_copy_that_is_made_only_if_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(event: RoundEvent) -> None:
        with torch.no_grad():
            for parameter in event.model.parameters():
                parameter.fill_(7.0)

    assert bits(federation().run(callbacks=[spoil]).model) == bits(federation().run().model)
    made: list[int] = []
    event = RoundEvent(Round(1, {}, ()), None, lambda state: made.append(1) or linear())  # type: ignore[arg-type, func-returns-value]
    assert made == []
    assert event.model is event.model
    assert made == [1]


def test_the_model_is_the_head_where_only_that_is_shared() -> None:
    shapes = set()
    algorithm = sy.Algorithm(sharing="head", training={"steps": 1})
    body = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))
    made = sy.Federation(CLIENTS, body, algorithm, rounds=2, engine="serial")
    result = made.run(callbacks=lambda event: shapes.add(tuple(event.model.weight.shape)))
    assert shapes == {(3, 4)} == {tuple(result.model.weight.shape)}  # type: ignore[arg-type]


def test_a_callback_stops_the_run_after_its_round(tmp_path: Path) -> None:
    def stop(event: RoundEvent) -> None:
        if event.round.number == 3:
            event.stop()

    seen: list[int] = []
    result = federation().run(
        recorder=tmp_path / "run", callbacks=[stop, lambda event: seen.append(event.round.number)]
    )
    assert seen == [1, 2, 3], "callbacks after the one that stops are called, too"
    assert [row["round"] for row in result.history] == [1, 2, 3]
    wanted = federation(rounds=3).run(recorder=tmp_path / "short")
    assert bits(result.model) == bits(wanted.model)
    assert (tmp_path / "run" / MODEL).read_bytes() == (tmp_path / "short" / MODEL).read_bytes()
    assert sy.Run(tmp_path / "run").meta["status"] == "finished"
    assert federation().resume(tmp_path / "run").state.round == 3
    more = federation().resume(tmp_path / "run", rounds=5)
    assert bits(more.model) == bits(federation().run().model)


def test_an_error_ends_the_run_and_names_the_callback(tmp_path: Path) -> None:
    def faulty(event: RoundEvent) -> None:
        if event.round.number == 2:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        federation().run(recorder=tmp_path / "run", callbacks=[faulty])
    assert "faulty after round 2" in caught.value.__notes__[0]
    meta = sy.Run(tmp_path / "run").meta
    assert (meta["status"], meta["error"]) == ("failed", "mine")
    assert len(federation().resume(tmp_path / "run").history) == 5


class Count:
    """A callable object."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, event: RoundEvent) -> None:
        self.calls += 1


def test_those_of_the_federation_and_of_the_run_are_called(tmp_path: Path) -> None:
    always, once = Count(), Count()
    made = federation(rounds=2, callbacks=always)
    made.run(callbacks=once)
    made.run()
    assert (always.calls, once.calls) == (4, 2)


def test_a_spec_has_callbacks_too(tmp_path: Path) -> None:
    seen: list[int] = []

    def stop(event: RoundEvent) -> None:
        seen.append(event.round.number)
        if event.round.number == 2:
            event.stop()

    result = sy.run(None, out=tmp_path, rounds=4, callbacks=stop, **{"data.clients": 3, "training.steps": 1})
    assert seen == [1, 2]
    assert result.state.round == 2


@pytest.mark.parametrize("wrong", [3, [3], Count, [Count]])
def test_what_cannot_be_called_with_an_event_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="callbacks must be functions or callable objects, not "):
        federation(callbacks=wrong)
    with pytest.raises(InputError, match="callbacks must be"):
        federation().run(callbacks=wrong)
