"""Sites with data frames: their columns have the same order everywhere, and rules may need several sites."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from loop_channel import LoopChannel

import steelyard as sy
from steelyard.errors import InputError, SteelyardError
from steelyard.flower.answering import Answering
from steelyard.flower.apps import client_app
from steelyard.flower.building import build_server, check_server
from steelyard.flower.deployment import Invitation, Settings, spec_hash
from steelyard.flower.messages import Envelope
from steelyard.flower.remote import RemoteSites
from steelyard.flower.wire import Parcel, to_records
from steelyard.server.result import Result
from steelyard.specs.building import build_algorithm, build_task, make_model
from steelyard.specs.schema import Spec, load_spec
from steelyard.threads import one_thread

pd = pytest.importorskip("pandas")

SITES = ("lima", "oslo", "pisa", "quito", "rome")
COLUMNS = ["pulse", "age", "dose"]
ORDERS = {
    "lima": ["dose", "age", "pulse", "ill"],
    "oslo": ["pulse", "ill", "age", "dose"],
    "test": ["ill", "dose", "pulse", "age"],
}
CODE = """
import test_frames_deployed


def test():
    return test_frames_deployed.data("test", 300)
"""


def table(name: str, rows: int = 30) -> Any:
    draw = np.random.default_rng(sum(map(ord, name)))
    frame = pd.DataFrame({name: draw.normal(loc=place, size=rows) for place, name in enumerate(COLUMNS)})
    return frame.assign(ill=(frame["age"] > 1).astype(int))


def data(name: str, rows: int = 30) -> Any:
    """A frame whose columns have an order of its own, and the name of the target."""
    return table(name, rows)[ORDERS.get(name, [*COLUMNS, "ill"])], "ill"


def spec_of(columns: list[str] | None = COLUMNS, **changed: Any) -> Spec:
    settings = {"rounds": 3, "engine": "serial", "model": "linear", "task.columns": columns}
    return load_spec("fedavg", {**settings, **changed})


def settings_of(**changed: Any) -> Settings:
    return Settings(host="localhost", sites=list(SITES), input_shape=[3], classes=2, **changed)


def answering(spec: Spec, name: str, folder: Path, load: Callable[[str], Any] = data) -> Answering:
    home = folder / name
    home.mkdir(parents=True)
    hash = spec_hash(spec, [3], 2)
    return Answering(
        Invitation(name, "test", "", "", spec.to_toml(), hash, False, [3], 2), home, load, trust=True
    )


def deployed(spec: Spec, settings: Settings, folder: Path) -> tuple[Result, LoopChannel]:
    channel = LoopChannel({name: answering(spec, name, folder) for name in SITES})
    sites = RemoteSites(settings.sites, channel, spec_hash(spec, [3], 2), "ab" * 16, folder / "server")
    with one_thread():
        return build_server(spec, settings, sites).run(), channel


def simulated(spec: Spec, clients: dict[str, Any], test: Any = None, task: sy.Task | None = None) -> Result:
    algorithm, model = build_algorithm(spec), make_model(spec, (3,), 2)
    return sy.Federation(clients, model, algorithm, test=test, rounds=3, engine="serial", task=task).run()


def assert_same(found: Result, wanted: Result) -> None:
    assert found.history == wanted.history
    pairs = zip(found.model.parameters(), wanted.model.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


def test_columns_in_any_order_have_the_bits_of_arrays_in_the_order_of_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "frame_on_server.py").write_text(CODE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec, settings = spec_of(), settings_of(test="frame_on_server:test")
    found, channel = deployed(spec, settings, tmp_path)
    frames, test = {name: data(name) for name in SITES}, data("test", 300)
    assert_same(found, simulated(spec, frames, test, build_task(spec, 2)))

    def arrays(frame: Any, target: str) -> Any:
        return frame[COLUMNS].to_numpy("float32"), frame[target].to_numpy()

    assert_same(found, simulated(spec, {name: arrays(*frames[name]) for name in SITES}, arrays(*test)))
    sent = b"".join(b"".join(each.values()) for messages in channel.sent.values() for each in messages)
    assert not any(name.encode() in sent for name in ("pulse", "dose"))


def test_other_columns_are_refused_at_the_site_by_name(tmp_path: Path) -> None:
    def without(name: str) -> Any:
        return table(name).drop(columns="dose"), "ill"

    def more(name: str) -> Any:
        return table(name).assign(weight=1.0), "ill"

    with pytest.raises(InputError, match=r"'oslo', train has no column 'dose', which task\.columns has"):
        answering(spec_of(), "oslo", tmp_path / "a", without)
    with pytest.raises(InputError, match=r"'oslo', train has a column 'weight', which task\.columns has not"):
        answering(spec_of(), "oslo", tmp_path / "b", more)


def test_an_app_of_flower_sends_no_names_of_columns_to_the_server(tmp_path: Path) -> None:
    table_of = {"host": "localhost", "sites": list(SITES), "input_shape": [3], "classes": 2}
    (tmp_path / "deployment.toml").write_text(tomli_w.dumps(table_of), "utf-8")
    (tmp_path / "spec.toml").write_text(spec_of(columns=None).to_toml(), "utf-8")
    envelope = Envelope("oslo", "", "ab" * 16, "a nonce", 0)
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    question = Message(to_records(Parcel(envelope.header())), dst_node_id=2, message_type="train")
    config: dict[str, Any] = {"site": "oslo", "home": str(tmp_path / "home")}
    context = Context(1, 2, config, RecordDict(), {})
    with pytest.raises(SteelyardError, match=r"^the site oslo cannot start; its log says why\.$") as error:
        client_app(tmp_path, data)(question, context)
    assert "pulse" in str(error.value.__cause__)


def test_a_frame_is_refused_if_the_spec_does_not_name_its_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(columns=None)
    with pytest.raises(
        InputError, match=r"client 'oslo' has a data frame.*columns = \[\"pulse\", \"age\", \"dose\"\]"
    ):
        answering(spec, "oslo", tmp_path)
    (tmp_path / "frame_without_names.py").write_text(CODE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match="the test set has a data frame"):
        build_server(
            spec, settings_of(test="frame_without_names:test"), RemoteSites([], Any, "", "", tmp_path)
        )
    own = answering(
        spec, "rome", tmp_path, lambda name: (table(name)[COLUMNS].to_numpy("float32"), table(name)["ill"])
    )
    assert own.site.profile().num_examples == 30


@pytest.mark.parametrize("rule", [{"name": "krum", "f": 1}, {"name": "nnm", "f": 1}], ids=["krum", "nnm"])
def test_rules_that_need_several_sites_can_be_deployed(tmp_path: Path, rule: dict[str, Any]) -> None:
    spec = spec_of(weighing=rule)
    check_server(spec, settings_of())
    found, _ = deployed(spec, settings_of(), tmp_path)
    assert_same(found, simulated(spec, {name: data(name) for name in SITES}, task=build_task(spec, 2)))


def test_a_rule_that_needs_more_sites_is_refused_before_the_start() -> None:
    with pytest.raises(InputError, match="f is 2, but must be at most 1 for 5 clients"):
        check_server(spec_of(weighing={"name": "krum", "f": 2}), settings_of())
    with pytest.raises(InputError, match="f is 1, but must be at most 0 for 4 clients"):
        check_server(spec_of(weighing={"name": "krum", "f": 1}, clients_per_round=4), settings_of())
