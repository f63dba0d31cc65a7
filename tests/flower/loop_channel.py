"""A channel without a network: every question and answer is Flower's bytes, and sites are real ones."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.task_identity import TaskIdentity

from steelyard.flower.answering import Answering
from steelyard.flower.building import build_server
from steelyard.flower.channel import Problem
from steelyard.flower.deployment import Invitation, Settings, spec_hash
from steelyard.flower.remote import RemoteSites
from steelyard.flower.runtime import unfold
from steelyard.flower.wire import from_records, to_records
from steelyard.server.federation import Federation
from steelyard.specs.building import build
from steelyard.specs.schema import Spec
from steelyard.types import ClientId


def contents_of(records: RecordDict) -> tuple[str, dict[str, bytes]]:
    """A message as Flower stores and sends it: its id, and its objects by id."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    message = Message(records, dst_node_id=2, message_type="train")
    objects = get_all_nested_objects(message)
    return message.object_id, {id: each.deflate() for id, each in objects.items()}


class LoopChannel:
    """Sites in this process. What they send is kept in `sent`, as bytes."""

    def __init__(self, sites: Mapping[ClientId, Answering]) -> None:
        self.sites, self.answers, self.count = sites, dict[str, RecordDict](), 0
        self.sent: dict[ClientId, list[dict[str, bytes]]] = {client: [] for client in sites}
        self.headers: list[Mapping[str, Any]] = []

    def connected(self) -> Mapping[ClientId, str]:
        return dict.fromkeys(self.sites, "1")

    def send(self, questions: Mapping[ClientId, RecordDict], seconds: float) -> dict[ClientId, str]:
        return {client: self._ask(client, question) for client, question in questions.items()}

    def _ask(self, client: ClientId, question: RecordDict) -> str:
        self.count += 1
        arrived = unfold(*contents_of(question), 1 << 30).content
        answer = self.sites[client].answer(from_records(arrived))
        id, contents = contents_of(to_records(answer))
        self.sent[client].append(dict(contents))
        self.headers.append(answer.header)
        self.answers[str(self.count)] = unfold(id, contents, 1 << 30).content
        return str(self.count)

    def receive(self, ids: Collection[str], max_bytes: float) -> dict[str, RecordDict | Problem]:
        return {id: self.answers.pop(id) for id in ids if id in self.answers}

    def reopen(self) -> None:
        raise AssertionError("nothing is lost here")


def settings_of(spec: Spec) -> Settings:
    return Settings(host="localhost", sites=list(build(spec).ids), dealt=True)


def sites_of(spec: Spec, folder: Path) -> dict[ClientId, Answering]:
    """A site for each client that the spec deals; private states are kept under `folder`."""
    made = {}
    for client in build(spec).ids:
        home = folder / client
        home.mkdir(exist_ok=True, parents=True)
        hash = spec_hash(spec, None, None)
        invitation = Invitation(client, "test", "", "", spec.to_toml(), hash, True, None, None)
        made[client] = Answering(invitation, home, None, trust=True)
    return made


def remote(
    spec: Spec, channel: LoopChannel, folder: Path, run: str = "ab" * 16
) -> tuple[Federation, RemoteSites]:
    """The server for these sites."""
    settings = settings_of(spec)
    sites = RemoteSites(settings.sites, channel, spec_hash(spec, None, None), run, folder)
    return build_server(spec, settings, sites), sites
