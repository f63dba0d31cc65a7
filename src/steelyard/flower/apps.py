"""The same federation as a pair of Flower apps, for `flwr run` and for apps of one's own.

Here Flower starts a process for each message and executes the app bundle that it was sent; `steelyard deploy`
does neither. Each node says in its config which site it is: `--node-config "site='oslo'"`.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import platformdirs
import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from steelyard.errors import InputError, SteelyardError
from steelyard.flower.answering import Answering
from steelyard.flower.building import Load, build_server, check_server
from steelyard.flower.channel import SERVER_NODE, LostError, TaskChannel
from steelyard.flower.deployment import Deployment, Invitation, load_deployment
from steelyard.flower.messages import PROTOCOL
from steelyard.flower.remote import Patience, RemoteSites
from steelyard.flower.runtime import MESSAGE_TYPE, TaskConnection
from steelyard.flower.serving import KEPT, open_run, wait_for_sites
from steelyard.flower.wire import Parcel, WireError, from_records, to_records
from steelyard.observers.base import Watching
from steelyard.specs.building import build_observers
from steelyard.threads import one_thread
from steelyard.types import ClientId

SITE, HOME, OUT = "site", "home", "out"
"""Keys of a node's config (its name, a folder for its private states) and of the run's (for the record)."""
HELLO_BYTES = 1 << 16


def server_app(folder: str | Path, log: Callable[[str], None] = print) -> ServerApp:
    """A ServerApp that runs the deployment in a folder, and records it in the run's config `out`."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        deployment = load_deployment(Path(folder), trust=True)
        out = Path(str(context.run_config.get(OUT, deployment.folder)))
        run_on_grid(grid, replace(deployment, folder=out.expanduser().resolve()), log)

    return app


def run_on_grid(grid: Grid, deployment: Deployment, log: Callable[[str], None]) -> None:
    """Run a deployment with the nodes of a grid."""
    settings, spec = deployment.settings, deployment.spec
    check_server(spec, settings)
    observers = build_observers(spec)
    opened = open_run(deployment, False, False, log)
    with Watching(observers) as watching, opened.recorder as recorder, one_thread():
        watching.begin(opened.facts(spec))
        channel = GridChannel(grid, settings.sites, log)
        patience = Patience(settings.round_seconds, settings.offline_seconds)
        sites = RemoteSites(
            settings.sites, channel, deployment.hash, opened.id, recorder.folder / KEPT, patience, log
        )
        wait_for_sites(deployment, sites, log)
        federation = build_server(spec, settings, sites)
        sites.rewind(opened.round)
        federation.run(*watching.observers, keeper=recorder, state=opened.state)
        recorder.note(engine=sites.about)
    log(f"recorded in {recorder.path}")


def client_app(folder: str | Path, data: str | Load | None = None) -> ClientApp:
    """A ClientApp that answers as one site of the deployment in a folder.

    `data` is a function, or `module:function`, that is called with the site's name and returns its data.
    """
    app = ClientApp()

    @app.train()
    def answer(message: Message, context: Context) -> Message:
        name = str(context.node_config.get(SITE, ""))
        question = from_records(message.content)
        if "hello" in question.header:
            return Message(to_records(Parcel({"protocol": PROTOCOL, SITE: name})), reply_to=message)
        deployment = load_deployment(Path(folder), trust=True)
        deployment.check_site(name)
        home = Path(str(context.node_config.get(HOME, _default_home(deployment, name)))).expanduser()
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        torch.set_num_threads(1)
        try:
            site = Answering(_invitation(deployment, name), home, data, trust=True)
        except Exception as error:  # Flower sends the text to the server, and this one may speak of the data
            raise SteelyardError(f"the site {name} cannot start; its log says why.") from error
        return Message(to_records(site.answer(question)), reply_to=message)

    return app


def _default_home(deployment: Deployment, site: ClientId) -> str:
    return str(Path(platformdirs.user_data_dir("steelyard")) / f"{deployment.spec.name}-{site}")


def _invitation(deployment: Deployment, site: ClientId) -> Invitation:
    """What the site would be told, from the files that both sides have here."""
    settings = deployment.settings
    shape = (settings.dealt, settings.input_shape, settings.classes)
    return Invitation(site, "", "", "", deployment.spec_of_sites, deployment.hash, *shape)


class GridChannel(TaskChannel):
    """The nodes of a Flower run that somebody else started; each node says which site it is."""

    def __init__(self, grid: Grid, sites: list[ClientId], log: Callable[[str], None]) -> None:
        super().__init__()
        client = getattr(grid, "_runtime_client", None)
        if client is None:
            raise InputError("this grid has no runtime: run the app in Flower's deployment engine.")
        self.task = TaskConnection(client, grid.run.run_id)
        self.sites, self.log = sites, log
        self._hellos: dict[str, Any] = {}
        self._asked: dict[int, str] = {}
        """Nodes that were asked for their names, by the id of the question; "" when they have answered."""

    def reopen(self) -> None:
        raise LostError("the SuperLink has ended this run; start it again with `flwr run`: it resumes.")

    def connected(self) -> Mapping[ClientId, str]:
        def connections(task: TaskConnection) -> dict[ClientId, str]:
            online = self.online(task)
            self._greet(task, [node for node in online if node not in self._asked])
            names = {id: node for node, id in self._asked.items() if id}
            told = self.receive_from(task, set(names), HELLO_BYTES, self._hellos) if names else {}
            for id, found in told.items():
                self._asked[names[id]] = ""
                with suppress(WireError):  # a node that says no name is no site
                    if isinstance(found, RecordDict):
                        self._name(names[id], str(from_records(found, HELLO_BYTES).header.get(SITE)))
            return {self.nodes[node]: since for node, since in online.items() if node in self.nodes}

        return self._try(connections)

    def _greet(self, task: TaskConnection, nodes: list[int]) -> None:
        hello = Parcel({"protocol": PROTOCOL, "hello": True})
        for node in nodes:
            self._asked[node] = task.push([Message(to_records(hello), node, MESSAGE_TYPE)], SERVER_NODE)[0]

    def _name(self, node: int, name: ClientId) -> None:
        if name not in self.sites:
            self.log(f"node {node} says that it is {name[:60]!r}, which is no site: it is left out")
        elif name in self.nodes.values():
            self.log(f"node {node} says that it is {name!r}, like another node: it is left out")
        else:
            self.nodes[node] = name
