"""Remote sites give the bits of the simulation: tables and model, also after the server was stopped."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from loop_channel import LoopChannel, remote, sites_of

from steelyard.runs.reader import Run
from steelyard.runs.resuming import last_state
from steelyard.runs.writer import Recorder
from steelyard.specs.building import build
from steelyard.specs.schema import Spec, load_spec
from steelyard.threads import one_thread
from steelyard.types import Round

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "majority, which remembers": ("fedavg", {"weighing": "majority"}),
    "fedbac, with offers": ("fedbac", {"data.dataset": "digits", "model": "mlp"}),
    "robust-barycenter, posteriors": ("robust-barycenter", {}),
    "chfl, private bodies": ("chfl", {}),
    "an averaged model": ("fedavg", {"server.average": 3}),
    "attacks, which only a trial has": ("poisoned", {"adversaries.count": 1}),
    "held-out examples": ("fedavg", {"data.holdout": 0.2}),
    "adapters, merged by their products": (
        "fedavg",
        {
            "model": "adapted_digits:adapted",
            "sharing": {"name": "adapter", "rank": 6},
            "combining": "low-rank",
            "weighing": "majority",
        },
    ),
    "validation examples": ("fedavg", {"validation": 0.2, "monitor": "nll"}),
}


def spec_of(case: str, **overrides: Any) -> Spec:
    preset, changed = CASES[case]
    settings = {"data.clients": 3, "rounds": 4, "engine": "serial", **changed, **overrides}
    return load_spec(preset, settings, trust=True)


def simulated(spec: Spec, folder: Path) -> Run:
    build(spec).run(recorder=Recorder(folder))
    return Run(folder)


def deployed(spec: Spec, folder: Path, state_folder: Path) -> Run:
    channel = LoopChannel(sites_of(spec, state_folder))
    with one_thread(), Recorder(folder) as recorder:
        server, sites = remote(spec, channel, folder / "sites")
        sites.rewind(0)
        server.run(keeper=recorder)
    return Run(folder)


def assert_same(first: Run, second: Run) -> None:
    assert [*first.rounds] == [*second.rounds]
    assert [*first.clients] == [*second.clients]
    for model in ("model.safetensors", "best.safetensors"):
        files = [run.path / model for run in (first, second) if (run.path / model).is_file()]
        assert len(files) in ((2,) if model == "model.safetensors" else (0, 2))
        assert len({file.read_bytes() for file in files}) < 2


@pytest.mark.parametrize("case", CASES)
def test_a_deployment_has_the_bits_of_the_simulation(case: str, tmp_path: Path) -> None:
    spec = spec_of(case)
    assert_same(simulated(spec, tmp_path / "a"), deployed(spec, tmp_path / "b", tmp_path / "homes"))


def test_with_sampled_clients_and_a_site_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    changed = {"data.clients": 4, "clients_per_round": 3, "rounds": 5, "engine": "serial"}
    plain = simulated(load_spec("fedavg", changed), tmp_path / "plain")
    chosen = next(row for row in plain.clients if row["round"] == 3 and row["status"] == "used")
    objective = {"name": "raising:Raising", "examples": chosen["num_examples"], "round": 3}
    settings = {**changed, "objective": objective, "weighing": "majority"}
    spec = load_spec("fedavg", settings, trust=True)
    first = simulated(spec, tmp_path / "a")
    assert_same(first, deployed(spec, tmp_path / "b", tmp_path / "homes"))
    failed = [row for row in first.clients if "no training today" in str(row["status"])]
    assert [(row["round"], row["client"]) for row in failed] == [(3, chosen["client"])]
    assert len([row for row in first.clients if row["round"] == 1 and row["status"] == "used"]) == 3


class StoppedError(Exception):
    """The server's process ends."""


@pytest.mark.parametrize("case", ["majority, which remembers", "chfl, private bodies"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_a_stopped_server_goes_on_to_the_same_bits(case: str, rounds: int, tmp_path: Path) -> None:
    """The sites are ahead of the saved state, and go back by themselves."""
    spec, folder = spec_of(case, rounds=5), tmp_path / "b"

    def stop(round: Round) -> None:
        if round.number == rounds:
            raise StoppedError

    channel = LoopChannel(sites_of(spec, tmp_path / "homes"))
    with one_thread(), suppress(StoppedError), Recorder(folder) as recorder:
        recorder.is_due = lambda: True  # type: ignore[method-assign]
        server, sites = remote(spec, channel, folder / "sites")
        server.run(stop, keeper=recorder)
        raise AssertionError("it was not stopped")
    state, _ = last_state(Run(folder), lambda state: None)
    assert state is not None
    assert state.round >= rounds
    channel = LoopChannel(sites_of(spec, tmp_path / "homes"))
    with one_thread(), Recorder(folder, after=state.round) as recorder:
        server, sites = remote(spec, channel, folder / "sites")
        sites.rewind(state.round)
        server.run(keeper=recorder, state=state)
    assert_same(simulated(spec, tmp_path / "a"), Run(folder))
